"""Partitions without progress: listed, moved at most three times, suspect workers."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from ureplicator_common.coordination import Node, Stat
from ureplicator_common.model import Partition, SessionId
from ureplicator_common.znode_contents import Switches
from ureplicator_controller.core.planning.no_progress import (
    MOVE_AFTER_S,
    REPORT_AFTER_S,
    PartitionWithoutProgress,
    partitions_to_move,
    partitions_without_progress,
    suspect_workers,
    suspicions,
)
from ureplicator_controller.core.state.decoding import Stored
from ureplicator_controller.core.state.external_view import external_view, ideal_entries
from ureplicator_controller.core.state.loads import DecodedLoads
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
    """Successive owners of the partition that makes no progress."""
    found = [meter.fleet.entry("t").worker or "none"]
    for _ in range(minutes):
        meter.run(1)
        owner = meter.fleet.entry("t").worker or "none"
        if owner != found[-1]:
            found.append(owner)
    return found


def test_partition_without_progress_is_listed_after_ten_minutes_and_moved_after_twenty() -> None:
    meter = fleet_of("a", "b", "c")
    meter.without_progress.add(POISON)
    assert meter.run(REPORT_AFTER_S / 60 - 1) == 0
    assert listed(meter) == []
    meter.run(1)
    (found,) = listed(meter)
    assert (found.partition, found.ideal, found.actual, found.moves) == (POISON, "a", ("a",), 0)
    assert found.since_ms == round((meter.fleet.now_s - REPORT_AFTER_S) * 1_000)
    assert found.reason == "records are available, but the position does not advance"
    assert meter.run((MOVE_AFTER_S - REPORT_AFTER_S) / 60 - 1) == 0
    assert meter.run(2) >= 1
    entry = meter.fleet.entry("t")
    assert (entry.reason, entry.no_progress_moves) == ("no progress on a", 1)
    assert entry.worker != "a"


def test_partition_moves_three_times_twenty_minutes_apart_and_stays_listed() -> None:
    meter = fleet_of("a", "b", "c", "d")
    meter.without_progress.add(POISON)
    meter.run(REPORT_AFTER_S / 60)
    moved_at = []
    for minute in range(150):
        if meter.run(1):
            moved_at.append(minute)
        assert [found.partition for found in listed(meter)] == [POISON]
    assert len(moved_at) == 3
    assert min(b - a for a, b in pairwise(moved_at)) >= 20
    (found,) = listed(meter)
    assert found.moves == meter.fleet.entry("t").no_progress_moves == 3
    assert partitions_to_move(meter.fleet.snapshot()) == {}


def test_progress_resets_the_move_count() -> None:
    meter = fleet_of("a", "b", "c")
    meter.without_progress.add(POISON)
    assert len(owners_of_poison(meter, minutes=45)) == 3
    assert meter.fleet.entry("t").no_progress_moves == 2
    meter.without_progress.clear()
    epoch = meter.fleet.entry("t").owner_epoch
    meter.run(2)
    assert meter.fleet.entry("t").no_progress_moves == 0
    assert meter.fleet.entry("t").owner_epoch == epoch, "it stays where it is"
    assert listed(meter) == []
    meter.without_progress.add(POISON)
    assert len(owners_of_poison(meter, minutes=120)) == 4


def test_new_leader_continues_the_move_count() -> None:
    meter = fleet_of("a", "b", "c")
    meter.without_progress.add(POISON)
    moves = 0
    for _ in range(60):
        moves += meter.run(1) > 0
        meter.fleet.elect()
    assert moves == 0, "each new leader waits for its first load review"
    for _ in range(100):
        before = meter.fleet.entry("t").worker
        meter.run(2)
        moves += meter.fleet.entry("t").worker != before
        meter.fleet.elect()
    assert moves == meter.fleet.entry("t").no_progress_moves == 3


def test_move_interrupted_by_the_leaders_death_is_counted_once() -> None:
    for step in range(6):
        meter = fleet_of("a", "b", "c")
        meter.without_progress.add(POISON)
        meter.run(MOVE_AFTER_S / 60 - 0.5)
        meter.fleet.wait(60)
        meter.write()
        meter.fleet.cycle(die_after=step)
        meter.run(3)
        assert meter.fleet.entry("t").no_progress_moves == 1


def test_partitions_without_progress_on_all_workers_are_not_moved() -> None:
    meter = fleet_of("a", "b")
    meter.without_progress = {partition("t", number) for number in range(6)}
    assert meter.run(120) == 0
    assert len(listed(meter)) == 6


def test_worker_restarted_during_an_outage_does_not_get_all_partitions() -> None:
    """Its no-progress time restarts at zero, although it copies no better than the others."""
    meter = fleet_of("a", "b", "c")
    meter.without_progress = {partition("t", number) for number in range(6)}
    meter.run(MOVE_AFTER_S / 60 - 5)
    meter.fleet.kill(meter.fleet.process("a"))
    meter.fleet.worker("a")
    assert meter.run(30) == 0
    assert meter.fleet.counts() == {"a": 2, "b": 2, "c": 2}


def test_partial_source_outage_moves_nothing_to_a_restarted_worker() -> None:
    meter = fleet_of("a", "b", "c")
    meter.without_progress = {first_of(meter, worker) for worker in ("a", "b", "c")}
    meter.run(MOVE_AFTER_S / 60 - 5)
    meter.fleet.kill(meter.fleet.process("a"))
    meter.fleet.worker("a")
    assert meter.run(30) == 0


def test_idle_worker_does_not_get_all_partitions_during_an_outage() -> None:
    meter = fleet_of("a", "b", "c")
    idle = {number for number, owner in meter.fleet.owners("t").items() if owner == "c"}
    meter.idle = {partition("t", number) for number in idle}
    meter.without_progress = {partition("t", number) for number in set(range(6)) - idle}
    assert meter.run(60) == 0
    meter.idle.clear()  # other partitions are copied, so the workers are the cause
    assert meter.run(2) == 4


def first_of(meter: LoadMeter, worker: str) -> Partition:
    owners = meter.fleet.owners("t")
    return partition("t", min(number for number, owner in owners.items() if owner == worker))


def test_worker_without_any_progress_loses_all_partitions() -> None:
    meter = fleet_of("a", "b", "c")
    meter.broken.add(meter.fleet.process("a").id)
    meter.run(REPORT_AFTER_S / 60)
    assert {found.ideal for found in listed(meter)} == {"a"}
    meter.run((MOVE_AFTER_S - REPORT_AFTER_S) / 60 + 1)
    reasons = [meter.fleet.entry("t", number).reason for number in range(6)]
    assert reasons.count("no progress on a") == 2


def test_partition_that_fails_everywhere_does_not_make_its_worker_suspect() -> None:
    meter = fleet_of("a", "b")
    meter.without_progress.add(POISON)
    meter.run(120)
    keeps = meter.fleet.entry("t").worker
    other = next(number for number, owner in meter.fleet.owners("t").items() if owner != keeps)
    meter.without_progress.add(partition("t", other))
    meter.run(25)
    assert meter.fleet.entry("t", other).worker == keeps
    assert meter.fleet.entry("t", other).no_progress_moves == 1


@pytest.mark.parametrize("switches", [Switches(frozen=True), Switches(auto_balancing=False)])
def test_partition_is_listed_but_not_moved_while_moves_are_switched_off(switches: Switches) -> None:
    meter = fleet_of("a", "b")
    meter.without_progress.add(POISON)
    meter.fleet.switch(switches)
    assert meter.run(120) == 0
    assert [found.partition for found in listed(meter)] == [POISON]
    meter.fleet.request_rebalance("now")
    meter.fleet.settle()
    assert meter.fleet.entry("t").no_progress_moves == 1


def test_move_for_another_reason_keeps_the_move_count() -> None:
    meter = fleet_of("a", "b", "c")
    meter.without_progress.add(POISON)
    meter.run(MOVE_AFTER_S / 60 + 2)
    owner = meter.fleet.entry("t").worker
    assert owner is not None
    meter.fleet.kill(meter.fleet.process(owner))
    meter.run(3)
    entry = meter.fleet.entry("t")
    assert (entry.reason, entry.no_progress_moves) == (f"worker {owner} lost", 1)


def test_the_list_is_made_of_loads_that_were_decoded_for_others() -> None:
    meter = fleet_of("a")
    meter.without_progress.add(POISON)
    meter.run(REPORT_AFTER_S / 60)
    seen = meter.fleet.snapshot()
    known = {worker: Stored(loads, 1, 1, SessionId(7)) for worker, loads in seen.loads.items()}
    node = Node(b"not decoded", Stat(2, 1, 1, SessionId(7)))
    later = DecodedLoads(dict.fromkeys(known, node), lambda *_: pytest.fail("decoded"), known.get)
    found = partitions_without_progress(replace(seen, loads=later), external_view(seen))
    assert found == listed(meter) != []


def test_partition_is_not_moved_from_the_only_worker() -> None:
    meter = fleet_of("a")
    meter.without_progress.add(POISON)
    assert meter.run(60) == 0
    assert [found.partition for found in listed(meter)] == [POISON]


def test_excluded_partition_is_not_listed() -> None:
    meter = fleet_of("a", "b")
    meter.without_progress.add(POISON)
    meter.run(15)
    meter.fleet.topic("t", 6, blacklisted=frozenset({0}))
    assert listed(meter) == []


def test_suspect_worker_gets_no_partitions_until_it_restarts() -> None:
    """Otherwise even counts would refill it with partitions that make no progress there."""
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


def test_suspect_worker_is_used_without_alternative_and_cleared_by_a_rebalance() -> None:
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
    assert meter.fleet.counts() == {"a": 6}, "as long as there is another worker"
    meter.fleet.request_rebalance("now")
    meter.run(5)
    assert meter.fleet.counts() == {"a": 3, "b": 3}
    seen = meter.fleet.snapshot()
    assert suspect_workers(seen, ideal_entries(seen)) == set(), (
        "also for partitions moved by that rebalance"
    )


def test_suspect_worker_that_operators_drain_and_restore_gets_its_share() -> None:
    """Restoring it says that it is to take part; no cycle has to come in which it is empty."""
    meter = fleet_of("a", "b")
    fleet = meter.fleet
    meter.without_progress.add(POISON)
    meter.run(MOVE_AFTER_S / 60 + 5)
    assert fleet.entry("t").worker == "b"
    assert list(suspicions(fleet.snapshot())) == [
        "worker a gets no more partitions: 1 made no progress on it; restart it, or drain and"
        " restore it, or request a rebalance"
    ]
    fleet.tag("a", draining=True)
    fleet.settle()
    assert list(suspicions(fleet.snapshot())) == []
    fleet.wait(1)
    fleet.tag("a", draining=False)
    fleet.settle()
    assert fleet.counts() == {"a": 3, "b": 3}
    assert fleet.entry("t").worker == "b", "it has been moved away from there"
