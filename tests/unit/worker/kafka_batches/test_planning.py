"""Ranges of tasks cover what is to be read, once; micro-batches keep their limit and stand still nowhere."""

from hypothesis import given
from hypothesis import strategies as st

from ureplicator_worker.kafka_batches.bounds import Offsets
from ureplicator_worker.kafka_batches.planning import (
    OffsetRange,
    from_json,
    next_offsets,
    ranges_between,
    split,
    to_json,
)

A, B, C = ("t", 0), ("t", 1), ("u", 0)
sizes = st.lists(st.integers(1, 10_000), min_size=1, max_size=8)


def test_ranges_of_a_batch() -> None:
    assert ranges_between({A: 3, B: 5}, {A: 9, B: 5, C: 4}) == [OffsetRange("t", 0, 3, 9)]


@given(sizes, st.integers(0, 40), st.integers(0, 3_000))
def test_parts_cover_each_range_once(sizes: list[int], least: int, most: int) -> None:
    whole = [OffsetRange("t", n, 7, 7 + size) for n, size in enumerate(sizes)]
    parts = split(whole, min_partitions=least, max_records=most)
    for full in whole:
        mine = [part for part in parts if part.partition == full.partition]
        assert [part.start for part in mine] == [full.start, *(part.end for part in mine[:-1])]
        assert mine[-1].end == full.end
    assert all(part.size > 0 for part in parts)
    assert not most or max(part.size for part in parts) <= most
    assert len(parts) >= min(least, sum(sizes))


@given(sizes, st.integers(1, 5_000))
def test_micro_batches_keep_their_limit_and_come_to_the_end(sizes: list[int], limit: int) -> None:
    start = {("t", n): 100 for n in range(len(sizes))}
    last = {("t", n): 100 + size for n, size in enumerate(sizes)}
    at: Offsets = start
    turns = 0
    while at != last:
        after = next_offsets(at, {}, last, limit=limit)
        moved = sum(after[key] - at[key] for key in at)
        assert 0 < moved <= limit
        assert all(at[key] <= after[key] <= last[key] for key in at)
        at, turns = after, turns + 1
    assert turns <= 2 * sum(sizes) // limit + len(sizes) + 2


def test_a_small_partition_beside_a_large_one_moves() -> None:
    after = next_offsets({A: 0, B: 0}, {}, {A: 1_000_000, B: 3}, limit=100)
    assert after[B] == 1


def test_without_a_limit() -> None:
    assert next_offsets({A: 3}, {}, {A: 9}, limit=0) == {A: 9}


def test_a_new_partition_begins_in_an_empty_batch() -> None:
    """Its range follows from the checkpoint alone then."""
    after = next_offsets({A: 3}, {B: 4}, {A: 9, B: 8}, limit=0)
    assert after == {A: 9, B: 4}
    assert ranges_between({A: 3}, after) == [OffsetRange("t", 0, 3, 9)]


def test_a_log_that_ends_earlier_now() -> None:
    after = next_offsets({A: 9}, {}, {A: 5}, limit=100)
    assert after == {A: 5}
    assert ranges_between({A: 9}, after) == []


@given(st.dictionaries(st.tuples(st.sampled_from("tuv"), st.integers(0, 20)), st.integers(0, 99)))
def test_offsets_of_a_checkpoint(offsets: Offsets) -> None:
    assert from_json(to_json(offsets)) == offsets


def test_the_order_in_a_checkpoint_is_that_of_numbers() -> None:
    text = to_json({("t", 10): 1, ("t", 9): 2})
    assert list(text["t"].items()) == [("9", 2), ("10", 1)]
