"""Histories of partitions that make no progress: listed, moved at most three times, left, forgiven."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ureplicator_common.model import Partition, Switches
from ureplicator_controller.core.planning.no_progress import (
    MOVE_AFTER_S,
    REPORT_AFTER_S,
    PartitionWithoutProgress,
    partitions_to_move,
    partitions_without_progress,
    suspect_workers,
)
from ureplicator_controller.core.state.external_view import external_view
from ureplicator_testkit.control.fleet import ControlFleet, partition
from ureplicator_testkit.control.load_meter import LoadMeter

POISON = partition("t", 0)


def fleet_of(*workers: str, partitions: int = 6) -> LoadMeter:
    fleet = ControlFleet()
    for id in workers:
        fleet.worker(id)
    fleet.topic("t", partitions)
    fleet.settle()
    meter = LoadMeter(fleet, {})
    meter.run(5)
    return meter


def listed(meter: LoadMeter) -> list[PartitionWithoutProgress]:
    seen = meter.fleet.snapshot()
    return partitions_without_progress(seen, external_view(seen))


def owners_of_poison(meter: LoadMeter, *, minutes: int) -> list[str]:
    """Its owners one after the other."""
    found = [meter.fleet.entry("t").worker or "nobody"]
    for _ in range(minutes):
        meter.run(1)
        owner = meter.fleet.entry("t").worker or "nobody"
        if owner != found[-1]:
            found.append(owner)
    return found


def test_stuck_partition_is_listed_after_ten_minutes_and_moved_after_twenty() -> None:
    meter = fleet_of("a", "b", "c")
    meter.stuck.add(POISON)
    assert meter.run(REPORT_AFTER_S / 60 - 1) == 0
    assert listed(meter) == []
    meter.run(1)
    (stuck,) = listed(meter)
    assert (stuck.partition, stuck.ideal, stuck.actual, stuck.moves) == (POISON, "a", ("a",), 0)
    assert stuck.since_ms == round((meter.fleet.now_s - REPORT_AFTER_S) * 1_000)
    assert stuck.reason == "records are available, but the position does not advance"
    assert meter.run((MOVE_AFTER_S - REPORT_AFTER_S) / 60 - 1) == 0
    assert meter.run(2) >= 1
    entry = meter.fleet.entry("t")
    assert (entry.reason, entry.stuck_moves) == ("no progress on a", 1)
    assert entry.worker != "a"


def test_moved_three_times_twenty_minutes_apart_then_left_and_listed_all_the_time() -> None:
    meter = fleet_of("a", "b", "c", "d")
    meter.stuck.add(POISON)
    meter.run(REPORT_AFTER_S / 60)
    moved_at = []
    for minute in range(150):
        if meter.run(1):
            moved_at.append(minute)
        assert [stuck.partition for stuck in listed(meter)] == [POISON]
    assert len(moved_at) == 3
    assert min(b - a for a, b in pairwise(moved_at)) >= 20
    (stuck,) = listed(meter)
    assert stuck.moves == meter.fleet.entry("t").stuck_moves == 3
    assert partitions_to_move(meter.fleet.snapshot()) == {}


def test_progress_forgets_the_moves_and_the_next_time_counts_from_zero() -> None:
    meter = fleet_of("a", "b", "c")
    meter.stuck.add(POISON)
    assert len(owners_of_poison(meter, minutes=45)) == 3
    assert meter.fleet.entry("t").stuck_moves == 2
    meter.stuck.clear()
    epoch = meter.fleet.entry("t").owner_epoch
    meter.run(2)
    assert meter.fleet.entry("t").stuck_moves == 0
    assert meter.fleet.entry("t").owner_epoch == epoch, "it stays where it is"
    assert listed(meter) == []
    meter.stuck.add(POISON)
    assert len(owners_of_poison(meter, minutes=120)) == 4


def test_a_new_leader_goes_on_counting() -> None:
    meter = fleet_of("a", "b", "c")
    meter.stuck.add(POISON)
    moves = 0
    for _ in range(60):
        moves += meter.run(1) > 0
        meter.fleet.elect()
    assert moves == 0, "each new leader waits for its first look"
    for _ in range(100):
        before = meter.fleet.entry("t").worker
        meter.run(2)
        moves += meter.fleet.entry("t").worker != before
        meter.fleet.elect()
    assert moves == meter.fleet.entry("t").stuck_moves == 3


def test_a_move_that_the_leader_dies_in_is_counted_once() -> None:
    for step in range(6):
        meter = fleet_of("a", "b", "c")
        meter.stuck.add(POISON)
        meter.run(MOVE_AFTER_S / 60 - 0.5)
        meter.fleet.wait(60)
        meter.write()
        meter.fleet.cycle(die_after=step)
        meter.run(3)
        assert meter.fleet.entry("t").stuck_moves == 1


def test_what_is_stuck_everywhere_is_nobodys_fault_and_stays() -> None:
    meter = fleet_of("a", "b")
    meter.stuck = {partition("t", number) for number in range(6)}
    assert meter.run(120) == 0
    assert len(listed(meter)) == 6


def test_in_an_outage_whoever_is_started_again_is_not_given_everything() -> None:
    """It counts anew for how long nothing moves, and is no better for that."""
    meter = fleet_of("a", "b", "c")
    meter.stuck = {partition("t", number) for number in range(6)}
    meter.run(MOVE_AFTER_S / 60 - 5)
    meter.fleet.kill(meter.fleet.process("a"))
    meter.fleet.worker("a")
    assert meter.run(30) == 0
    assert meter.fleet.counts() == {"a": 2, "b": 2, "c": 2}


def test_a_part_of_the_source_that_is_away_moves_nothing_to_who_was_started_again() -> None:
    meter = fleet_of("a", "b", "c")
    meter.stuck = {first_of(meter, worker) for worker in ("a", "b", "c")}
    meter.run(MOVE_AFTER_S / 60 - 5)
    meter.fleet.kill(meter.fleet.process("a"))
    meter.fleet.worker("a")
    assert meter.run(30) == 0


def test_in_an_outage_a_worker_without_anything_to_copy_is_not_given_everything() -> None:
    meter = fleet_of("a", "b", "c")
    idle = {number for number, owner in meter.fleet.owners("t").items() if owner == "c"}
    meter.idle = {partition("t", number) for number in idle}
    meter.stuck = {partition("t", number) for number in set(range(6)) - idle}
    assert meter.run(60) == 0
    meter.idle.clear()  # something is copied: now it is rather the workers
    assert meter.run(2) == 4


def first_of(meter: LoadMeter, worker: str) -> Partition:
    owners = meter.fleet.owners("t")
    return partition("t", min(number for number, owner in owners.items() if owner == worker))


def test_a_broken_worker_loses_all_to_the_others() -> None:
    meter = fleet_of("a", "b", "c")
    meter.broken.add(meter.fleet.process("a").id)
    meter.run(REPORT_AFTER_S / 60)
    assert {stuck.ideal for stuck in listed(meter)} == {"a"}
    meter.run((MOVE_AFTER_S - REPORT_AFTER_S) / 60 + 1)
    reasons = [meter.fleet.entry("t", number).reason for number in range(6)]
    assert reasons.count("no progress on a") == 2


def test_a_poisoned_partition_makes_its_last_worker_no_bad_one() -> None:
    meter = fleet_of("a", "b")
    meter.stuck.add(POISON)
    meter.run(120)
    keeps = meter.fleet.entry("t").worker
    other = next(number for number, owner in meter.fleet.owners("t").items() if owner != keeps)
    meter.stuck.add(partition("t", other))
    meter.run(25)
    assert meter.fleet.entry("t", other).worker == keeps
    assert meter.fleet.entry("t", other).stuck_moves == 1


@pytest.mark.parametrize("switches", [Switches(frozen=True), Switches(auto_balancing=False)])
def test_switched_off_it_is_listed_and_stays(switches: Switches) -> None:
    meter = fleet_of("a", "b")
    meter.stuck.add(POISON)
    meter.fleet.switch(switches)
    assert meter.run(120) == 0
    assert [stuck.partition for stuck in listed(meter)] == [POISON]
    meter.fleet.ask_rebalance("now")
    meter.fleet.settle()
    assert meter.fleet.entry("t").stuck_moves == 1


def test_a_move_for_another_reason_keeps_the_count() -> None:
    meter = fleet_of("a", "b", "c")
    meter.stuck.add(POISON)
    meter.run(MOVE_AFTER_S / 60 + 2)
    owner = meter.fleet.entry("t").worker
    assert owner is not None
    meter.fleet.kill(meter.fleet.process(owner))
    meter.run(3)
    entry = meter.fleet.entry("t")
    assert (entry.reason, entry.stuck_moves) == (f"worker {owner} lost", 1)


def test_alone_it_stays() -> None:
    meter = fleet_of("a")
    meter.stuck.add(POISON)
    assert meter.run(60) == 0
    assert [stuck.partition for stuck in listed(meter)] == [POISON]


def test_what_nobody_wants_is_not_listed() -> None:
    meter = fleet_of("a", "b")
    meter.stuck.add(POISON)
    meter.run(15)
    meter.fleet.topic("t", 6, blacklisted=frozenset({0}))
    assert listed(meter) == []


def test_a_blamed_worker_is_given_nothing_until_it_is_started_again() -> None:
    """Even counts would else fill it with what gets stuck there next."""
    meter = fleet_of("a", "b", "c")
    meter.broken.add(meter.fleet.process("a").id)
    meter.run(MOVE_AFTER_S / 60 + 5)
    assert meter.fleet.counts() == {"b": 3, "c": 3}
    assert meter.run(120) == 0
    meter.fleet.kill(meter.fleet.process("b"))
    meter.run(5)
    assert meter.fleet.counts() == {"c": 6}
    meter.broken.clear()
    meter.fleet.kill(meter.fleet.process("a"))
    meter.fleet.worker("a")
    meter.run(5)
    assert meter.fleet.counts() == {"a": 3, "c": 3}


def test_a_blamed_worker_is_better_than_none_and_a_rebalance_forgives_it() -> None:
    meter = fleet_of("a", "b")
    meter.broken.add(meter.fleet.process("a").id)
    meter.run(MOVE_AFTER_S / 60 + 5)
    assert meter.fleet.counts() == {"b": 6}
    meter.broken.clear()
    meter.fleet.kill(meter.fleet.process("b"))
    meter.run(5)
    assert meter.fleet.counts() == {"a": 6}
    meter.fleet.worker("b")
    meter.run(5)
    assert meter.fleet.counts() == {"a": 6}, "while there is another one"
    meter.fleet.ask_rebalance("now")
    meter.run(5)
    assert meter.fleet.counts() == {"a": 3, "b": 3}
    assert suspect_workers(meter.fleet.snapshot()) == set(), (
        "also for what that very rebalance moved"
    )
