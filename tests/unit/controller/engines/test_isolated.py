"""Topics and workers that the leader leaves alone, since a step for them cannot be written."""

from __future__ import annotations

import logging

import pytest

from ureplicator_common.coordination import Create, Set
from ureplicator_common.model import MAX_SLOTS, WorkerId
from ureplicator_common.znode_contents import IsolatedSubject, KnownWorker
from ureplicator_common.znodes import codec
from ureplicator_common.znodes.fleet import decode_isolated
from ureplicator_common.znodes.workers import encode_known_worker
from ureplicator_testkit.control.manual_controllers import PATHS, REBALANCE_S, ControllerFleet


@pytest.fixture
def fleet() -> ControllerFleet:
    return ControllerFleet()


def owners_of(fleet: ControllerFleet) -> dict[str, set[str]]:
    """Topics that each worker is assigned."""
    return {
        id: {partition.topic for partition in fleet.assignment_of(id).entries} for id in ("a", "b")
    }


def isolated_in(fleet: ControllerFleet) -> tuple[IsolatedSubject, ...]:
    node = fleet.client.get(PATHS.isolated)
    assert node is not None
    return decode_isolated(node.data)


def test_a_new_leader_removes_what_its_predecessor_left_alone(fleet: ControllerFleet) -> None:
    fleet.client.transact([Create(PATHS.isolated, b'[{"what":"topic t","reason":"too big"}]')])
    fleet.one.run()
    assert isolated_in(fleet) == ()
    quiet = fleet.client.get(PATHS.isolated)
    fleet.one.observer.force_plan()
    fleet.one.run()
    assert fleet.client.get(PATHS.isolated) == quiet


def test_a_worker_with_too_many_slots_stops_only_its_own_topics(
    fleet: ControllerFleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its ids to fence fit into no assignment: its topics stay, and all others are planned."""
    monkeypatch.setattr(codec, "LIMIT_BYTES", 4 * 1024)
    owner = fleet.worker("a")
    fleet.one.run()
    fleet.topic(1, "old")
    fleet.one.run()
    data = encode_known_worker(KnownWorker(max_slots=MAX_SLOTS))
    known = fleet.client.get(PATHS.worker_known(WorkerId("a")))
    assert known is not None
    fleet.client.transact([Set(PATHS.worker_known(WorkerId("a")), data, known.stat.version)])
    fleet.worker("b")
    fleet.store.expire(owner._session)
    fleet.one.run()
    fleet.clock.advance(2 * REBALANCE_S)
    fleet.topic(1, "new")
    with caplog.at_level(logging.ERROR):
        fleet.one.run(10)
    assert owners_of(fleet) == {"a": {"old"}, "b": {"new"}}
    assert fleet.one.figure("isolated") == 1
    assert caplog.text.count("the plan leaves alone source.target/old") == 1
    (shown,) = isolated_in(fleet)
    assert shown.what == "topic source.target/old"
    assert "bytes is above" in shown.reason
    node = fleet.client.get(PATHS.worker_known(WorkerId("a")))
    assert node is not None
    data = encode_known_worker(KnownWorker(max_slots=2))
    fleet.client.transact([Set(PATHS.worker_known(WorkerId("a")), data, node.stat.version)])
    fleet.one.run(10)
    assert owners_of(fleet) == {"a": set(), "b": {"new", "old"}}
    assert fleet.one.figure("isolated") == 0
    assert isolated_in(fleet) == ()
