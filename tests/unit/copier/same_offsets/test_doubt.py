"""Equal offsets while others may still send: each record is there once, and a log begins without fillers."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest

from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.model import GapPolicy
from ureplicator_testkit.copier.ledger_fleet import put
from ureplicator_testkit.copier.same_fleet import SAME, SameFleet
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka

KEY = ("t", 0)


def leader(fleet: SameFleet) -> int:
    return fleet.target.leaders[KEY]


def delay_next(fleet: SameFleet) -> None:
    """The next batch of the owner stays on its way, and the owner is gone."""
    fleet.target.delaying.add(leader(fleet))
    fleet.run_until(lambda: leader(fleet) not in fleet.target.delaying)


def values(fleet: SameFleet) -> int:
    return len(fleet.shifts(0))


def test_a_record_that_is_skipped_hides_no_other(fleet: SameFleet) -> None:
    """The former owner's try of it arrives under the sequence of what follows."""
    fleet.publish(replace(SAME, abort_on_send_failure=False))
    fleet.begin(0)
    put(fleet, 0, 1)
    delay_next(fleet)
    fleet.kill("w1")
    log = fleet.target.logs[KEY]
    log.max_bytes = 10
    while fleet.ledger.read(KEY).offset < 6:
        fleet.turn()
    log.max_bytes = 1 << 20
    fleet.target.arrive()
    put(fleet, 0, 3)
    fleet.run_until_copied()
    assert values(fleet) in {8, 9}


def test_a_hole_since_the_copy_hides_no_other(fleet: SameFleet) -> None:
    fleet.begin(0)
    put(fleet, 0, 1)
    delay_next(fleet)
    fleet.workers["w1"].frozen = True
    fleet.give(0, "w2")
    put(fleet, 0, 1)
    fleet.compact(KEY, 7)
    sent = fleet.target.logs[KEY].end
    fleet.run_until(lambda: fleet.target.logs[KEY].end > sent)
    fleet.target.arrive()
    fleet.run_until_copied()
    put(fleet, 0, 3)
    fleet.run_until_copied()


def test_an_old_record_in_front_of_young_ones_is_sent_once(fleet: SameFleet) -> None:
    """Alone it makes brokers forget the producer; merged with others it looks young."""
    fleet.age()
    fleet.give(0, "w1")
    put(fleet, 0, 5, time_ms=fleet.young_ms)
    fleet.run_until_copied()
    put(fleet, 0, 1)
    delay_next(fleet)
    fleet.workers["w1"].frozen = True
    fleet.target.frozen.add(leader(fleet))
    put(fleet, 0, 20, time_ms=fleet.young_ms)
    fleet.give(0, "w2")
    fleet.turns(30)
    fleet.target.arrive()
    fleet.target.frozen.clear()
    fleet.run_until_copied()
    assert values(fleet) == 26


@pytest.mark.usefixtures("small_fillers")
def test_what_follows_a_filled_log_is_counted(fleet: SameFleet) -> None:
    """Owners are lost once all is filled, and once something was copied behind it."""
    put(fleet, 0, 60)
    fleet.delete(KEY, 60)
    fleet.give(0, "w1")
    fleet.run_until(lambda: fleet.target.logs[KEY].end >= 60, turns=4_000)
    fleet.kill("w1")
    fleet.run_until_copied()
    put(fleet, 0, 5)
    fleet.run_until_copied()
    put(fleet, 0, 5)
    fleet.run_until(lambda: values(fleet) >= 10)
    fleet.kill("w1")
    fleet.run_until_copied()
    assert values(fleet) == 10
    fleet.turns(5)
    assert not fleet.workers["w1"].copier.report()[fleet.give(0, "w1")].reason


@pytest.mark.usefixtures("small_fillers")
@pytest.mark.parametrize("ends", range(0, 50, 5))
def test_a_first_record_behind_a_hole(fleet: SameFleet, ends: int) -> None:
    """The owner is lost when the log ends there."""
    put(fleet, 0, 60)
    fleet.compact(KEY, 60)
    fleet.delete(KEY, 30)
    put(fleet, 0, 1)
    fleet.give(0, "w1")
    fleet.run_until(lambda: fleet.target.logs[KEY].end >= ends)
    fleet.kill("w1")
    fleet.run_until_copied()
    assert set(fleet.shifts(0)) == {0}
    assert fleet.target.logs[KEY].start >= 30


@pytest.mark.usefixtures("small_fillers")
@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("turns", range(0, 48, 8))
def test_a_source_that_begins_later_while_the_log_is_filled(
    fleet: SameFleet, turns: int, *, kill: bool
) -> None:
    fleet.publish(replace(SAME, on_gap=GapPolicy.EARLIEST))
    put(fleet, 0, 60)
    fleet.delete(KEY, 30)
    fleet.give(0, "w1")
    fleet.turns(turns, skip_s=0.01)
    fleet.delete(KEY, 55)
    if kill:
        fleet.kill("w1")
    fleet.run_until_copied()
    assert (set(fleet.shifts(0)) - {0}, fleet.shifts(0)[-5:]) == (set(), [0] * 5)


@pytest.mark.usefixtures("small_fillers")
@pytest.mark.parametrize(
    "code", [ErrorCode.NONE, ErrorCode.POLICY_VIOLATION, ErrorCode.REQUEST_TIMED_OUT]
)
def test_a_start_that_moves_when_its_partition_is_gone(fleet: SameFleet, code: ErrorCode) -> None:
    """The response comes when the partition is another's: it concerns nobody."""
    put(fleet, 0, 30)
    fleet.delete(KEY, 23)
    fleet.give(0, "w1")
    fleet.run_until(lambda: fleet.target.logs[KEY].end > 0)
    fleet.target.refuse_deletions[KEY] = deque([code])
    fleet.target.frozen.add(leader(fleet))
    fleet.turns(3, skip_s=0.01)
    fleet.give(0, "w2")
    fleet.turns(20)
    fleet.target.frozen.clear()
    fleet.run_until_copied()
    fleet.turns(20)
    requests = deletions(fleet.target)
    fleet.turns(20)
    assert deletions(fleet.target) == requests
    assert set(fleet.shifts(0)) == {0}


def deletions(kafka: MemoryKafka) -> int:
    return sum(type(request).__name__.startswith("DeleteRecords") for request in kafka.requests)
