"""Maps of a route, as they are read: committed rows only, and up to the stored positions."""

from __future__ import annotations

import pytest

from ureplicator_common.kafka import ClusterUnavailable, Position
from ureplicator_common.kafka.provenance import Provenance
from ureplicator_common.model import Partition, Route
from ureplicator_common.offset_map.chunks import Chunk
from ureplicator_common.offset_map.codec import Row, row, tombstone
from ureplicator_common.offset_map.route_maps import RouteMaps
from ureplicator_common.offset_map.segments import MapSegment
from ureplicator_testkit.kafka.offset_maps import MemoryOffsetMaps, forward

P0, P1 = (Partition(Route("a", "b"), "t", n) for n in range(2))


def mapped(partition: Partition, *segments: MapSegment) -> Row:
    return row(partition, Chunk("s", "t", segments, open=True))


def test_the_last_tombstone_of_a_partition_removes_its_map() -> None:
    maps = RouteMaps()
    maps.add([mapped(P0, MapSegment(0, 1, 0)), tombstone(P0, 0), mapped(P0, MapSegment(0, 9, 4))])
    assert maps.view(P0).segments() == (MapSegment(0, 9, 4),)
    maps.add([tombstone(P0, 4), tombstone(P1, 4)])
    assert not maps.partitions


def stored(offset: int, *, target_end: int, mapped: int, topic: str = "t") -> Position:
    record = Provenance("c", "s", topic, "w", 0, 1, target_end, mapped)
    return Position(offset, metadata=record.encode())


def test_the_stored_position_says_how_far_the_newest_segment_reaches() -> None:
    maps = MemoryOffsetMaps()
    maps.put(P0, MapSegment(0, 10, 3))
    assert maps.view(P0).segments() == ()
    maps.update()
    assert maps.view(P0).segments() == (MapSegment(0, 10, 3),)
    assert maps.view(P0, Position(90)).segments() == (MapSegment(0, 10, 3),)
    at = stored(90, target_end=93, mapped=3)
    assert maps.view(P0, at).segments() == (MapSegment(0, 90, 3),)
    assert maps.view(P1, at).segments() == ()


def test_a_map_reaches_the_position_that_names_its_newest_segment() -> None:
    maps = RouteMaps()
    assert not maps.reaches(P0, stored(90, target_end=93, mapped=3))
    assert maps.reaches(P0, Position(90))
    assert maps.reaches(P0, stored(90, target_end=93, mapped=-1))
    maps.add([row(P0, Chunk("s", "t", (MapSegment(0, 10, 3),), open=True))])
    assert maps.reaches(P0, stored(90, target_end=93, mapped=3))
    assert not maps.reaches(P0, stored(90, target_end=93, mapped=40))


def test_the_map_of_a_former_topic_is_none() -> None:
    maps = MemoryOffsetMaps()
    maps.put(P0, MapSegment(0, 10, 3))
    maps.update()
    assert maps.view(P0, stored(90, target_end=93, mapped=3, topic="new")).segments() == ()


def test_an_update_can_fail() -> None:
    maps = MemoryOffsetMaps()
    maps.failure = ClusterUnavailable("down")
    with pytest.raises(ClusterUnavailable):
        maps.update()


@pytest.mark.parametrize("hole", [0, 3])
def test_a_run_that_the_next_owner_goes_on_with_reaches_to_its_position(hole: int) -> None:
    """The first segment of the next owner is joined with the last one before: at least once, without holes in
    the source."""
    first = Chunk("s", "t", (MapSegment(0, 10, 0),), open=True)
    begun = MapSegment(20 + hole, 21 + hole, 20)
    second = Chunk("s", "t", (begun,), open=True, begin=(20, 20))
    maps = RouteMaps()
    maps.add([row(P0, first), row(P0, second)])
    stored = Position(500 + hole, 0, Provenance("c", "s", "t", "w", 0, 1, 500, mapped=20).encode())
    segments = maps.view(P0, stored).segments()
    assert [forward(segments, offset + hole) for offset in (20, 400, 500)] == [20, 400, 500]
    assert forward(segments, 15) == 15
