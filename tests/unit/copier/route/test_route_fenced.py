"""Exactly once without transactions: what a former owner has sent is fenced and counted."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from random import Random

import pytest

from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.provenance import DataProducer, Provenance
from ureplicator_testkit.copier.fenced_fleet import FENCED, GOES_ON, FencedFleet
from ureplicator_testkit.copier.ledger_fleet import put
from ureplicator_testkit.copier.line import seen
from ureplicator_testkit.copier.transaction_fleet import (
    PARTITIONS,
    PROTOCOLS,
    TRANSACTIONAL,
    committed,
)
from ureplicator_testkit.exactly_once.history import play
from ureplicator_testkit.records.batches import CONTROL, field
from ureplicator_worker.copier.holder import PRODUCER_FORGOTTEN
from ureplicator_worker.copier.ownership.data_producers import RENEW_S
from ureplicator_worker.copier.ownership.target_check import CheckedTarget

SEEDS = 10
SHORT_S = 600.0


@pytest.fixture
def fleet() -> Iterator[FencedFleet]:
    fleet = FencedFleet(PROTOCOLS[0], "w1", "w2", nodes=2, settings=FENCED)
    yield fleet
    fleet.close()


def stored(fleet: FencedFleet, number: int = 0) -> DataProducer | None:
    provenance = Provenance.decode(fleet.ledger.read(("t", number)).metadata)
    assert provenance is not None
    return provenance.appends


def fences(fleet: FencedFleet) -> int:
    return fleet.ledger.done.count("fence data")


def markers(fleet: FencedFleet, number: int = 0) -> int:
    return sum(bool(field(batch, "attributes") & CONTROL) for batch in log(fleet, number))


def log(fleet: FencedFleet, number: int = 0) -> list[bytes]:
    return fleet.target.logs["t", number].taken


def copied(fleet: FencedFleet, number: int = 0) -> int:
    return len(committed(fleet.target, ("t", number), stable=False))


def test_records_are_visible_before_their_position_is_committed(fleet: FencedFleet) -> None:
    fleet.give(0, "w1")
    put(fleet, 0, 1)
    fleet.run_until_copied()
    put(fleet, 0, 5, size=3_000)
    commits = fleet.ledger.done.count("commit")
    fleet.turns(5, skip_s=0.001)
    assert copied(fleet) == 6
    assert fleet.ledger.done.count("commit") == commits


def test_the_producer_is_stored_before_the_first_record(fleet: FencedFleet) -> None:
    fleet.give(0, "w1")
    put(fleet, 0, 1)
    while not copied(fleet):
        assert not log(fleet)
        fleet.turn()
    appends = stored(fleet)
    assert appends is not None
    assert appends.sequence == 0
    assert field(log(fleet)[0], "producer_id") == appends.id


def test_a_clean_handover_costs_no_fence(fleet: FencedFleet) -> None:
    fleet.give(0, "w1")
    put(fleet, 0, 5)
    fleet.run_until_copied()
    fleet.give(0, "w2")
    put(fleet, 0, 5)
    fleet.run_until_copied()
    assert fences(fleet) == markers(fleet) == 0


def test_a_position_at_rest_is_closed_at_the_end(fleet: FencedFleet) -> None:
    """Its offset is stored already: the producer alone changes."""
    fleet.give(0, "w1")
    put(fleet, 0, 5)
    fleet.run_until_copied()
    fleet.turns(30)
    assert stored(fleet) is not None
    commits = len(fleet.ledger.history)
    fleet.give(0, "w2")
    fleet.run_until_copied()
    worker, _, last = fleet.ledger.history[commits]
    closed = Provenance.decode(last.metadata)
    assert closed is not None
    assert (worker, last.offset, closed.appends) == ("w1", 5, None)


def test_what_a_killed_owner_sent_is_counted(fleet: FencedFleet) -> None:
    fleet.give(0, "w1")
    put(fleet, 0, 5)
    fleet.run_until_copied()
    put(fleet, 0, 7)
    while copied(fleet) < 12:
        fleet.turn(skip_s=0.001)
    assert fleet.ledger.read(("t", 0)).offset == 5
    fleet.kill("w1")
    fleet.run_until_copied()
    assert (fences(fleet), markers(fleet), copied(fleet)) == (1, 1, 12)


def kill_while_the_source_is_away(fleet: FencedFleet) -> None:
    """The owner has sent more than its position says; its successor tries to start for some seconds."""
    fleet.give(0, "w1")
    put(fleet, 0, 5)
    fleet.run_until_copied()
    put(fleet, 0, 7)
    while copied(fleet) < 12:
        fleet.turn(skip_s=0.001)
    fleet.kill("w1")
    fleet.workers["w1"].ownership.source_client.failures = 5
    fleet.turns(300)


def test_a_start_that_is_tried_again_writes_no_further_fence(fleet: FencedFleet) -> None:
    kill_while_the_source_is_away(fleet)
    fleet.run_until_copied()
    assert fleet.ledger.done.count("read") > 3
    assert (fences(fleet), markers(fleet), copied(fleet)) == (1, 1, 12)


def test_a_frozen_owner_that_thaws_appends_nothing(fleet: FencedFleet) -> None:
    fleet.give(0, "w1")
    put(fleet, 0, 5)
    fleet.run_until_copied()
    owner = fleet.workers["w1"]
    put(fleet, 0, 20, size=500)
    fleet.turn(skip_s=0.001)
    owner.frozen = True
    fleet.give(0, "w2")
    fleet.run_until_copied()
    owner.frozen = False
    put(fleet, 0, 5)
    fleet.run_until_copied()
    fleet.turns(50)
    rows = committed(fleet.target, ("t", 0), stable=False)
    assert seen(rows) == seen(committed(fleet.source, ("t", 0)))


def test_each_partition_of_a_killed_owner_is_fenced_once(fleet: FencedFleet) -> None:
    for number in range(PARTITIONS):
        fleet.give(number, "w1")
        put(fleet, number, 5)
    fleet.run_until_copied()
    fleet.kill("w1")
    for number in range(PARTITIONS):
        put(fleet, number, 1)
    fleet.run_until_copied()
    assert [markers(fleet, number) for number in range(PARTITIONS)] == [1] * PARTITIONS


def test_a_marker_that_is_late_is_awaited(fleet: FencedFleet) -> None:
    fleet.give(0, "w1")
    put(fleet, 0, 5)
    fleet.run_until_copied()
    fleet.kill("w1")
    fleet.ledger.late_markers = 1
    put(fleet, 0, 5)
    fleet.run_until_copied()
    assert markers(fleet) == 1


def test_over_a_new_connection_nothing_is_sent_before_a_commit(fleet: FencedFleet) -> None:
    fleet.give(0, "w1")
    put(fleet, 0, 5)
    fleet.run_until_copied()
    fleet.target.cut(fleet.target.leaders["t", 0])
    fleet.turns(3)
    put(fleet, 0, 1)
    commits = fleet.ledger.done.count("commit")
    while copied(fleet) < 6:
        seen_before = fleet.ledger.done.count("commit")
        fleet.turn(skip_s=0.001)
    assert seen_before > commits


def test_records_that_brokers_forget_are_never_sent_again(fleet: FencedFleet) -> None:
    """Their outcome is unknown, and they would be appended twice."""
    fleet.age()
    fleet.give(0, "w1")
    put(fleet, 0, 5)
    fleet.run_until_copied()
    fleet.target.silent.add(fleet.target.leaders["t", 0])
    put(fleet, 0, 5)
    fleet.turns(20)
    assert copied(fleet) == 10
    fleet.target.silent.clear()
    fleet.target.cut(fleet.target.leaders["t", 0])
    fleet.run_until_copied()
    assert (copied(fleet), fences(fleet)) == (10, 1)


def test_what_the_source_deleted_since_the_copy_is_compared(fleet: FencedFleet) -> None:
    """The place would lie too far by the count alone, and records would be lost."""
    fleet.give(0, "w1")
    put(fleet, 0, 5)
    fleet.run_until_copied()
    put(fleet, 0, 7)
    while copied(fleet) < 12:
        fleet.turn(skip_s=0.001)
    fleet.kill("w1")
    put(fleet, 0, 6)
    fleet.delete(("t", 0), 8)
    fleet.run_until_copied()
    assert (copied(fleet), fleet.stopped) == (18, {})


def test_what_compaction_took_since_the_copy_is_compared(fleet: FencedFleet) -> None:
    fleet.give(0, "w1")
    put(fleet, 0, 5)
    fleet.run_until_copied()
    keys = cycle([b"a", b"b", b"c"])
    put(fleet, 0, 7, key=lambda: next(keys))
    while copied(fleet) < 12:
        fleet.turn(skip_s=0.001)
    fleet.kill("w1")
    put(fleet, 0, 6, key=lambda: next(keys))
    fleet.compact(("t", 0), 14)
    fleet.run_until_copied()
    assert (copied(fleet), fleet.stopped) == (18, {})


def test_a_tail_that_the_target_deleted_stops_the_partition(fleet: FencedFleet) -> None:
    """Nobody knows how many records there were."""
    fleet.give(0, "w1")
    put(fleet, 0, 5)
    fleet.run_until_copied()
    put(fleet, 0, 7)
    while copied(fleet) < 12:
        fleet.turn(skip_s=0.001)
    fleet.kill("w1")
    target = fleet.target.logs["t", 0]
    target.delete(target.end)
    fleet.worn.add(("t", 0))
    fleet.run_until_copied()
    (reason,) = fleet.stopped.values()
    assert "the target's log begins at 12, behind what was sent after the position" in reason
    assert copied(fleet) == 12


def sent_after_a_commit(fleet: FencedFleet, count: int) -> bool:
    """The next record was sent behind a commit that was requested after `count` others."""
    before = copied(fleet)
    while copied(fleet) == before:
        commits = fleet.ledger.done.count("commit")
        fleet.turn(skip_s=0.001)
    return commits > count


def test_to_a_new_leader_nothing_is_sent_before_a_commit(fleet: FencedFleet) -> None:
    """A connection that serves another partition already makes no difference: the log of the leader may be
    one without the control record of a fence."""
    for number in range(PARTITIONS):
        fleet.give(number, "w1")
        put(fleet, number, 5)
    fleet.run_until_copied()
    fleet.target.cut(
        fleet.target.leaders["t", 0]
    )  # so it is confirmed after the other's was opened
    put(fleet, 0, 1)
    fleet.run_until_copied()
    fleet.target.move(("t", 0), fleet.target.leaders["t", 1])
    fleet.workers["w1"].target_metadata.refresh()
    fleet.turns(2)
    commits = fleet.ledger.done.count("commit")
    put(fleet, 0, 1)
    assert sent_after_a_commit(fleet, commits)


def test_behind_a_gap_nothing_is_sent_before_a_commit(fleet: FencedFleet) -> None:
    """What is counted follows a position without a hole."""
    fleet.publish(GOES_ON)
    fleet.give(0, "w1")
    put(fleet, 0, 5)
    fleet.run_until_copied()
    fleet.workers["w1"].frozen = True
    put(fleet, 0, 5)
    fleet.delete(("t", 0), 8)
    fleet.workers["w1"].frozen = False
    commits = fleet.ledger.done.count("commit")
    assert sent_after_a_commit(fleet, commits)
    assert fleet.ledger.read(("t", 0)).offset >= 8


def test_behind_a_skipped_record_nothing_is_sent_before_a_commit(fleet: FencedFleet) -> None:
    fleet.publish(replace(FENCED, abort_on_send_failure=False))
    fleet.give(0, "w1")
    put(fleet, 0, 5)
    fleet.run_until_copied()
    fleet.target.refuse["t", 0] = deque([ErrorCode.MESSAGE_TOO_LARGE])
    put(fleet, 0, 1, size=500)
    put(fleet, 0, 1)
    commits = fleet.ledger.done.count("commit")
    assert sent_after_a_commit(fleet, commits)
    assert (fleet.ledger.read(("t", 0)).offset, copied(fleet)) == (6, 6)


def test_a_try_that_arrives_late_is_appended_once(fleet: FencedFleet) -> None:
    """What was sent over a lost connection may arrive when older records have made the broker forget the
    producer. So a producer of which something may be under way sends none of those."""
    fleet.age()
    fleet.give(0, "w1")
    put(fleet, 0, 1, time_ms=fleet.young_ms)
    fleet.run_until_copied()
    fleet.target.delaying.add(fleet.target.leaders["t", 0])
    put(fleet, 0, 5, time_ms=fleet.young_ms)
    fleet.run_until_copied()
    assert (copied(fleet), fences(fleet)) == (6, 0)
    put(fleet, 0, 5)
    fleet.run_until_copied()
    fleet.target.arrive()
    fleet.turns(5)
    assert (copied(fleet), fences(fleet)) == (11, 0)


def test_a_producer_that_its_coordinator_forgot_is_replaced_at_no_cost(fleet: FencedFleet) -> None:
    fleet.give(0, "w1")
    put(fleet, 0, 5)
    fleet.run_until_copied()
    fleet.ledger.forget_data_producers()
    fleet.turn(skip_s=RENEW_S)
    fleet.turns(20)
    put(fleet, 0, 5)
    fleet.run_until_copied()
    assert [failure.reason for failure in fleet.workers["w1"].failures] == [PRODUCER_FORGOTTEN]
    ids = [field(batch, "producer_id") for batch in log(fleet)]
    assert (copied(fleet), fences(fleet), len(set(ids))) == (10, 0, 2)


def test_a_target_that_is_refused_gets_nothing(fleet: FencedFleet) -> None:
    check = fleet.workers["w1"].ownership.check
    check.found = CheckedTarget("target: exactly once is refused: it forgets")
    fleet.give(0, "w1")
    put(fleet, 0, 5)
    fleet.turns(20)
    assert (copied(fleet), fleet.ledger.done.count("data producer")) == (0, 0)
    (failure,) = {(item.reason, item.temporary) for item in fleet.workers["w1"].failures}
    assert failure == (check.found.refusal, True)
    check.found = CheckedTarget()
    fleet.run_until_copied()
    assert copied(fleet) == 5


def test_brokers_that_forget_early_are_not_sent_again_what_is_older(fleet: FencedFleet) -> None:
    """The outcome is unknown: the partition begins again, and what is there is counted."""
    line = fleet.workers["w1"]
    line.ownership.check.found = CheckedTarget(kept_s=SHORT_S)
    line.wall_s = SHORT_S + 1
    fleet.give(0, "w1")
    put(fleet, 0, 5)
    fleet.run_until_copied()
    fleet.target.silent.add(fleet.target.leaders["t", 0])
    put(fleet, 0, 5)
    fleet.turns(20)
    assert copied(fleet) == 10
    fleet.target.silent.clear()
    fleet.target.cut(fleet.target.leaders["t", 0])
    fleet.target.logs["t", 0].forget_producers()
    fleet.run_until_copied()
    assert (copied(fleet), fences(fleet)) == (10, 1)


def test_an_outcome_that_was_unknown_for_too_long_is_counted(fleet: FencedFleet) -> None:
    """The time of a batch does not tell how long brokers know its producer, where they stamp the records."""
    line = fleet.workers["w1"]
    line.ownership.check.found = CheckedTarget(kept_s=SHORT_S)
    fleet.give(0, "w1")
    put(fleet, 0, 5)
    fleet.run_until_copied()
    node = fleet.target.leaders["t", 0]
    fleet.target.silent.add(node)
    put(fleet, 0, 5)
    fleet.turns(20)
    assert copied(fleet) == 10
    fleet.target.down.add(node)
    fleet.turns(3, skip_s=SHORT_S)
    fleet.target.logs["t", 0].forget_producers()
    fleet.target.silent.clear()
    fleet.target.down.clear()
    fleet.run_until_copied()
    assert (copied(fleet), fences(fleet)) == (10, 1)


@pytest.mark.parametrize("killed", [True, False])
@pytest.mark.parametrize("refused", [0, 2])
def test_a_switch_to_transactions_and_back_repeats_nothing(
    fleet: FencedFleet, killed: bool, refused: int
) -> None:
    """Nothing that a lost owner sent behind its position is repeated either, also if the first transactions
    fail."""
    fleet.give(0, "w1")
    put(fleet, 0, 5)
    fleet.run_until_copied()
    put(fleet, 0, 7)
    while copied(fleet) < 12:
        fleet.turn(skip_s=0.001)
    if killed:
        fleet.kill("w1")
    fleet.publish(TRANSACTIONAL)
    for _ in range(refused):
        fleet.ledger.fail_next("commit", "before")
    put(fleet, 0, 5)
    fleet.run_until_copied()
    assert stored(fleet) is None
    fleet.publish(FENCED)
    put(fleet, 0, 5)
    fleet.run_until_copied()
    fleet.turns(10)
    assert copied(fleet) == 22
    assert stored(fleet) is not None


@pytest.mark.parametrize("seed", range(SEEDS))
def test_everything_is_there_once_for_every_reader(seed: int) -> None:
    play(Random(seed), settings=FENCED)  # noqa: S311  # repeatable
