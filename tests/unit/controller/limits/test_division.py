"""Division of a byte limit: never above it, by what is used, nobody left without."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ureplicator_controller.core.balance.fair_shares import IDLE_PART, divide, is_close

limits = st.integers(10_000, 10**12)
rates = st.floats(0, 1e12)


@given(limits, st.dictionaries(st.integers(0, 30), rates), st.sets(st.integers(0, 60)))
def test_shares_are_never_above_the_limit(
    limit: int, used: dict[int, float], others: set[int]
) -> None:
    shares = divide(limit, used, others)
    assert shares.keys() == used.keys() | others
    assert sum(shares.values()) <= limit
    if shares:
        assert sum(shares.values()) >= limit * (1 - IDLE_PART) - len(shares)
        assert min(shares.values()) >= max(1, int(IDLE_PART * limit / len(shares)))


@given(limits, st.lists(rates, min_size=2, max_size=2))
def test_more_use_never_means_a_smaller_share(limit: int, used: list[float]) -> None:
    shares = divide(limit, dict(enumerate(used)))
    low, high = sorted((0, 1), key=lambda key: used[key])
    assert shares[low] <= shares[high] + 1


def test_without_use_all_have_the_same() -> None:
    assert divide(30_000, {}, ["a", "b", "c"]) == {"a": 10_000, "b": 10_000, "c": 10_000}
    assert divide(30_000, {}) == {}


def test_one_that_copies_alone_gets_nearly_all() -> None:
    shares = divide(1_000_000, {"a": 800_000.0}, ["a", *range(9)])
    assert shares["a"] >= 950_000


def test_one_that_begins_reaches_an_equal_share_in_few_divisions() -> None:
    shares = divide(1_000_000, {"a": 1_000_000.0, "b": 0.0})
    for _ in range(6):
        shares = divide(1_000_000, {key: float(share) for key, share in shares.items()})
    assert abs(shares["a"] - shares["b"]) < 50_000


def test_one_that_uses_little_leaves_the_rest_to_the_others() -> None:
    shares = divide(1_000_000, {"a": 450_000.0, "b": 450_000.0, "c": 50_000.0})
    assert shares["a"] == shares["b"] > 400_000
    assert shares["c"] >= 100_000


def test_a_division_is_kept_while_it_serves() -> None:
    wanted = {"a": 500_000, "b": 500_000}
    assert is_close({"a": 550_000, "b": 450_000}, wanted, 1_000_000)
    assert not is_close({"a": 900_000, "b": 100_000}, wanted, 1_000_000)
    assert not is_close({"a": 550_000, "b": 450_000}, wanted, 900_000), "above a lower limit"
    assert not is_close({"a": 1_000_000}, wanted, 1_000_000), "another claimant"
