"""`ureplicator status`."""

from __future__ import annotations

import json

from ureplicator_common.model import WorkerId
from ureplicator_common.znode_contents import IsolatedSubject, KnownWorker, TopicIntent
from ureplicator_common.znodes.fleet import encode_isolated
from ureplicator_common.znodes.workers import encode_known_worker
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


def test_what_the_leader_leaves_alone_is_shown(rest: RestFixture, url: str) -> None:
    assert "left alone" not in run("status", url=url).stdout
    subject = IsolatedSubject("topic source.target/orders", "too big: \x1b[2J")
    rest.put(rest.paths.isolated, encode_isolated([subject]))
    shown = run("status", url=url).stdout
    assert "left alone" in shown
    assert "source.target/orders" in shown
    assert "too big: \\x1b[2J" in shown


def test_mass_loss_is_shown(rest: RestFixture, url: str) -> None:
    assert "condition" not in run("status", url=url).stdout
    rest.put_intent("orders", TopicIntent(3, 3, target_topic="orders"))
    rest.place("orders", {0: "w1", 1: "w2", 2: "w3"})
    for worker in ("w1", "w2"):
        known = encode_known_worker(KnownWorker(max_slots=2))
        rest.put(rest.paths.worker_known(WorkerId(worker)), known)
    rest.add_worker("w3")
    assert (
        "condition   mass loss: 2 of 3 workers are lost (w1, w2)" in run("status", url=url).stdout
    )
    assert "worker w1 is gone; mass loss: it keeps the partition" in run("status", url=url).stdout
    refused = run("rebalance", url=url)
    assert refused.exit_code == 1
    assert "--confirm" in refused.stderr
    assert run("rebalance", "--confirm", url=url).exit_code == 0
    assert "condition" not in run("status", url=url).stdout
