"""The history as the leader writes it to in-memory ZooKeeper."""

from __future__ import annotations

import logging

import pytest

from ureplicator_common.coordination import Create
from ureplicator_common.model import EventKind
from ureplicator_common.znode_contents import PastEvent, SyncKind, SyncReport
from ureplicator_common.znodes.fleet import decode_history
from ureplicator_common.znodes.routes import encode_sync
from ureplicator_testkit.control.manual_controllers import PATHS, ROUTE, ControllerFleet


@pytest.fixture
def fleet() -> ControllerFleet:
    return ControllerFleet()


def history(fleet: ControllerFleet) -> list[PastEvent]:
    node = fleet.client.get(PATHS.history_block(0))
    return list(decode_history(node.data)) if node else []


def test_the_leader_records_its_moves_and_is_not_woken_by_the_record(
    fleet: ControllerFleet,
) -> None:
    fleet.worker("a")
    fleet.topic(2)
    fleet.one.run(4)
    found = [(past.number, past.kind, past.source, past.target) for past in history(fleet)]
    assert found == [
        (0, "leader", None, None),
        (1, "move", None, "a"),
        (2, "move", None, "a"),
    ]
    before = fleet.client.get(PATHS.history_block(0))
    fleet.one.run(4)
    assert not fleet.one.observer.has_changed()
    assert fleet.client.get(PATHS.history_block(0)) == before


def test_the_duration_of_a_move_is_completed_later(fleet: ControllerFleet) -> None:
    worker = fleet.worker("a")
    fleet.topic(1)
    fleet.one.run(4)
    fleet.clock.advance(0.25)
    fleet.report_online(worker, "a")
    fleet.one.run(4)
    assert [past.took_ms for past in history(fleet)] == [None, 250]


def test_another_leader_continues_the_history(fleet: ControllerFleet) -> None:
    fleet.one.run()
    fleet.one.client.close()
    fleet.two.run(4)
    assert [past.reason.partition(" leads")[0] for past in history(fleet)] == ["one", "two"]


def test_an_unreadable_block_is_rewritten(fleet: ControllerFleet) -> None:
    fleet.client.ensure(PATHS.history)
    fleet.client.transact([Create(PATHS.history_block(0), b"{")])
    fleet.one.run()
    assert [past.kind for past in history(fleet)] == ["leader"]


def test_every_log_line_of_a_move_is_found_by_its_id(
    fleet: ControllerFleet, caplog: pytest.LogCaptureFixture
) -> None:
    fleet.worker("a")
    fleet.topic(1)
    with caplog.at_level(logging.INFO):
        fleet.one.run(4)
    (move,) = [past for past in history(fleet) if past.kind is EventKind.MOVE]
    assert any(f"move {move.id}: None -> a" in line for line in caplog.messages)


def test_a_report_of_a_sync_changes_no_plan(fleet: ControllerFleet) -> None:
    fleet.one.run(4)
    report = encode_sync(SyncReport(1, {"synced": 1}))
    fleet.client.transact([Create(PATHS.sync(SyncKind.GROUPS, ROUTE), report)])
    assert PATHS.sync(SyncKind.GROUPS, ROUTE) in fleet.one.observer.nodes()
    assert not fleet.one.observer.has_changed()
