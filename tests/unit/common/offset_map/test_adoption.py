"""Chunks of former owners: however many owners a partition has had, few remain, and none says too much."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ureplicator_common.model import Partition, Route
from ureplicator_common.offset_map.adoption import MAX_FORMER, adopted
from ureplicator_common.offset_map.chunks import FULL_SEGMENTS, Chunk
from ureplicator_common.offset_map.codec import Row, decode_key, row
from ureplicator_common.offset_map.partition_map import MapView, PartitionMap
from ureplicator_common.offset_map.route_maps import RouteMaps
from ureplicator_common.offset_map.segments import MapSegment
from ureplicator_common.offset_map.writing import CHUNK_SEGMENTS, Written, advance
from ureplicator_testkit.kafka.offset_maps import map_of

P0 = Partition(Route("a", "b"), "t", 0)
BOUND = MAX_FORMER + 4
"""Keys: what may be left before it is adopted, and what one owner may add."""
OWNERS = st.lists(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(0, 2)), max_size=60),
    min_size=1,
    max_size=12,
)


class Topic:
    """A compacted topic, and one owner of the partition after another, who repeats what was not committed."""

    def __init__(self) -> None:
        self.rows: dict[bytes, Row] = {}
        self.written = Written(P0, "s", "t")
        self.position = self.end = 0
        self.segments: list[MapSegment] = []
        """Of the present owner, from the last one that was committed."""
        self.copies: dict[int, list[int]] = {}

    def known(self) -> PartitionMap:
        maps = RouteMaps()
        maps.add(self.rows.values())
        return maps.partitions.get(P0, PartitionMap())

    def copy(self, count: int, *, hole: int = 0, markers: int = 0) -> None:
        last = self.segments[-1] if self.segments else None
        first = last.end if last else self.position
        if not any(first + n in self.copies for n in range(hole)):
            first += hole
        target = self.end + markers
        for n in range(count):
            self.copies.setdefault(first + n, []).append(target + n)
        repeated = any(len(self.copies[first + n]) > 1 for n in range(count))
        if last and (last.end, last.target_end) == (first, target) and last.repeated == repeated:
            self.segments[-1] = last._replace(end=first + count)
        else:
            follows = last is not None
            self.segments.append(MapSegment(first, first + count, target, repeated, follows))
        self.end = target + count

    def commit(self, *, adopts: bool = False) -> list[Row]:
        self.written, rows = advance(self.written, self.segments)
        if adopts:
            self.written, more = adopted(self.written, self.known())
            rows += more
        self.write(rows)
        if self.segments:
            self.position = self.segments[-1].end
            del self.segments[:-1]
        self.committed = self.position, self.end
        return rows

    def write(self, rows: list[Row]) -> None:
        for stored in rows:
            self.rows.pop(stored.key, None)
            if stored.value is not None:
                self.rows[stored.key] = stored

    def change_owner(self) -> None:
        """The next one knows what the position says."""
        self.written = Written(
            P0,
            "s",
            "t",
            begin=self.committed,
            mapped=self.written.mapped,
            former=self.written.chunks,
        )
        self.segments = []

    def view(self) -> MapView:
        return self.known().view(*self.committed, mapped=self.written.mapped)


def assert_exact(topic: Topic) -> None:
    """Compare the map with the copy: each offset before the committed position leads to the last copy of its
    record, or of the next one."""
    view = topic.view()
    copied = sorted(copy for copy in topic.copies if copy < topic.position)
    for source in range(topic.position):
        at = bisect_left(copied, source)
        if at < len(copied):
            assert view.forward(source) == max(topic.copies[copied[at]])
    for source in copied:
        for place in topic.copies[source]:
            back = view.backward(place)
            assert back is None or back <= source
        assert view.backward(max(topic.copies[source])) == source


def test_a_partition_with_many_owners_has_few_chunks() -> None:
    topic = Topic()
    most = 0
    for number in range(300):
        topic.copy(3, markers=1)
        topic.commit()
        topic.copy(2, hole=number % 3)
        topic.commit(adopts=topic.written.former > MAX_FORMER)
        assert topic.written.chunks == len(topic.rows)
        most = max(most, len(topic.rows))
        topic.change_owner()
    assert most <= BOUND
    assert_exact(topic)


def test_small_chunks_are_joined_and_say_the_same() -> None:
    topic = Topic()
    for _ in range(CHUNK_SEGMENTS):
        topic.copy(2, markers=1)
        topic.commit()
        topic.change_owner()
    topic.copy(2, markers=1)
    topic.commit()
    before = topic.view().segments()
    topic.commit(adopts=True)
    assert topic.view().segments() == before
    assert len(topic.rows) == 3


@settings(max_examples=100, deadline=None)
@given(OWNERS, st.integers(0, 3))
def test_whatever_owners_did(owners: list[list[tuple[int, int, int]]], crashes: int) -> None:
    """Every fourth owner dies before it commits its last records; every second one adopts."""
    topic = Topic()
    topic.copy(1)
    topic.commit()
    for number, copies in enumerate(owners):
        for count, hole, markers in copies:
            topic.copy(count, hole=hole, markers=markers)
            topic.commit(adopts=bool(number % 2))
        if number % 4 == crashes:
            topic.copy(3)
        topic.change_owner()
        assert_exact(topic)


def test_at_no_row_anything_is_missed() -> None:
    """A reader that has read a part of the transaction."""
    topic = Topic()
    for _ in range(20):
        for _ in range(5):
            topic.copy(2, markers=1)
            topic.commit()
        topic.change_owner()
    topic.copy(2)
    topic.commit()
    held = dict(topic.rows)
    rows = topic.commit(adopts=True)
    assert any(row.value is None for row in rows)
    for count in range(len(rows) + 1):
        topic.rows = dict(held)
        topic.write(rows[:count])
        assert_exact(topic)


@pytest.mark.parametrize("topics", [("s", "old"), ("old", "t")])
def test_chunks_of_a_former_topic_are_deleted(topics: tuple[str, str]) -> None:
    topic = Topic()
    topic.write([row(P0, Chunk(*topics, (MapSegment(n, n + 1, 100 + n),))) for n in range(3)])
    topic.copy(5)
    topic.commit(adopts=True)
    assert len(topic.rows) == 1
    assert_exact(topic)


def test_chunks_behind_the_end_of_a_log_that_went_back_are_deleted() -> None:
    topic = Topic()
    for _ in range(5):
        topic.copy(2, markers=1)
        topic.commit()
        topic.change_owner()
    topic.end, topic.copies = 4, {0: [1], 1: [2]}
    topic.position, topic.committed = 2, (2, 3)
    topic.change_owner()
    topic.copy(9)
    topic.commit(adopts=True)
    assert all(entry.target <= 4 for entry in topic.known().entries)
    assert max(topic.known().keys) <= 4
    assert_exact(topic)


def test_two_halves_make_a_full_chunk() -> None:
    half = FULL_SEGMENTS // 2
    segments = [MapSegment(2 * n, 2 * n + 1, 3 * n) for n in range(FULL_SEGMENTS)]
    written, rows = adopted_of(
        *(Chunk("s", "t", (*part,)) for part in (segments[:half], segments[half:]))
    )
    assert [sealed.size for sealed in written.sealed] == [FULL_SEGMENTS]
    assert [stored.value is None for stored in rows] == [False, True]


def test_what_is_adopted_says_no_more_than_before() -> None:
    """Records between the end of the log that an owner found, and its position, have no known place."""
    first = Chunk("s", "t", (MapSegment(0, 5, 0),), open=True)
    second = Chunk("s", "t", (MapSegment(12, 15, 20),), begin=(10, 7))
    known, adopted_by = map_of(first, second), map_of(first, second)
    _, rows = adopted_of(first, second)
    for stored in rows:
        target = decode_key(stored.key).target
        adopted_by.remove(target) if stored.value is None else adopted_by.add(stored.value)
    assert [known.view().forward(source) for source in (7, 8, 9, 12)] == [7, 7, 7, 20]
    assert [adopted_by.view().forward(source) for source in (7, 8, 9, 12)] == [7, 7, 7, 20]


def adopted_of(*former: Chunk) -> tuple[Written, list[Row]]:
    """Rows of an owner that adopts these, and has written a chunk behind them."""
    own = Chunk("s", "t", (MapSegment(10**6, 10**6 + 1, 10**6),), open=True)
    return adopted(Written(P0, "s", "t", chunk=own, former=len(former)), map_of(*former))


def test_an_owner_that_has_written_nothing_adopts_nothing() -> None:
    topic = Topic()
    topic.copy(2)
    topic.commit()
    topic.change_owner()
    assert adopted(topic.written, topic.known()) == (topic.written, [])
    refused = replace(topic.written, former=9).interrupted()
    assert refused.chunks == 9
