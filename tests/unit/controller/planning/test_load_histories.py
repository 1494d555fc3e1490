"""Load balancing by measured rates: which workers are relieved, by how much and how often."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ureplicator_common.coordination import Set
from ureplicator_common.znode_contents import Switches
from ureplicator_common.znodes.codec import encode
from ureplicator_controller.core.state.loads import LOAD_REVIEW_INTERVAL_S, SETTLED_S
from ureplicator_controller.core.state.snapshot import BalanceLimits
from ureplicator_testkit.control.fleet import ControlFleet, partition, two_workers
from ureplicator_testkit.control.load_meter import MB, LoadMeter


def fleet_of(rates: Sequence[float], *, workers: str = "ab") -> LoadMeter:
    """One topic; its partitions have these rates (MB/s) and are spread over the workers in turn."""
    fleet = ControlFleet()
    for id in workers:
        fleet.worker(id)
    fleet.topic("t", len(rates))
    fleet.settle()
    meter = LoadMeter(fleet, {partition("t", at): rate * MB for at, rate in enumerate(rates)})
    meter.write()
    fleet.settle()
    return meter


def test_skewed_load_is_balanced_by_one_exchange_and_stays() -> None:
    meter = fleet_of([30, 5, 20, 5, 10, 5])
    assert meter.carried() == {"a": 60 * MB, "b": 15 * MB}
    assert meter.run(10) == 2
    assert meter.carried() == {"a": 35 * MB, "b": 40 * MB}
    assert meter.fleet.counts() == {"a": 3, "b": 3}
    assert meter.run(240) == 0


def test_reason_has_the_overloaded_worker_and_its_load() -> None:
    meter = fleet_of([30, 5, 20, 5, 10, 5])
    meter.run(10)
    reasons = {meter.fleet.entry("t", at).reason for at in range(6)}
    heavy = "load: a had 1.6 times the average"
    assert reasons == {"new topic", heavy, f"{heavy}; in exchange"}


@pytest.mark.parametrize(("heavy", "moves"), [(11.9, 0), (12.1, 2), (13, 2)])
def test_nothing_moves_up_to_the_ratio(heavy: float, moves: int) -> None:
    """The average is 10 for each of four partitions, 20 for each worker."""
    meter = fleet_of([heavy + 4, 20 - heavy - 4, heavy - 4, 20 - heavy + 4])
    assert meter.carried()["a"] == pytest.approx(2 * heavy * MB)
    assert meter.run(10) == moves
    assert meter.run(60) == 0


def test_negligible_differences_move_nothing() -> None:
    assert fleet_of([0.9, 0, 0.1, 0]).run(30) == 0


def test_dominant_partition_stays_and_others_move_away_from_its_worker() -> None:
    assert fleet_of([100, 1, 0, 1]).run(30) == 0, "it dominates any worker's load"
    meter = fleet_of([100, 1, 40, 1])
    assert meter.run(10) == 2
    assert meter.carried() == {"a": 101 * MB, "b": 41 * MB}
    assert meter.run(120) == 0


def test_partition_moves_without_exchange_from_a_worker_that_has_more() -> None:
    meter = fleet_of([10, 2, 8, 2, 6])
    assert meter.carried() == {"a": 24 * MB, "b": 4 * MB}
    assert meter.run(10) == 1
    assert meter.fleet.counts() == {"a": 2, "b": 3}
    assert meter.run(60) == 0


def test_unsettled_rates_move_nothing() -> None:
    meter = fleet_of([30, 5, 20, 5])
    assert meter.run((SETTLED_S - 30) / 60) == 0
    assert meter.run(5) == 2


def test_load_review_is_planned_once_a_minute() -> None:
    meter = fleet_of([10, 10])
    meter.run(10)
    began_s, reviews = meter.fleet.now_s, set()
    while meter.fleet.now_s < began_s + 300:
        meter.fleet.wait(1)
        wake_at_s = meter.fleet.cycle().wake_at_s
        assert wake_at_s is not None
        reviews.add(wake_at_s)
    assert len(reviews) == 300 / LOAD_REVIEW_INTERVAL_S + 1


def test_number_of_moves_at_once_is_limited() -> None:
    meter = fleet_of([1] * 24, workers="abcd")
    fleet = meter.fleet
    for at in range(24):
        hot = fleet.owners("t")[at] in ("a", "b")
        meter.rates[partition("t", at)] = (20 if hot else 1) * MB
    fleet.limits = BalanceLimits(moves=4)
    meter.run(3.5)
    moved = [meter.run(1) for _ in range(40)]
    assert max(moved) == 4
    assert sum(moved) > 4
    carried = meter.carried().values()
    assert max(carried) <= 1.2 * sum(carried) / 4
    assert sum(moved[20:]) == 0


def test_limit_of_zero_moves_disables_load_balancing() -> None:
    meter = fleet_of([30, 5, 20, 5])
    meter.fleet.limits = BalanceLimits(moves=0)
    assert meter.run(30) == 0


def test_unreported_load_does_not_count_as_zero() -> None:
    """Otherwise `b` would get partitions of `a`."""
    meter = fleet_of([30, 40, 20, 40, 10, 40])
    meter.silent.add(meter.fleet.process("b").id)
    fleet = meter.fleet
    fleet.store.apply(
        fleet.process("b").session,
        [Set(fleet.paths.measures.load(fleet.process("b").id), b"{}", -1)],
    )
    assert meter.run(30) == 0
    garbage = Set(fleet.paths.measures.load(fleet.process("a").id), b"\x78garbage", -1)
    fleet.store.apply(fleet.process("a").session, [garbage])
    fleet.wait(60)
    assert fleet.cycle().steps == ()


def test_loads_of_an_older_version_do_not_count_as_zero() -> None:
    meter = fleet_of([30, 5, 20, 5])
    meter.run(2)
    load = {"bytesPerS": 0.1, "recordsPerS": 0.1}
    old = encode({str(partition("t", at)): load for at in (1, 3)})
    fleet = meter.fleet
    meter.silent.add(fleet.process("b").id)
    fleet.store.apply(
        fleet.process("b").session, [Set(fleet.paths.measures.load(fleet.process("b").id), old, -1)]
    )
    assert meter.run(30) == 0


@pytest.mark.parametrize("switches", [Switches(frozen=True), Switches(auto_balancing=False)])
def test_switched_off_load_balancing_happens_on_request_only(switches: Switches) -> None:
    meter = fleet_of([30, 5, 20, 5])
    meter.fleet.switch(switches)
    assert meter.run(30) == 0
    meter.fleet.request_rebalance("now")
    meter.fleet.settle()
    assert meter.carried() == {"a": 35 * MB, "b": 25 * MB}
    assert meter.run(30) == 0


def test_requested_rebalance_ignores_limit_and_review_interval() -> None:
    meter = fleet_of([30, 5, 20, 5, 10, 5])
    meter.fleet.limits = BalanceLimits(moves=1)
    meter.run(30)
    meter.fleet.request_rebalance("now")
    meter.fleet.settle()
    assert meter.carried() == {"a": 35 * MB, "b": 40 * MB}


def test_skewed_loads_move_nothing_during_a_rebalance_delay() -> None:
    meter = fleet_of([10, 10, 10, 10, 10, 10], workers="abc")
    meter.run(10)
    fleet = meter.fleet
    meter.rates[partition("t", 0)] = 40 * MB
    fleet.kill(fleet.process("c"))
    fleet.settle()
    for _ in range(11):
        fleet.wait(10)
        meter.write()
        assert fleet.cycle().steps == ()
    fleet.worker("c")
    meter.rates[partition("t", 0)] = 10 * MB
    assert meter.run(60) == 0


def test_flapping_worker_with_loads_moves_nothing() -> None:
    meter = fleet_of([10, 10, 10, 10])
    meter.run(10)
    fleet = meter.fleet
    writes = fleet.writes
    for _ in range(20):
        fleet.kill(fleet.process("a"))
        fleet.settle()
        fleet.wait(60)
        fleet.worker("a")
        assert meter.run(1) == 0
    assert fleet.writes == writes


def test_joined_worker_gets_partitions_that_balance_the_load() -> None:
    meter = fleet_of([20, 2, 20, 2, 20, 2, 20, 2])
    meter.fleet.limits = BalanceLimits(moves=0)
    meter.run(5)
    assert meter.carried() == {"a": 80 * MB, "b": 8 * MB}
    meter.fleet.worker("c")
    meter.fleet.cycle()
    meter.fleet.wait(10)
    meter.fleet.settle()
    assert meter.fleet.counts() == {"a": 3, "b": 3, "c": 2}
    carried = meter.carried()
    assert carried["a"] == 60 * MB
    assert carried["c"] == 22 * MB


def test_new_partitions_go_to_the_least_loaded_of_the_workers_with_fewest() -> None:
    meter = fleet_of([20, 5, 9], workers="abc")
    meter.fleet.limits = BalanceLimits(moves=0)
    meter.run(5)
    meter.fleet.topic("u", 1)
    meter.fleet.settle()
    assert meter.fleet.owners("u") == {0: "b"}
    meter.fleet.topic("v", 1)
    meter.fleet.settle()
    assert meter.fleet.owners("v") == {0: "c"}


def test_partitions_of_a_drained_worker_are_placed_by_their_rates() -> None:
    meter = fleet_of([8, 8, 30, 8, 8, 2], workers="abc")
    meter.run(5)
    meter.fleet.tag("c", draining=True)
    meter.fleet.settle()
    assert meter.fleet.counts() == {"a": 3, "b": 3}
    assert sorted(meter.carried().values()) == [18 * MB, 46 * MB]


def test_new_leader_reviews_loads_after_a_minute() -> None:
    meter = fleet_of([10, 10, 10, 10])
    meter.run(10)
    meter.rates |= {partition("t", 0): 30 * MB, partition("t", 2): 30 * MB}
    meter.write()
    meter.fleet.elect()
    assert meter.fleet.cycle().steps == ()
    meter.fleet.wait(59)
    assert meter.fleet.cycle().steps == ()
    meter.fleet.wait(1)
    assert meter.fleet.cycle().steps != ()


def test_fleet_without_loads_plans_no_review() -> None:
    assert two_workers().cycle().wake_at_s is None, "no review without loads"
