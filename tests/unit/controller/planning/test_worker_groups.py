"""Workers for routes: tags, minimum and maximum, shares by slots, zones; over the real plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from ureplicator_common.model import Route, TopicKey, WorkerSelection
from ureplicator_common.znode_contents import PartitionLoad
from ureplicator_controller.core.balance.pools import shortages
from ureplicator_controller.core.planning.owner_changes import owner_changes
from ureplicator_controller.core.planning.plan import plan
from ureplicator_controller.core.reporting.move_causes import MoveCause, move_causes
from ureplicator_testkit.control.fleet import ROUTE, ControlFleet

OTHER = Route("source", "other")
BULK = WorkerSelection(tags=("bulk",))


@pytest.fixture
def fleet() -> ControlFleet:
    """Two workers for everything, and two with the tag."""
    fleet = ControlFleet()
    for id in ("a", "b"):
        fleet.worker(id)
    for id in ("x", "y"):
        fleet.worker(id, tags=("bulk", "ssd"))
    return fleet


def settle(fleet: ControlFleet) -> None:
    fleet.settle()
    fleet.wait(60)
    fleet.settle()


def counts(fleet: ControlFleet, route: Route) -> dict[str, int]:
    """Partitions of a route by worker."""
    found: Counter[str] = Counter()
    for key, stored in fleet.snapshot().ideal.items():
        if key.route == route:
            found.update(str(entry.worker) for entry in stored.value.entries.values())
    return dict(found)


def moved_by(fleet: ControlFleet) -> list[MoveCause]:
    seen = fleet.observe()
    return list(move_causes(seen, plan(seen, fleet.now_s).steps))


def test_route_with_tags_runs_only_on_workers_that_have_them(fleet: ControlFleet) -> None:
    fleet.select_workers(BULK, OTHER)
    fleet.topic("t", 8)
    fleet.topic("u", 8, route=OTHER)
    settle(fleet)
    assert counts(fleet, OTHER) == {"x": 4, "y": 4}
    assert fleet.counts() == {"a": 4, "b": 4, "x": 4, "y": 4}, "the rest evens out the total"


def test_narrow_routes_do_not_move_each_other(fleet: ControlFleet) -> None:
    fleet.select_workers(BULK, OTHER)
    fleet.topic("u", 20, route=OTHER)
    fleet.topic("t", 4)
    settle(fleet)
    assert fleet.counts() == {"a": 2, "b": 2, "x": 10, "y": 10}
    assert fleet.cycle().steps == ()


def test_partition_leaves_a_worker_that_lost_the_tag(fleet: ControlFleet) -> None:
    fleet.topic("t", 8)
    settle(fleet)
    fleet.select_workers(BULK)
    assert set(moved_by(fleet)) == {MoveCause.NOT_FOR_ROUTE}
    fleet.settle()
    assert counts(fleet, ROUTE) == {"x": 4, "y": 4}
    assert fleet.entry("t").reason in (f"worker a is not for route {ROUTE}", "new topic")


def test_without_any_worker_with_the_tags_copying_goes_on(fleet: ControlFleet) -> None:
    fleet.topic("t", 8)
    settle(fleet)
    before = fleet.owners("t")
    fleet.select_workers(WorkerSelection(tags=("nowhere",)))
    settle(fleet)
    assert fleet.owners("t") == before
    fleet.topic("new", 1)
    settle(fleet)
    assert fleet.entry("new").worker is None
    assert fleet.entry("new").reason == "new topic; no eligible worker has tags nowhere"
    assert shortages(fleet.snapshot()) == [
        f"route {ROUTE} has 0 of at least 1 workers with the tags nowhere"
    ]
    fleet.worker("z", tags=("nowhere",))
    settle(fleet)
    assert fleet.counts() == {"z": 9}
    assert shortages(fleet.snapshot()) == []


def test_lost_worker_of_a_group_is_kept_while_the_group_has_no_other(fleet: ControlFleet) -> None:
    fleet.select_workers(BULK)
    fleet.kill(fleet.process("y"))
    settle(fleet)
    fleet.topic("t", 4)
    settle(fleet)
    assert counts(fleet, ROUTE) == {"x": 4}
    fleet.kill(fleet.process("x"))
    fleet.settle()
    fleet.wait(fleet.delays.rebalance_s + 1)
    settle(fleet)
    assert counts(fleet, ROUTE) == {"x": 4}
    fleet.worker("x", tags=("bulk",))
    settle(fleet)
    assert counts(fleet, ROUTE) == {"x": 4}


def test_worker_that_is_back_within_the_delay_moves_nothing(fleet: ControlFleet) -> None:
    fleet.select_workers(BULK, OTHER)
    fleet.topic("u", 8, route=OTHER)
    fleet.topic("t", 8)
    settle(fleet)
    before = fleet.snapshot().ideal
    fleet.kill(fleet.process("x"))
    fleet.settle()
    fleet.wait(fleet.delays.rebalance_s / 2)
    fleet.settle()
    fleet.worker("x", tags=("bulk", "ssd"))
    settle(fleet)
    assert fleet.snapshot().ideal == before


def test_route_with_a_maximum_stays_with_as_many_workers(fleet: ControlFleet) -> None:
    fleet.select_workers(WorkerSelection(max=2), OTHER)
    fleet.topic("u", 8, route=OTHER)
    fleet.topic("t", 8)
    settle(fleet)
    owners = counts(fleet, OTHER)
    assert sorted(owners.values()) == [4, 4]
    assert set(fleet.counts().values()) == {4}
    fleet.worker("newcomer")
    settle(fleet)
    assert counts(fleet, OTHER) == owners, "who has the route keeps it"
    lost = min(owners)
    fleet.kill(fleet.process(lost))
    fleet.settle()
    fleet.wait(fleet.delays.rebalance_s + 1)
    settle(fleet)
    assert sorted(counts(fleet, OTHER).values()) == [4, 4]
    assert lost not in counts(fleet, OTHER)


def test_route_with_a_minimum_is_even_by_itself(fleet: ControlFleet) -> None:
    fleet.topic("t", 3)
    settle(fleet)
    fleet.select_workers(WorkerSelection(min=4), OTHER)
    fleet.topic("u", 8, route=OTHER)
    settle(fleet)
    assert counts(fleet, OTHER) == {"a": 2, "b": 2, "x": 2, "y": 2}
    fleet.kill(fleet.process("a"))
    fleet.settle()
    assert shortages(fleet.snapshot()) == [f"route {OTHER} has 3 of at least 4 workers"]


def test_share_is_in_proportion_to_slots() -> None:
    fleet = ControlFleet()
    fleet.worker("small", slots=2)
    fleet.worker("large", slots=16)
    fleet.topic("t", 90)
    settle(fleet)
    assert fleet.counts() == {"small": 10, "large": 80}


def test_share_of_an_absent_worker_is_that_of_its_last_slots() -> None:
    """Its share is not that of the most slots that it ever had, with which fencing counts: a newcomer would
    get too little."""
    fleet = ControlFleet()
    fleet.worker("a", slots=16)
    fleet.worker("b", slots=2)
    fleet.topic("t", 36)
    settle(fleet)
    fleet.kill(fleet.process("a"))
    fleet.settle()
    fleet.worker("a", slots=2)
    settle(fleet)
    assert fleet.counts() == {"a": 18, "b": 18}
    fleet.kill(fleet.process("a"))
    fleet.worker("c", slots=2)
    fleet.settle()
    fleet.wait(fleet.delays.join_s)
    fleet.settle()
    assert fleet.counts() == {"a": 18, "b": 12, "c": 6}, "its share waits for its return"
    fleet.worker("a", slots=2)
    settle(fleet)
    assert fleet.counts() == {"a": 12, "b": 12, "c": 12}


def test_partitions_of_a_topic_are_spread_over_zones() -> None:
    fleet = ControlFleet()
    for id, zone in (("a", "1"), ("b", "1"), ("c", "1"), ("d", "2"), ("e", "3"), ("f", "3")):
        fleet.worker(id, zone=zone)
    for number in range(4):
        fleet.topic(f"t{number}", 3)
    settle(fleet)
    zones = {"a": "1", "b": "1", "c": "1", "d": "2", "e": "3", "f": "3"}
    first = fleet.snapshot().ideal[TopicKey(ROUTE, "t0")].value.entries.values()
    assert {zones[str(entry.worker)] for entry in first} == {"1", "2", "3"}
    assert set(fleet.counts().values()) == {2}


def test_a_route_without_workers_does_not_stop_balancing_for_the_others() -> None:
    """Its partitions wait for as long as it takes; the loads of the other routes are evened out meanwhile."""
    fleet = ControlFleet()
    for id in ("a", "b"):
        fleet.worker(id)
    fleet.topic("t", 4)
    fleet.select_workers(WorkerSelection(tags=("nowhere",)), OTHER)
    fleet.topic("u", 1, route=OTHER)
    settle(fleet)
    seen = fleet.observe()
    owned = {worker: list(stored.value.entries) for worker, stored in seen.assignments.items()}
    heavy = {
        worker: {
            partition: PartitionLoad(
                steady_bytes_per_s=(50e6 if worker == "a" else 1e6), measured_s=300, held_s=300
            )
            for partition in partitions
        }
        for worker, partitions in owned.items()
    }
    loaded = replace(seen, loads=heavy, load_review_at_s=fleet.now_s)
    reasons = {change.reason for change in owner_changes(loaded, plan(loaded, fleet.now_s).steps)}
    assert any(reason.startswith("load: a had") for reason in reasons)
