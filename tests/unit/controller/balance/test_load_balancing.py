"""Load balancing: it terminates, keeps counts and limits, and never makes a worker worse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from ureplicator_common.model import Partition, Route, WorkerId
from ureplicator_controller.core.balance.load_balancing import (
    MIN_GAIN,
    BalancedFleet,
    balance_loads,
)
from ureplicator_controller.core.balance.quotas import Vessel, whole_shares
from ureplicator_controller.core.state.snapshot import BalanceLimits

MB = 1_000_000.0
ROUTE = Route("a", "b")
Fleet = dict[WorkerId, list[Partition]]


def level(
    fleet: Fleet, rate_of: Mapping[Partition, float], limits: BalanceLimits
) -> dict[Partition, WorkerId]:
    rates = {worker: {part: rate_of[part] for part in owned} for worker, owned in fleet.items()}
    counts = {worker: len(owned) for worker, owned in fleet.items()}
    moves = balance_loads(balanced_fleet(fleet, counts), rates, limits)
    return {partition: move.worker for partition, move in moves.items() if move.worker}


def balanced_fleet(
    fleet: Fleet, counts: Mapping[WorkerId, int], slots: Mapping[WorkerId, int] | None = None
) -> BalancedFleet:
    """All in one pool, with one slot each unless they are given."""
    slots = slots or dict.fromkeys(fleet, 1)
    vessels = {worker: Vessel(slots[worker]) for worker in fleet}
    shares = whole_shares(sum(counts.values()), vessels)
    return BalancedFleet(
        owned=fleet,
        counts=counts,
        spare={worker: counts[worker] - shares[worker] for worker in fleet},
        slots=slots,
        pool=lambda _: 0,
        pools=[frozenset(fleet)],
    )


def fleet_of(rates: Sequence[Sequence[float]]) -> tuple[Fleet, dict[Partition, float]]:
    """Workers with partitions of these rates in MB/s."""
    fleet: Fleet = {}
    rate_of: dict[Partition, float] = {}
    for at, of_worker in enumerate(rates):
        owned = [Partition(ROUTE, f"t{at}", number) for number in range(len(of_worker))]
        fleet[WorkerId(f"w{at}")] = owned
        rate_of |= {partition: of_worker[partition.number] * MB for partition in owned}
    return fleet, rate_of


def moved(fleet: Fleet, to: Mapping[Partition, WorkerId]) -> Fleet:
    after: Fleet = {worker: [] for worker in fleet}
    for worker, owned in fleet.items():
        for partition in owned:
            after[to.get(partition, worker)].append(partition)
    return after


def loads(fleet: Fleet, rate_of: Mapping[Partition, float]) -> list[float]:
    return [sum(rate_of[part] for part in owned) for owned in fleet.values()]


@st.composite
def uneven(draw: st.DrawFn) -> list[list[float]]:
    """Counts within one, rates of any kind: equal, zero, giants."""
    base = draw(st.integers(0, 6))
    rate = st.one_of(
        st.sampled_from([0.0, 1.0, 10.0, 500.0]),
        st.integers(0, 100_000).map(lambda thousandth: thousandth / 1_000),
    )
    counts = draw(st.lists(st.integers(base, base + 1), min_size=1, max_size=6))
    return [draw(st.lists(rate, min_size=count, max_size=count)) for count in counts]


@given(uneven(), st.integers(0, 6), st.sampled_from([1.05, 1.2, 2.0]))
def test_constant_loads_lead_to_rest_and_each_review_reduces_the_imbalance(
    rates: list[list[float]], budget: int, ratio: float
) -> None:
    fleet, rate_of = fleet_of(rates)
    counts = sorted(len(owned) for owned in fleet.values())
    gain = MIN_GAIN * sum(rate_of.values()) / max(1, len(rate_of))
    squares = sum(load**2 for load in loads(fleet, rate_of))
    for _ in range(int(squares / (2 * gain**2)) + 1 if gain else 1):
        to = level(fleet, rate_of, BalanceLimits(ratio, budget))
        if not to:
            break
        assert len(to) <= budget
        after = moved(fleet, to)
        assert max(loads(after, rate_of)) <= max(loads(fleet, rate_of))
        now = sum(load**2 for load in loads(after, rate_of))
        assert now <= squares - 2 * gain**2 * 0.999
        fleet, squares = after, now
    assert level(fleet, rate_of, BalanceLimits(ratio, budget)) == {}
    assert sorted(len(owned) for owned in fleet.values()) == counts


@given(uneven())
def test_worker_below_the_ratio_loses_nothing(rates: list[list[float]]) -> None:
    fleet, rate_of = fleet_of(rates)
    average = sum(rate_of.values()) / len(fleet)
    to = level(fleet, rate_of, BalanceLimits(1.2, 1))
    for worker, load in zip(fleet, loads(fleet, rate_of), strict=True):
        if any(partition in to for partition in fleet[worker]):
            assert load > 1.2 * average


def test_many_partitions_are_balanced_by_few_moves() -> None:
    rates = [[1.0 + (at * number) % 7 for number in range(40)] for at in range(1, 20)]
    rates.append([9.0] * 40)
    fleet, rate_of = fleet_of(rates)
    to = level(fleet, rate_of, BalanceLimits(moves=1_000))
    after = loads(moved(fleet, to), rate_of)
    assert max(after) <= 1.2 * sum(after) / len(after)
    assert len(to) <= 100


def test_workers_with_unsettled_rates_are_left_out() -> None:
    fleet, rate_of = fleet_of([[30, 30], [1, 1], [5, 5], [5, 5]])
    rates = {worker: {part: rate_of[part] for part in owned} for worker, owned in fleet.items()}
    counts = dict.fromkeys(fleet, 2)
    first, second = fleet[WorkerId("w1")]
    rates[WorkerId("w1")] = {first: rate_of[first]}
    to = {
        move.worker
        for move in balance_loads(balanced_fleet(fleet, counts), rates, BalanceLimits()).values()
    }
    assert to
    assert WorkerId("w1") not in to
    unmovable = counts | {WorkerId("w0"): 3}
    assert balance_loads(balanced_fleet(fleet, unmovable), rates, BalanceLimits()) == {}
    assert second not in balance_loads(balanced_fleet(fleet, counts), {}, BalanceLimits())
