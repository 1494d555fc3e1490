"""Translation between the logs by segments, and their bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ureplicator_common.offset_map.segments import (
    MAX_SEGMENTS,
    MapSegment,
    joined,
    merged,
    thinned,
)
from ureplicator_testkit.kafka.offset_maps import backward, forward

HOLED = (MapSegment(10, 20, 0), MapSegment(25, 30, 12))
RESENT = (MapSegment(0, 10, 0), MapSegment(5, 12, 14, repeated=True))


@pytest.mark.parametrize(
    ("source", "target"),
    [(9, None), (10, 0), (19, 9), (20, 10), (22, 10), (25, 12), (29, 16), (30, 17), (99, 17)],
)
def test_forward_is_exact_in_a_segment_and_rounded_down_between(
    source: int, target: int | None
) -> None:
    assert forward(HOLED, source) == target


@pytest.mark.parametrize(
    ("target", "source"),
    [(0, 10), (9, 19), (10, 20), (11, 20), (12, 25), (16, 29), (17, 30), (50, 30)],
)
def test_backward_is_exact_in_a_segment_and_rounded_down_between(target: int, source: int) -> None:
    assert backward(HOLED, target) == source


def test_nothing_is_known_before_the_first_segment() -> None:
    assert forward((), 5) is None
    assert backward((), 5) is None
    assert backward((MapSegment(0, 1, 5),), 4) is None


def test_forward_names_the_last_copy_and_backward_begins_at_each() -> None:
    assert [forward(RESENT, source) for source in (4, 5, 9, 10, 12)] == [4, 14, 18, 19, 21]
    assert [backward(RESENT, target) for target in (7, 16)] == [7, 7]


def test_an_older_copy_counts_where_the_last_one_ends_before() -> None:
    again = (MapSegment(0, 100, 0), MapSegment(0, 30, 100), MapSegment(200, 210, 130))
    assert [forward(again, source) for source in (20, 50, 100, 200)] == [120, 50, 130, 130]


def test_segments_that_go_on_are_joined() -> None:
    parts = [MapSegment(0, 0, 3), MapSegment(0, 5, 3), MapSegment(5, 9, 8), MapSegment(9, 9, 12)]
    assert joined(parts) == (MapSegment(0, 9, 3),)
    assert joined([MapSegment(0, 5, 3), MapSegment(5, 9, 8, repeated=True)])[1].repeated


def test_a_log_that_went_back_ends_what_was_behind() -> None:
    old = (MapSegment(0, 10, 0), MapSegment(20, 30, 10))
    assert merged(old, (MapSegment(8, 9, 8),)) == (MapSegment(0, 9, 0),)
    assert merged(old, (MapSegment(20, 22, 15),)) == (
        MapSegment(0, 10, 0),
        MapSegment(20, 25, 10),
        MapSegment(20, 22, 15),
    )


@given(st.integers(1, 20), st.integers(0, 200))
def test_thinning_keeps_the_oldest_and_the_newest(limit: int, count: int) -> None:
    segments = [MapSegment(20 * n, 20 * n + 3, 5 * n) for n in range(count)]
    kept = thinned(segments, limit)
    assert len(kept) <= max(limit, 1)
    assert set(kept) <= set(segments)
    assert kept[:1] == tuple(segments[:1])
    for source in range(0, 20 * count, 7):
        found, exact = forward(kept, source), forward(segments, source)
        assert found is not None
        assert exact is not None
        assert found <= exact


def test_the_number_is_bounded() -> None:
    many = [MapSegment(20 * n, 20 * n + 3, 5 * n) for n in range(3 * MAX_SEGMENTS)]
    kept = merged((), many)
    assert len(kept) <= MAX_SEGMENTS
    assert kept[-MAX_SEGMENTS // 4 :] == tuple(many[-MAX_SEGMENTS // 4 :])


FOLLOWED = (
    MapSegment(10, 20, 0),
    MapSegment(25, 30, 12, follows=True),
    MapSegment(40, 50, 20),
)


@pytest.mark.parametrize(
    ("source", "target"), [(19, 9), (20, 12), (24, 12), (25, 12), (30, 17), (35, 17), (40, 20)]
)
def test_between_two_that_follow_each_other_is_the_place_of_the_next_record(
    source: int, target: int
) -> None:
    assert forward(FOLLOWED, source) == target


@pytest.mark.parametrize(
    ("target", "source"), [(9, 19), (10, 25), (11, 25), (12, 25), (17, 30), (19, 30), (20, 40)]
)
def test_and_so_it_is_on_the_way_back(target: int, source: int) -> None:
    assert backward(FOLLOWED, target) == source
