"""Rows that a copier writes of a map: nothing while a segment grows, and few rows however long it copies."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ureplicator_common.model import Partition, Route
from ureplicator_common.offset_map import writing
from ureplicator_common.offset_map.chunks import FULL_SEGMENTS
from ureplicator_common.offset_map.codec import Row
from ureplicator_common.offset_map.partition_map import MapView
from ureplicator_common.offset_map.route_maps import RouteMaps
from ureplicator_common.offset_map.segments import MapSegment
from ureplicator_common.offset_map.writing import CHUNK_SEGMENTS, Written, advance

P0 = Partition(Route("a", "b"), "t", 0)
NEW = Written(P0, "s", "t")
STEPS = st.lists(
    st.tuples(st.integers(1, 5), st.integers(0, 3), st.integers(0, 2), st.booleans()),
    max_size=200,
)


class Topic:
    """A compacted topic with the rows of one copier after another, and what they copied."""

    def __init__(self) -> None:
        self.rows: dict[bytes, Row] = {}
        self.writes = 0
        self.written = NEW
        self.segments: list[MapSegment] = []
        self.copied: dict[int, int] = {}
        """Source offset -> target offset."""

    def commit(self, *newest: MapSegment) -> int:
        """Number of rows that this takes."""
        self.written, rows = advance(self.written, newest)
        self.writes += len(rows)
        for row in rows:
            self.rows.pop(row.key, None)
            if row.value is not None:
                self.rows[row.key] = row
        return len(rows)

    def copy(self, count: int, *, hole: int = 0, markers: int = 0) -> None:
        """Copy so many records behind a hole of the source and markers of our own."""
        last = self.segments[-1] if self.segments else MapSegment(0, 0, 0)
        first, target = last.end + hole, last.target_end + markers
        self.copied |= {first + n: target + n for n in range(count)}
        if self.segments and not hole and not markers:
            self.segments[-1] = last._replace(end=first + count)
        else:
            self.segments.append(
                MapSegment(first, first + count, target, follows=bool(self.segments))
            )

    def view(self) -> MapView:
        maps = RouteMaps()
        maps.add(self.rows.values())
        known = maps.partitions[P0]
        last = self.segments[-1]
        return known.view(last.end, last.target_end, mapped=self.written.mapped)


def test_a_segment_that_grows_is_written_once() -> None:
    topic = Topic()
    assert topic.commit(MapSegment(0, 10, 5)) == 1
    for end in range(11, 500):
        assert topic.commit(MapSegment(0, end, 5)) == 0
    assert topic.commit(MapSegment(0, 600, 5), MapSegment(700, 701, 605)) == 1
    topic.segments = [MapSegment(700, 701, 605)]
    assert topic.view().segments() == (MapSegment(0, 600, 5), MapSegment(700, 701, 605))


def test_a_log_that_went_back_takes_its_chunks_away() -> None:
    topic = Topic()
    many = [MapSegment(2 * n, 2 * n + 1, n) for n in range(3 * CHUNK_SEGMENTS)]
    topic.commit(*many)
    again = MapSegment(20, 25, 10)
    topic.commit(again)
    topic.segments = [again]
    assert topic.view().segments() == (*many[:10], again)
    assert len(topic.rows) == 2


def assert_exact(topic: Topic) -> None:
    """Each offset is translated to the place of its record, or of the next one, and each place back."""
    view = topic.view()
    for (before, _), (source, target) in pairwise([(-1, 0), *sorted(topic.copied.items())]):
        assert {view.forward(offset) for offset in (before + 1, source)} == {target}
        assert view.backward(target) == source


@settings(max_examples=40, deadline=None)
@given(STEPS)
def test_what_is_read_is_what_was_copied(steps: list[tuple[int, int, int, bool]]) -> None:
    topic = Topic()
    at = 0
    for count, hole, markers, commits in steps:
        topic.copy(count, hole=hole if topic.segments else 0, markers=markers)
        if commits:
            topic.commit(*topic.segments[at:])
            at = len(topic.segments) - 1
    if topic.segments:
        topic.commit(*topic.segments[at:])
        assert_exact(topic)


def test_a_copier_that_commits_for_days_leaves_few_chunks() -> None:
    topic = Topic()
    count = 3_000
    topic.copy(1)
    for _ in range(count):
        topic.copy(1, hole=1, markers=1)
        topic.commit(*topic.segments[-2:])
    sizes = [segment.size for segment in topic.written.sealed]
    assert len(topic.rows) == 1 + len(sizes) <= 2 + (count // CHUNK_SEGMENTS).bit_length()
    assert sum(sizes) + CHUNK_SEGMENTS >= count
    assert topic.writes < 3 * count
    assert_exact(topic)


def test_many_segments_at_once_make_large_chunks_of_a_few_bytes_each() -> None:
    topic = Topic()
    topic.copy(1)
    for _ in range(3 * FULL_SEGMENTS + 100):
        topic.copy(2, hole=1)
    assert topic.commit(*topic.segments) == 5
    assert [chunk.size for chunk in topic.written.sealed] == [FULL_SEGMENTS] * 3 + [96]
    assert not any(chunk.value for chunk in topic.written.sealed[:3])
    assert topic.written.chunks == 2
    assert max(len(row.value or b"") for row in topic.rows.values()) < 4.5 * FULL_SEGMENTS
    assert_exact(topic)


def test_more_chunks_than_are_kept_are_thinned_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets in what was left out are rounded down, the others stay exact."""
    monkeypatch.setattr(writing, "FULL_SEGMENTS", CHUNK_SEGMENTS)
    monkeypatch.setattr(writing, "MAX_CHUNKS", 8)
    topic = Topic()
    topic.copy(1)
    for _ in range(9 * CHUNK_SEGMENTS):
        topic.copy(1, hole=1, markers=1)
        topic.commit(*topic.segments[-2:])
    assert len(topic.rows) == 8
    view = topic.view()
    inexact = 0
    for source, target in topic.copied.items():
        found, back = view.forward(source), view.backward(target)
        assert found is not None
        assert found <= target
        assert back is not None
        assert back <= source
        inexact += found != target
    assert inexact == 2 * CHUNK_SEGMENTS


def test_keys_stay_bounded_however_often_the_target_refuses_the_map() -> None:
    topic = Topic()
    count = 1_000
    for number in range(count):
        topic.copy(1, markers=1)
        topic.commit(*topic.segments[-2:])
        if number % 2:
            topic.written = topic.written.interrupted()
    topic.copy(1, markers=1)
    topic.commit(*topic.segments[-2:])
    assert len(topic.rows) <= 2 + count.bit_length()
    assert_exact(topic)


def test_chunks_of_former_owners_are_counted_after_a_refusal() -> None:
    """The next owner packs them up, once there are many."""
    topic = Topic()
    topic.written = replace(NEW, former=3).interrupted()
    topic.copy(1)
    topic.commit(*topic.segments)
    assert topic.written.chunks == 4


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_what_is_read_after_refusals_is_never_beyond_what_was_copied(
    steps: list[tuple[int, int, int, bool]],
) -> None:
    """A refused commit leaves no row; what follows does not go on from it."""
    topic = Topic()
    at = 0
    for count, hole, markers, commits in steps:
        topic.copy(count, hole=hole, markers=markers)
        if commits:
            topic.commit(*topic.segments[at:])
        else:
            topic.written = topic.written.interrupted()
        at = len(topic.segments) - 1
    if not topic.segments:
        return
    topic.commit(*topic.segments[at:])
    view = topic.view()
    for source, target in topic.copied.items():
        found, back = view.forward(source), view.backward(target)
        assert found is None or found <= target
        assert back is None or back <= source
    held = {row.key for row in topic.rows.values()}
    known = {*(chunk.target for chunk in topic.written.sealed)}
    assert topic.written.chunk is not None
    assert len(held) == len(known | {topic.written.chunk.target})


def test_no_chunk_is_deleted_before_the_one_that_takes_its_place_is_written() -> None:
    """The map holds after each row of a commit what it holds after the last one, but for the new segments."""
    topic = Topic()
    rows: list[Row] = []
    merges = 0
    for _ in range(16 * CHUNK_SEGMENTS + 1):
        topic.copy(1, markers=1)
        topic.written, more = advance(topic.written, topic.segments[-2:])
        if any(row.value is None for row in more):
            merges += 1
            final = read_rows([*rows, *more])
            for at in range(1, len(more)):
                places = {segment.first for segment in read_rows([*rows, *more[:at]])}
                assert {
                    segment.first for segment in final if segment.end <= topic.segments[-2].first
                } <= places
        rows += more
    assert merges == 8


def read_rows(rows: list[Row]) -> tuple[MapSegment, ...]:
    maps = RouteMaps()
    maps.add(rows)
    return maps.partitions[P0].view().segments()
