"""Quotas: in proportion to slots, level over all pools, and as few moves as possible."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from ureplicator_common.model import WorkerId
from ureplicator_controller.core.balance.quotas import Vessel, quotas, whole_shares

A, B, C = WorkerId("a"), WorkerId("b"), WorkerId("c")

vessels = st.lists(
    st.builds(Vessel, st.integers(1, 16), st.integers(0, 40), st.integers(0, 40)),
    min_size=1,
    max_size=8,
).map(lambda each: {WorkerId(f"w{n}"): vessel for n, vessel in enumerate(each)})


def test_worker_with_eight_times_the_slots_gets_eight_times_as_many() -> None:
    assert quotas(90, {A: Vessel(2), B: Vessel(16)}) == {A: 10, B: 80}


def test_what_is_there_already_counts_and_a_full_worker_gets_nothing() -> None:
    assert quotas(4, {A: Vessel(1, base=2), B: Vessel(1), C: Vessel(1, base=9)}) == {
        A: 1,
        B: 3,
        C: 0,
    }


def test_one_more_stays_with_the_worker_that_has_it() -> None:
    equal = {A: Vessel(1, count=3), B: Vessel(1, count=4), C: Vessel(1, count=3)}
    assert quotas(10, equal) == {A: 3, B: 4, C: 3}


def test_one_more_goes_to_the_largest_remainder_where_nobody_has_it() -> None:
    assert quotas(4, {A: Vessel(2), B: Vessel(3)}) == {A: 2, B: 2}
    assert whole_shares(4, {A: Vessel(2), B: Vessel(3)}) == {A: 1, B: 2}


def test_no_workers_no_quotas() -> None:
    assert quotas(4, {}) == {}


@given(st.integers(0, 200), vessels)
def test_everything_is_divided_at_one_level(total: int, given: dict[WorkerId, Vessel]) -> None:
    found = quotas(total, given)
    assert sum(found.values()) == total
    assert min(found.values()) >= 0
    level = _level(total, given)
    for worker, vessel in given.items():
        exact = max(Fraction(0), level * vessel.weight - vessel.base)
        assert abs(found[worker] - exact) <= 1
    assert found == quotas(total, dict(reversed(given.items())))


@given(vessels)
def test_what_quotas_divided_they_leave_as_it_is(given: dict[WorkerId, Vessel]) -> None:
    """Each plan would move something otherwise."""
    total = sum(vessel.count for vessel in given.values())
    once = quotas(total, given)
    again = {w: Vessel(v.weight, v.base, once[w]) for w, v in given.items()}
    assert quotas(total, again) == once


def _level(total: int, given: dict[WorkerId, Vessel]) -> Fraction:
    """Level of the water, by pouring it in up to the next base, one after the other."""
    levels = sorted(Fraction(quota.base, quota.weight) for quota in given.values())
    volume = Fraction(total)
    for lower, upper in zip(levels, [*levels[1:], None], strict=True):
        width = sum(v.weight for v in given.values() if Fraction(v.base, v.weight) <= lower)
        if upper is None or volume <= (upper - lower) * width:
            return lower + volume / width
        volume -= (upper - lower) * width
    raise AssertionError
