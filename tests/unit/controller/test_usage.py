"""Cost of the copy of each route: growth of workers' counters between looks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ureplicator_common.model import Route, WorkerId
from ureplicator_common.znode_contents import RouteUsage, WorkerUsage
from ureplicator_controller.core.usage import CopyCost, SeenUsage, grown, remembered

ONE, OTHER = Route("a", "b"), Route("a", "c")
W1, W2 = WorkerId("w1"), WorkerId("w2")


def usage(started_ms: int, cpu_ms: int, **copied: int) -> WorkerUsage:
    """`one`, `other`: bytes, a tenth as many records."""
    routes = {"one": ONE, "other": OTHER}
    counts = {routes[name]: RouteUsage(size // 10, size) for name, size in copied.items()}
    return WorkerUsage(started_ms, cpu_ms, counts)


def seen(**workers: WorkerUsage) -> SeenUsage:
    return SeenUsage(1_000, {WorkerId(name): used for name, used in workers.items()})


def test_the_first_look_knows_no_growth() -> None:
    now = {W1: usage(0, 5_000, one=100)}
    assert grown(None, now, at_ms=9) == (SeenUsage(9, now), {})


def test_growth_since_the_last_look() -> None:
    before = seen(w1=usage(0, 5_000, one=100), w2=usage(0, 0, one=10))
    now = {W1: usage(0, 7_000, one=400), W2: usage(0, 500, one=10)}
    after, costs = grown(before, now, at_ms=2_000)
    assert costs == {ONE: CopyCost(30, 300, 2.5)}
    assert after == SeenUsage(1_000, now)


def test_processor_time_is_divided_by_bytes() -> None:
    before = seen(w1=usage(0, 0, one=0, other=0))
    _, costs = grown(before, {W1: usage(0, 4_000, one=300, other=100)}, at_ms=0)
    assert costs == {ONE: CopyCost(30, 300, 3.0), OTHER: CopyCost(10, 100, 1.0)}


def test_a_worker_that_copied_nothing_costs_its_routes_alike() -> None:
    before = seen(w1=usage(0, 0, one=50, other=900))
    _, costs = grown(before, {W1: usage(0, 4_000, one=50, other=900)}, at_ms=0)
    assert costs == {ONE: CopyCost(0, 0, 2.0), OTHER: CopyCost(0, 0, 2.0)}
    assert grown(before, {W2: usage(0, 4_000)}, at_ms=0)[1] == {}


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ({}, usage(1_500, 2_000, one=70), CopyCost(7, 70, 2.0)),
        ({}, usage(500, 2_000, one=70), CopyCost()),
        ({"w1": usage(500, 9_000, one=60)}, usage(800, 2_000, one=70), CopyCost(7, 70, 2.0)),
    ],
    ids=["new since", "missing at the first look", "started again"],
)
def test_a_worker_that_was_not_there(
    before: dict[str, WorkerUsage], now: WorkerUsage, expected: CopyCost
) -> None:
    assert grown(seen(**before), {W1: now}, at_ms=0)[1] == {ONE: expected}


def test_a_worker_that_is_back_goes_on_where_it_was() -> None:
    first = seen(w1=usage(0, 0, one=10))
    gone, costs = grown(first, {}, at_ms=0)
    assert costs == {}
    _, costs = grown(gone, {W1: usage(0, 1_000, one=30)}, at_ms=0)
    assert costs == {ONE: CopyCost(2, 20, 1.0)}
    assert remembered(gone, frozenset()).workers == {}


def test_core_hours_for_a_terabyte() -> None:
    assert CopyCost(0, 2 * 10**12, 7_200.0).core_hours_per_tb == 1.0
    assert CopyCost(0, 0, 7_200.0).core_hours_per_tb is None


_COUNTS = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=6)


@given(_COUNTS)
def test_the_sum_over_looks_is_what_the_counters_grew(steps: list[tuple[int, int]]) -> None:
    cpu_ms = one = 0
    state, total = seen(w1=usage(0, 0, one=0)), CopyCost()
    for more_ms, more in steps:
        cpu_ms, one = cpu_ms + more_ms, one + more
        state, costs = grown(state, {W1: usage(0, cpu_ms, one=one)}, at_ms=0)
        total += costs[ONE]
    assert total.bytes == one
    assert total.cpu_s == pytest.approx(cpu_ms / 1_000)
