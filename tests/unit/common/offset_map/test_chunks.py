"""Maps of partitions, put together from the rows of the topic."""

from __future__ import annotations

from ureplicator_common.offset_map.chunks import Chunk, PartitionMap, thinner
from ureplicator_common.offset_map.segments import MapSegment

S, T = "source-id", "target-id"


def chunk(*segments: MapSegment, open: bool = False, begin: tuple[int, int] = (-1, -1)) -> Chunk:
    return Chunk(S, T, segments, open=open, begin=begin)


def of(*chunks: Chunk) -> PartitionMap:
    known = PartitionMap()
    for each in chunks:
        known.add(each)
    return known


def test_the_open_segment_reaches_to_the_position_that_names_it() -> None:
    known = of(chunk(MapSegment(0, 10, 5), open=True))
    assert known.segments() == (MapSegment(0, 10, 5),)
    assert known.until(500, 505, mapped=5) == (MapSegment(0, 500, 5),)
    assert known.until(500, 480, mapped=5) == (MapSegment(0, 475, 5),)


def test_a_position_without_the_map_extends_nothing() -> None:
    known = of(chunk(MapSegment(0, 10, 5), open=True))
    assert known.until(500, 505, mapped=-1) == known.segments()
    assert known.until(500, 505, mapped=99) == known.segments()


def test_a_closed_segment_stays() -> None:
    known = of(chunk(MapSegment(0, 10, 5)))
    assert known.until(500, 505, mapped=5) == known.segments()


def test_the_next_owner_extends_the_segment_of_its_predecessor() -> None:
    first = chunk(MapSegment(0, 10, 0), open=True)
    second = chunk(MapSegment(50, 60, 70), open=True, begin=(50, 50))
    assert of(first, second).segments() == (MapSegment(0, 50, 0), MapSegment(50, 60, 70))


def test_the_next_owner_of_what_was_not_mapped_extends_nothing() -> None:
    first = chunk(MapSegment(0, 10, 0), open=True)
    second = chunk(MapSegment(50, 60, 70), open=True)
    assert of(first, second).segments() == (MapSegment(0, 10, 0), MapSegment(50, 60, 70))


def test_an_owner_that_goes_on_where_the_other_ended_makes_one_segment() -> None:
    first = chunk(MapSegment(0, 10, 0), open=True)
    second = chunk(MapSegment(50, 60, 50), open=True, begin=(50, 50))
    assert of(first, second).segments() == (MapSegment(0, 60, 0),)


def test_a_chunk_is_written_again() -> None:
    before = chunk(MapSegment(0, 10, 0), open=True)
    after = chunk(MapSegment(0, 12, 0), MapSegment(20, 21, 12), open=True)
    assert of(before, after).segments() == after.segments


def test_a_log_that_lost_its_end_has_none_of_the_chunks_there() -> None:
    lost = of(
        chunk(MapSegment(0, 10, 0)), chunk(MapSegment(20, 30, 10)), chunk(MapSegment(7, 9, 7))
    )
    assert lost.segments() == (MapSegment(0, 9, 0),)


def test_a_recreated_topic_has_a_map_of_its_own() -> None:
    known = of(chunk(MapSegment(0, 10, 0)))
    known.add(Chunk("other-id", T, (MapSegment(0, 3, 10),)))
    assert known.segments() == (MapSegment(0, 3, 10),)
    assert known.topics == ("other-id", T)


def test_thinner_chunks_keep_their_place() -> None:
    older, newer = (
        chunk(*(MapSegment(10 * n, 10 * n + 5, 5 * n) for n in range(first, first + 4)))
        for first in (0, 4)
    )
    newest = chunk(MapSegment(80, 85, 40), open=True)
    known = of(older, newer, newest)
    known.add(thinner(older, newer))
    known.remove(newer.target)
    assert [each.first for each in known.segments()] == [0, 20, 40, 60, 80]
    known.remove(0)
    known.remove(40)
    assert not known
