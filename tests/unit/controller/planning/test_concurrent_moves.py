"""Partitions that live workers are releasing at a time: at most as many of a route as the limit says."""

from __future__ import annotations

import random

import pytest

from ureplicator_common.model import Partition, Route, WorkerSelection
from ureplicator_controller.core.planning.plan import plan
from ureplicator_controller.core.state.external_view import external_view
from ureplicator_controller.core.state.mismatches import mismatches
from ureplicator_controller.core.state.snapshot import BalanceLimits
from ureplicator_testkit.control.fleet import ROUTE, ControlFleet, settled_fleet, shake

LIMIT = 4
OTHER = Route("source", "other")


@pytest.fixture
def fleet() -> ControlFleet:
    """Workers a and b with 20 partitions each."""
    fleet = ControlFleet()
    fleet.limits = BalanceLimits(concurrent_moves=LIMIT)
    fleet.worker("a")
    fleet.worker("b")
    fleet.topic("t", 40)
    fleet.settle()
    fleet.wait(60)
    fleet.settle()
    assert fleet.counts() == {"a": 20, "b": 20}
    return fleet


def not_assigned(fleet: ControlFleet, route: Route = ROUTE) -> set[Partition]:
    """Partitions of a route that have an owner and are in no assignment."""
    seen = fleet.snapshot()
    assigned = {
        partition for stored in seen.assignments.values() for partition in stored.value.entries
    }
    owned = {
        Partition(key.route, key.topic, number)
        for key, stored in seen.ideal.items()
        for number, entry in stored.value.entries.items()
        if key.route == route and entry.worker
    }
    return owned - assigned


def run(fleet: ControlFleet) -> list[int]:
    """Settle; return how many partitions were between two workers after each cycle."""
    seen: list[int] = []
    while True:
        before = fleet.store.subtree(fleet.paths.root)
        fleet.cycle()
        seen.append(len(not_assigned(fleet)))
        for process in fleet.running():
            process.catch_up()
        if fleet.store.subtree(fleet.paths.root) == before:
            return seen


def test_drained_worker_gives_its_partitions_up_in_portions(fleet: ControlFleet) -> None:
    fleet.tag("a", draining=True)
    assert max(run(fleet)) == LIMIT
    assert fleet.counts() == {"b": 40}, "decided at once, and carried out"
    assert len(fleet.process("b").copies) == 40


def test_rebalance_to_a_new_worker_keeps_the_limit(fleet: ControlFleet) -> None:
    fleet.worker("c")
    fleet.request_rebalance("r1")
    assert max(run(fleet)) == LIMIT
    assert sorted(fleet.counts().values()) == [13, 13, 14]


def test_next_portion_begins_once_half_of_the_room_is_free(fleet: ControlFleet) -> None:
    fleet.tag("a", draining=True)
    fleet.cycle()
    first = not_assigned(fleet)
    fleet.process("a").hung = True
    fleet.cycle()
    assert not_assigned(fleet) == first, "nothing is released yet"
    _release(fleet, 1)
    assert not_assigned(fleet) == first - {min(first)}, "assigned to b; a quarter is free"
    _release(fleet, 1)
    assert len(not_assigned(fleet)) == LIMIT


def _release(fleet: ControlFleet, number: int) -> None:
    """Worker a releases some of what it was requested to, and confirms its assignment."""
    process = fleet.process("a")
    process.hung = False
    process.read()
    for partition in sorted(process.removed)[:number]:
        process.release(partition)
    process.publish()
    fleet.cycle()


def test_partition_that_is_not_copied_does_not_wait_for_its_turn(fleet: ControlFleet) -> None:
    process = fleet.process("a")
    failed = sorted(process.copies)[-2:]
    for partition in failed:
        process.drop(partition, "target unavailable")
    process.publish()
    fleet.tag("a", draining=True)
    fleet.cycle()
    assert len(not_assigned(fleet)) == LIMIT + len(failed)
    assert not_assigned(fleet) >= set(failed)


def test_partitions_of_a_lost_worker_move_at_once(fleet: ControlFleet) -> None:
    fleet.kill(fleet.process("a"))
    fleet.cycle()
    fleet.wait(fleet.delays.rebalance_s)
    fleet.settle(rounds=3)
    assert len(fleet.process("b").copies) == 40


def test_partition_that_waits_for_its_turn_is_copied_and_says_so(fleet: ControlFleet) -> None:
    fleet.tag("a", draining=True)
    fleet.cycle()
    copied = fleet.process("a").copies
    seen = fleet.snapshot()
    reasons = [mismatch.reason for mismatch in mismatches(seen, external_view(seen))]
    assert len(copied) == 20, "released by none yet"
    assert reasons.count("waiting for its turn to move: a copies it until then") == 20 - LIMIT
    assert reasons.count("waiting for a to release it") == LIMIT


def test_only_releases_that_were_requested_are_waited_for(fleet: ControlFleet) -> None:
    fleet.tag("a", draining=True)
    fleet.cycle()
    seen = fleet.observe()
    pending = plan(seen, fleet.now_s).pending_releases
    assert {partition for partition, _, _ in pending} == not_assigned(fleet)


def test_worker_that_releases_nothing_is_evicted_and_the_rest_moves(fleet: ControlFleet) -> None:
    fleet.hang(fleet.process("a"))
    fleet.tag("a", draining=True)
    fleet.settle()
    fleet.wait(fleet.delays.handover_s)
    fleet.settle()
    fleet.wait(fleet.delays.rebalance_s)
    fleet.settle()
    assert len(fleet.process("b").copies) == 40


def test_worker_copies_on_while_the_new_owner_is_gone(fleet: ControlFleet) -> None:
    fleet.worker("c")
    fleet.tag("a", draining=True)
    fleet.wait(60)
    fleet.cycle()
    waiting = {partition for partition, stay in _copied_by_a(fleet).items() if stay}
    fleet.kill(fleet.process("c"))
    fleet.kill(fleet.process("b"))
    fleet.settle()
    assert waiting <= fleet.process("a").copies.keys()


def _copied_by_a(fleet: ControlFleet) -> dict[Partition, bool]:
    """Partitions that a copies, each with True while it is still assigned to a."""
    entries = fleet.snapshot().assignments[fleet.process("a").id].value.entries
    return {partition: partition in entries for partition in fleet.process("a").copies}


def test_route_whose_releases_take_long_does_not_slow_another_one() -> None:
    fleet = ControlFleet()
    fleet.limits = BalanceLimits(concurrent_moves=LIMIT)
    for id, tag in (("a", "slow"), ("b", "quick"), ("c", "slow"), ("d", "quick")):
        fleet.worker(id, tags=(tag,))
    fleet.select_workers(WorkerSelection(tags=("quick",)))
    fleet.select_workers(WorkerSelection(tags=("slow",)), OTHER)
    fleet.topic("t", 40)
    fleet.topic("u", 40, route=OTHER)
    fleet.settle()
    fleet.wait(60)
    fleet.settle()
    fleet.hang(fleet.process("a"))
    for id in ("a", "b"):
        fleet.tag(id, draining=True)
    fleet.settle()
    assert len(not_assigned(fleet, OTHER)) == LIMIT
    assert len(fleet.process("d").copies) == 40


@pytest.mark.parametrize("seed", range(20))
def test_shaken_fleet_settles_with_room_for_one(seed: int) -> None:
    fleet = settled_fleet()
    chance = random.Random(seed)  # noqa: S311  # to be replayed, not to be secret
    fleet.limits = BalanceLimits(concurrent_moves=1)
    for _ in range(40):
        shake(fleet, chance)
    fleet.switch(fleet.switches())
    fleet.wait(200)
    fleet.settle()
    fleet.wait(200)
    fleet.settle()
    assert not not_assigned(fleet) or not list(fleet.running())
