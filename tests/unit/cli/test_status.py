"""`ureplicator status`."""

from __future__ import annotations

import json

from ureplicator_testkit.control.command import run
from ureplicator_testkit.control.rest_fixture import RestFixture


def test_status(rest: RestFixture, url: str) -> None:
    run("topics", "add", "orders", url=url)
    rest.put_leader("c2")
    result = run("status", url=url)
    assert result.exit_code == 0
    assert "leader      c2" in result.stdout
    assert "4: 0 online, 4 offline, 0 in error" in result.stdout
    assert "not placed yet" in result.stdout


def test_status_without_zookeeper(rest: RestFixture, url: str) -> None:
    with rest.zookeeper_unavailable():
        result = run("status", url=url)
    assert result.exit_code == 1
    assert "ZooKeeper is unavailable" in result.stderr


def test_switches_are_shown(url: str) -> None:
    assert "switches    balancing on\n" in run("status", url=url).stdout
    run("freeze", url=url)
    run("balance", "off", url=url)
    assert "switches    frozen, balancing off\n" in run("status", url=url).stdout
    assert json.loads(run("status", "--json", url=url).stdout)["frozen"] is True
