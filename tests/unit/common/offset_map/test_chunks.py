"""Maps of partitions, put together from the rows of the topic."""

from __future__ import annotations

import pytest

from ureplicator_common.offset_map.chunks import FULL_SEGMENTS, Chunk
from ureplicator_common.offset_map.codec import encode_chunk
from ureplicator_common.offset_map.partition_map import (
    Bounds,
    Details,
    PartitionMap,
    nothing_to_load,
)
from ureplicator_common.offset_map.segments import MapSegment
from ureplicator_testkit.kafka.offset_maps import map_of

S, T = "source-id", "target-id"


def chunk(*segments: MapSegment, open: bool = False, begin: tuple[int, int] = (-1, -1)) -> Chunk:
    return Chunk(S, T, segments, open=open, begin=begin)


def test_the_open_segment_reaches_to_the_position_that_names_it() -> None:
    known = map_of(chunk(MapSegment(0, 10, 5), open=True))
    assert known.view().segments() == (MapSegment(0, 10, 5),)
    assert known.view(500, 505, mapped=5).segments() == (MapSegment(0, 500, 5),)
    assert known.view(500, 480, mapped=5).segments() == (MapSegment(0, 475, 5),)


def test_a_position_without_the_map_extends_nothing() -> None:
    known = map_of(chunk(MapSegment(0, 10, 5), open=True))
    assert known.view(500, 505, mapped=-1).segments() == known.view().segments()
    assert known.view(500, 505, mapped=99).segments() == known.view().segments()


def test_a_closed_segment_stays() -> None:
    known = map_of(chunk(MapSegment(0, 10, 5)))
    assert known.view(500, 505, mapped=5).segments() == known.view().segments()


def test_the_next_owner_extends_the_segment_of_its_predecessor() -> None:
    first = chunk(MapSegment(0, 10, 0), open=True)
    second = chunk(MapSegment(50, 60, 70), open=True, begin=(50, 50))
    following = MapSegment(50, 60, 70, follows=True)
    assert map_of(first, second).view().segments() == (MapSegment(0, 50, 0), following)


def test_the_next_owner_of_what_was_not_mapped_extends_nothing() -> None:
    first = chunk(MapSegment(0, 10, 0), open=True)
    second = chunk(MapSegment(50, 60, 70), open=True)
    assert map_of(first, second).view().segments() == (MapSegment(0, 10, 0), MapSegment(50, 60, 70))


def test_an_owner_that_goes_on_where_the_other_ended_makes_one_segment() -> None:
    first = chunk(MapSegment(0, 10, 0), open=True)
    second = chunk(MapSegment(50, 60, 50), open=True, begin=(50, 50))
    assert map_of(first, second).view().segments() == (MapSegment(0, 60, 0),)


def test_where_the_last_copy_ends_an_older_one_of_another_chunk_does_not_count() -> None:
    """A consumer that has read the last copies up to there goes on behind them."""
    known = map_of(chunk(MapSegment(0, 20, 0)), chunk(MapSegment(5, 10, 30, repeated=True)))
    assert [known.view().forward(source) for source in (9, 10, 11)] == [34, 35, 11]


def test_a_chunk_is_written_again() -> None:
    before = chunk(MapSegment(0, 10, 0), open=True)
    after = chunk(MapSegment(0, 12, 0), MapSegment(20, 21, 12), open=True)
    assert map_of(before, after).view().segments() == after.segments


def test_a_log_that_lost_its_end_has_none_of_the_chunks_there() -> None:
    lost = map_of(
        chunk(MapSegment(0, 10, 0)), chunk(MapSegment(20, 30, 10)), chunk(MapSegment(7, 9, 7))
    )
    assert lost.view().segments() == (MapSegment(0, 9, 0),)


def test_a_recreated_topic_has_a_map_of_its_own() -> None:
    known = map_of(chunk(MapSegment(0, 10, 0)))
    known.add(encode_chunk(Chunk("other-id", T, (MapSegment(0, 3, 10),))))
    assert known.view().segments() == (MapSegment(0, 3, 10),)
    assert known.topics == ("other-id", T)


@pytest.mark.parametrize(("position", "source"), [(50, 45), (50, 50), (50, 55), (40, 40)])
def test_from_the_position_of_the_next_owner_on_nothing_lies_before_its_first_record(
    position: int, source: int
) -> None:
    """Records whose place is not known may lie before it, behind the last segment."""
    first = chunk(MapSegment(0, 10, 0), open=True)
    second = chunk(MapSegment(60, 70, 80), open=True, begin=(position, 40))
    view = map_of(first, second).view()
    is_behind = source >= position
    assert view.forward(source) == (80 if is_behind else 40)
    assert view.backward(80) == 60
    assert view.backward(60) == (60 if position == 40 else 40)


def test_what_follows_a_chunk_that_was_left_out_is_rounded_down() -> None:
    first, second, third = (
        Chunk(S, T, (MapSegment(20 * n, 20 * n + 10, 10 * n),), level=1, after=10 * n or -1)
        for n in range(3)
    )
    known = map_of(first, second, third)
    assert [known.view().forward(source) for source in (15, 35)] == [10, 20]
    known.remove(10)
    assert [known.view().forward(source) for source in (15, 25, 35, 40)] == [10, 10, 10, 20]
    assert known.view().backward(15) == 10


def test_large_rows_are_loaded_when_an_offset_is_looked_up() -> None:
    many = tuple(MapSegment(3 * n, 3 * n + 1, n, follows=bool(n)) for n in range(FULL_SEGMENTS))
    value = encode_chunk(chunk(*many))
    asked = []

    def load(at: int, target: int) -> bytes:
        asked.append((at, target))
        return value

    known = PartitionMap(load)
    known.add(value, at=7)
    known.add(encode_chunk(chunk(MapSegment(10**6, 10**6 + 1, 10**6), open=True)), at=8)
    assert not asked
    view = known.view()
    assert [view.forward(3 * n - 1) for n in range(1, 100)] == list(range(1, 100))
    assert view.forward(10**6) == 10**6
    assert asked == [(7, 0)]


def test_an_open_chunk_is_copied_once_for_each_position() -> None:
    """Many groups look up offsets in the newest chunk: a copy for each would take most of a pass."""
    details = Details()
    known = PartitionMap(details=details)
    known.add(encode_chunk(chunk(MapSegment(0, 10, 5), open=True)))
    first, then = (
        [details.bounded(nothing_to_load, known.entries[0], Bounds((at, at + 5))) for _ in range(2)]
        for at in (50, 500)
    )
    assert first[0] is first[1]
    assert then[0] is then[1]
    assert [part.segments for part in (first[0], then[0])] == [
        (MapSegment(0, 50, 5),),
        (MapSegment(0, 500, 5),),
    ]
