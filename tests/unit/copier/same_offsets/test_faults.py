"""Equal offsets through requests for control records that fail, skipped records, and claims about them."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest

from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_testkit.copier.fenced_fleet import FENCED
from ureplicator_testkit.copier.ledger_fleet import put
from ureplicator_testkit.copier.same_fleet import OTHER, SAME, SameFleet
from ureplicator_testkit.records.batches import batch
from ureplicator_worker.copier.raw import gap_filling

KEY = ("t", 0)
FAILED = ErrorCode.UNKNOWN_SERVER_ERROR
FAR = 20_000


def test_control_records_of_unknown_outcome_are_not_repeated(fleet: SameFleet) -> None:
    fleet.begin(0)
    fleet.leave_gap()
    log, node = fleet.target.logs[KEY], fleet.target.leaders[KEY]
    fleet.target.silent.add(node)
    fleet.run_until(lambda: log.end == 8)
    fleet.target.cut(node)
    fleet.target.silent.clear()
    fleet.run_until_copied()
    assert set(fleet.shifts(0)) == {0}


@pytest.mark.parametrize(
    "codes",
    [
        [FAILED] * 3,
        [ErrorCode.NONE, ErrorCode.NONE, FAILED],
        [ErrorCode.NOT_ENOUGH_REPLICAS] * 3,
        [ErrorCode.INVALID_PRODUCER_EPOCH] * 3,
    ],
)
def test_control_records_that_are_refused(fleet: SameFleet, codes: list[ErrorCode]) -> None:
    fleet.begin(0)
    fleet.target.refuse_markers[KEY] = deque(codes)
    fleet.leave_gap()
    fleet.run_until_copied()
    assert set(fleet.shifts(0)) == {0}


def test_no_filler_lies_behind_a_record(fleet: SameFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gap_filling, "RESERVE", 2)
    fleet.begin(0)
    fleet.leave_gap(20)
    fleet.run_until_copied()
    assert set(fleet.shifts(0)) == {0}


def test_a_batch_with_a_hole_is_sent_as_two(fleet: SameFleet) -> None:
    fleet.begin(0)
    keys = (b"a", b"b", b"b", b"c")
    rows = [(0, key, b"t/0/%d " % (5 + at), ()) for at, key in enumerate(keys)]
    fleet.source.logs[KEY].put(batch(rows))
    fleet.compact(KEY, 9)
    fleet.run_until_copied()
    assert fleet.shifts(0)[-3:] == [0] * 3


def test_behind_a_skipped_record_nothing_is_sent_before_a_commit(fleet: SameFleet) -> None:
    fleet.publish(replace(SAME, abort_on_send_failure=False))
    fleet.begin(0)
    fleet.target.refuse[KEY] = deque([ErrorCode.MESSAGE_TOO_LARGE])
    put(fleet, 0, 1, size=500)
    put(fleet, 0, 1)
    fleet.run_until(lambda: fleet.target.logs[KEY].end == 7)
    assert fleet.ledger.read(KEY).offset == 6
    fleet.run_until_copied()
    assert set(fleet.shifts(0)) == {0}


def test_a_claim_ends_where_another_owner_copied_shifted_records(fleet: SameFleet) -> None:
    fleet.begin(0)
    log = fleet.target.logs[KEY]
    assert not log.mark(OTHER, 0, coordinator_epoch=0, commit=False)
    put(fleet, 0, 4)
    fleet.run_until(lambda: len(fleet.shifts(0)) == 9)
    fleet.kill("w1")
    fleet.run_until_copied()
    assert fleet.shifts(0) == [0] * 5 + [1] * 4
    assert fleet.claim(0).since >= 5


def test_a_shared_producer_is_never_closed(fleet: SameFleet) -> None:
    """An owner that sends nothing under it ends, and the one before it thaws."""
    fleet.begin(0)
    owner = fleet.workers["w1"]
    put(fleet, 0, 1)
    node = fleet.target.leaders[KEY]
    fleet.target.delaying.add(node)
    fleet.run_until(lambda: node not in fleet.target.delaying)
    owner.frozen = True
    fleet.source.frozen.add(1)
    fleet.give(0, "w2")
    fleet.turns(30)
    fleet.kill("w1")
    fleet.give(0, "w1")
    fleet.turns(30)
    fleet.source.frozen.clear()
    fleet.run_until_copied()
    fleet.target.arrive()
    put(fleet, 0, 2)
    fleet.run_until_copied()
    assert len(fleet.shifts(0)) == 8


@pytest.mark.usefixtures("small_fillers")
@pytest.mark.parametrize("tries", range(5))
def test_a_log_begins_once_its_fillers_are_deleted(fleet: SameFleet, tries: int) -> None:
    codes = [*[ErrorCode.NONE] * tries, *[ErrorCode.REQUEST_TIMED_OUT] * 20]
    fleet.target.refuse_deletions[KEY] = deque(codes)
    put(fleet, 0, 30)
    fleet.delete(KEY, 23)
    fleet.give(0, "w1")
    fleet.run_until(lambda: fleet.target.logs[KEY].end > 23, turns=4_000)
    assert fleet.target.logs[KEY].start == 23


@pytest.mark.usefixtures("small_fillers")
def test_a_broker_that_is_killed_shows_no_filler_beside_a_record(fleet: SameFleet) -> None:
    put(fleet, 0, 30)
    fleet.delete(KEY, 23)
    fleet.give(0, "w1")
    log, node = fleet.target.logs[KEY], fleet.target.leaders[KEY]
    fleet.run_until(lambda: log.end == 15)
    fleet.kill_broker(node)
    assert log.start == 0
    fleet.run_until(lambda: log.start == 15)
    fleet.run_until(lambda: log.end > 23, turns=1_000)
    fleet.kill_broker(node)
    assert log.start >= 15
    fleet.run_until_copied()
    assert set(fleet.shifts(0)) == {0}


@pytest.mark.usefixtures("small_fillers")
def test_connections_that_are_opened_again_do_not_prolong_the_wait(fleet: SameFleet) -> None:
    """The followers of a neighbour on the broker time out now and then, so it gets another connection."""
    fleet.target.leaders["t", 1] = fleet.target.leaders[KEY]
    fleet.give(1, "w1")
    put(fleet, 1, 5)
    fleet.run_until_copied()
    put(fleet, 0, 30)
    fleet.delete(KEY, 23)
    fleet.give(0, "w1")
    for turn in range(300):
        if turn % 30 == 0:
            fleet.target.refuse["t", 1] = deque([ErrorCode.REQUEST_TIMED_OUT])
        put(fleet, 1, 2, size=50)
        fleet.turn(skip_s=0.01)
    assert fleet.target.logs[KEY].end > 23


@pytest.mark.usefixtures("small_fillers")
def test_a_source_that_begins_later_meanwhile_is_followed(fleet: SameFleet) -> None:
    put(fleet, 0, 30)
    fleet.delete(KEY, 23)
    fleet.give(0, "w1")
    fleet.run_until(lambda: fleet.target.logs[KEY].end == 15)
    for turn in range(10):
        fleet.turns(5, skip_s=0.02)
        put(fleet, 0, 5)
        fleet.delete(KEY, 23 + 3 * turn)
    fleet.run_until_copied()
    assert set(fleet.shifts(0)) == {0}


def test_a_topic_that_was_begun_with_mapped_offsets_goes_on_shifted(fleet: SameFleet) -> None:
    """Its target is shorter by more than may be filled. Gaps are filled, so the shift stays what it is."""
    log = fleet.source.logs[KEY]
    log.start = log.end = FAR
    fleet.publish(FENCED)
    fleet.begin(0)
    fleet.publish(SAME)
    fleet.give(0, "w2")
    fleet.run_until_copied()
    fleet.leave_gap()
    fleet.run_until_copied()
    assert (fleet.claim(0).shift, set(fleet.shifts(0))) == (-FAR, {-FAR})


def test_an_owner_of_mapped_offsets_is_always_fenced(fleet: SameFleet) -> None:
    """It does not say before old records that they follow."""
    fleet.publish(FENCED)
    fleet.begin(0)
    fleet.publish(SAME)
    fleet.kill("w1")
    put(fleet, 0, 5)
    fleet.run_until_copied()
    assert fleet.ledger.done.count("fence data") == 1


def test_a_log_that_is_shorter_than_was_taken_is_read_again(fleet: SameFleet) -> None:
    """A broker that has not so many offsets refuses to delete before the last of them."""
    fleet.target.refuse_deletions[KEY] = deque([ErrorCode.OFFSET_OUT_OF_RANGE])
    put(fleet, 0, 30)
    fleet.delete(KEY, 23)
    fleet.give(0, "w1")
    fleet.run_until(lambda: bool(fleet.workers["w1"].failures))
    fleet.run_until_copied()
    assert fleet.target.logs[KEY].start == 23
