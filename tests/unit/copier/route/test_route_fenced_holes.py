"""Records that are counted behind a position: they follow no hole, and are not many."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_testkit.copier.fenced_fleet import FENCED, FencedFleet
from ureplicator_testkit.copier.ledger_fleet import put
from ureplicator_testkit.copier.transaction_fleet import PROTOCOLS, committed
from ureplicator_worker.copier.messages import Commit
from ureplicator_worker.copier.raw import confirmations

KEY = ("t", 0)
LARGE = 900


@pytest.fixture
def fleet() -> Iterator[FencedFleet]:
    fleet = FencedFleet(PROTOCOLS[0], "w1", "w2", nodes=2, settings=FENCED)
    yield fleet
    fleet.close()


def copied(fleet: FencedFleet) -> int:
    return len(committed(fleet.target, KEY, stable=False))


def commit_while_a_batch_is_in_flight(fleet: FencedFleet) -> None:
    """The leader has a newer epoch, so the batch behind waits for a commit. It is requested, and performed
    when commands `let_pass`."""
    fleet.give(0, "w1")
    put(fleet, 0, 5)
    fleet.run_until_copied()
    line = fleet.workers["w1"]
    node = fleet.target.leaders[KEY]
    fleet.target.frozen.add(node)
    put(fleet, 0, 1, size=LARGE)
    fleet.turns(3, skip_s=0.001)
    fleet.target.move(KEY, node)
    line.target_metadata.refresh()
    fleet.turns(3, skip_s=0.001)
    line.ownership.hold.add(Commit)
    put(fleet, 0, 1, size=LARGE)
    while not line.ownership.held_back:
        fleet.turn(skip_s=0.01)


def test_a_record_that_is_skipped_while_a_commit_is_under_way(fleet: FencedFleet) -> None:
    fleet.publish(replace(FENCED, abort_on_send_failure=False))
    commit_while_a_batch_is_in_flight(fleet)
    fleet.target.refuse[KEY] = deque([ErrorCode.MESSAGE_TOO_LARGE])
    fleet.target.frozen.clear()
    fleet.turns(5, skip_s=0.001)
    fleet.workers["w1"].ownership.let_pass()
    put(fleet, 0, 3)
    while copied(fleet) < 7:
        fleet.turn(skip_s=0.001)
    assert fleet.ledger.read(KEY).offset >= 6
    fleet.kill("w1")
    fleet.run_until_copied()
    assert copied(fleet) == 9


def test_without_commits_no_more_is_sent_than_can_be_counted(
    fleet: FencedFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A target whose coordinator is away for hours takes data all the while."""
    monkeypatch.setattr(confirmations, "AHEAD", 20)
    fleet.give(0, "w1")
    put(fleet, 0, 1)
    fleet.run_until_copied()
    for _ in range(1_000):
        fleet.ledger.fail_next("commit")
    for _ in range(20):
        put(fleet, 0, 3)
        fleet.turns(3)
    assert 20 <= copied(fleet) <= 40
    fleet.ledger.forgive()
    fleet.run_until_copied()
    assert copied(fleet) == 61
