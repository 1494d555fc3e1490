"""`ureplicator instances`."""

from __future__ import annotations

import json

from ureplicator_common.model import PartitionState, WorkerId
from ureplicator_common.znode_contents import KnownWorker
from ureplicator_common.znodes.workers import encode_known_worker
from ureplicator_testkit.control.command import run
from ureplicator_testkit.control.rest_fixture import RestFixture


def test_instances(rest: RestFixture, url: str) -> None:
    rest.add_worker("w1")
    run("topics", "add", "orders", url=url)
    rest.place("orders", {0: "w1"})
    rest.put_states("w1", "orders", {0: PartitionState.ONLINE})
    assert "h:7" in run("instances", url=url).stdout
    assert "orders" in run("instances", "w1", url=url).stdout
    assert run("instances", "w9", url=url).exit_code == 1


def test_draining_and_restoring(rest: RestFixture, url: str) -> None:
    rest.add_worker("w1")
    assert "draining" in run("instances", "drain", "w1", url=url).stdout
    shown = json.loads(run("instances", "w1", "--json", url=url).stdout)
    assert shown["workers"]["w1"]["draining"] is True
    assert "restored" in run("instances", "restore", "w1", url=url).stdout
    assert run("instances", "drain", "w9", url=url).exit_code == 1
    rest.add_worker("drain")
    shown = json.loads(run("instances", "show", "drain", "--json", url=url).stdout)
    assert list(shown["workers"]) == ["drain"], "a worker may be called like a command"


def test_forgetting(rest: RestFixture, url: str) -> None:
    rest.add_worker("w1")
    refused = run("instances", "forget", "w1", url=url)
    assert refused.exit_code == 1
    assert "worker w1 is live" in refused.stderr
    rest.put(rest.paths.worker_known(WorkerId("gone")), encode_known_worker(KnownWorker(2)))
    assert run("instances", "forget", "gone", url=url).stdout == "gone: forgotten\n"
