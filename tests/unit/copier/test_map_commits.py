"""The offset map in the commits of the ownership thread."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.positions import PositionStore
from ureplicator_common.model import OwnerEpoch, Partition, Route, RouteSettings
from ureplicator_common.offset_map.adoption import MAX_FORMER
from ureplicator_common.offset_map.codec import decode_chunk
from ureplicator_common.offset_map.segments import MapSegment
from ureplicator_testkit.kafka.ledger import Ledger, MemoryPositions
from ureplicator_testkit.kafka.map_log import MemoryMapLog
from ureplicator_worker.copier.ownership.map_commits import MapCommits
from ureplicator_worker.copier.position_values import Commitment, StartPosition
from ureplicator_worker.lifeline.messages import Grant

P0 = Partition(Route("a", "b"), "t", 0)
FRESH = StartPosition(100, 0, 100, "cluster", "source-id", "target-id", target_end=40)
TAKEN_OVER = replace(FRESH, mapped=7)
GRANT = Grant(OwnerEpoch(1), "t", settings=RouteSettings(offset_map=True))


@pytest.fixture
def log() -> MemoryMapLog:
    return MemoryMapLog()


@pytest.fixture
def maps(log: MemoryMapLog) -> MapCommits:
    return MapCommits(log)


STORE: PositionStore = MemoryPositions(Ledger(), "own")


def commit(
    maps: MapCommits, *segments: MapSegment, grant: Grant = GRANT, counts: bool = True
) -> int:
    """Target offset that the position names."""
    item = Commitment(segments[-1].end if segments else 100, 0, grant, FRESH, 0, segments)
    mapped = maps.write({P0: item}, STORE)
    if counts:
        maps.committed({P0: item})
    return mapped[P0].mapped


def test_a_segment_is_written_when_it_begins(maps: MapCommits, log: MemoryMapLog) -> None:
    maps.begin(P0, FRESH)
    assert commit(maps, MapSegment(100, 110, 40)) == 40
    assert commit(maps, MapSegment(100, 190, 40)) == 40
    assert len(log.rows) == 1
    assert commit(maps, MapSegment(100, 190, 40), MapSegment(200, 201, 130)) == 130
    assert len(log.rows) == 2
    value = log.rows[-1].value
    assert value is not None
    assert decode_chunk(value).segments == (MapSegment(100, 190, 40), MapSegment(200, 201, 130))


def test_what_was_not_committed_is_written_again(maps: MapCommits, log: MemoryMapLog) -> None:
    maps.begin(P0, FRESH)
    commit(maps, MapSegment(100, 110, 40), counts=False)
    commit(maps, MapSegment(100, 110, 40))
    assert len(log.rows) == 2
    assert log.rows[0] == log.rows[1]


@pytest.mark.parametrize(
    ("beginning", "begin"),
    [
        (FRESH, (-1, -1)),
        (TAKEN_OVER, (100, 40)),
        (replace(TAKEN_OVER, position=500, gap="retention"), (-1, -1)),
    ],
)
def test_a_map_goes_on_where_the_position_was_committed_with_it(
    maps: MapCommits, log: MemoryMapLog, beginning: StartPosition, begin: tuple[int, int]
) -> None:
    maps.begin(P0, beginning)
    assert commit(maps) == (7 if begin[0] >= 0 else -1)
    commit(maps, MapSegment(100, 110, 40))
    value = log.rows[-1].value
    assert value is not None
    assert decode_chunk(value).begin == begin


def test_refused_the_positions_are_committed_without_the_map(
    maps: MapCommits, log: MemoryMapLog
) -> None:
    maps.begin(P0, TAKEN_OVER)
    log.refuse()
    assert commit(maps, MapSegment(100, 110, 40)) == -1
    log.failure = None
    assert commit(maps, MapSegment(100, 120, 40)) == 40
    value = log.rows[-1].value
    assert value is not None
    assert decode_chunk(value).begin == (-1, -1)


def test_what_was_refused_is_written_later(maps: MapCommits, log: MemoryMapLog) -> None:
    """The lane shows the segments again at the next commit, as none was in what was committed."""
    maps.begin(P0, FRESH)
    first, second = MapSegment(100, 110, 40), MapSegment(120, 130, 55)
    settings = RouteSettings(offset_map=True, replication_factor=3)
    item = Commitment(110, 0, replace(GRANT, settings=settings), FRESH, 0, (first,))
    log.refuse()
    maps.write({P0: item}, STORE)
    assert maps.committed({P0: item})[P0].segments == ()
    log.failure = None
    item = replace(item, position=130, segments=(first, second))
    assert maps.write({P0: item}, STORE)[P0].mapped == second.target
    assert maps.committed({P0: item})[P0].segments == (first, second)
    value = log.rows[-1].value
    assert value is not None
    assert decode_chunk(value).segments == (first, second)
    assert log.replicas == 3


def test_an_unknown_outcome_is_not_hidden(maps: MapCommits, log: MemoryMapLog) -> None:
    maps.begin(P0, FRESH)
    log.failure = ClusterUnavailable("no response")
    with pytest.raises(ClusterUnavailable):
        commit(maps, MapSegment(100, 110, 40))


def test_a_route_without_a_map_writes_nothing(log: MemoryMapLog) -> None:
    off = replace(GRANT, settings=RouteSettings(offset_map=False))
    for maps, grant in ((MapCommits(log), off), (MapCommits(None), GRANT)):
        maps.begin(P0, TAKEN_OVER)
        assert commit(maps, MapSegment(100, 110, 40), grant=grant) == -1
    assert not log.rows


def left(maps: MapCommits, count: int) -> int:
    """Have so many owners write a segment each; the source offset and place of the next one."""
    beginning = FRESH
    for number in range(count):
        maps.begin(P0, replace(beginning, map_chunks=number))
        commit(maps, MapSegment(100 + number, 101 + number, 40 + 2 * number))
    return count


def test_the_position_says_how_many_chunks_there_are(maps: MapCommits) -> None:
    maps.begin(P0, replace(TAKEN_OVER, map_chunks=5))
    item = Commitment(110, 0, GRANT, FRESH, 0, (MapSegment(100, 110, 40),))
    assert maps.write({P0: item}, STORE)[P0] == (40, 6)
    refused = replace(item, grant=replace(GRANT, settings=RouteSettings(offset_map=False)))
    assert maps.write({P0: refused}, STORE)[P0] == (-1, 5)


def test_many_chunks_of_former_owners_are_adopted(maps: MapCommits, log: MemoryMapLog) -> None:
    count = left(maps, MAX_FORMER + 1)
    maps.begin(P0, replace(FRESH, map_chunks=count))
    own = MapSegment(100 + count, 101 + count, 40 + 2 * count)
    commit(maps, own)
    before = len(log.rows)
    log.failure = ClusterUnavailable("no response")
    maps.read_former()
    log.failure = None
    while len(log.rows) == before:
        maps.read_former()
        commit(maps, own)
    reading = log.reading([P0])
    while not reading.step():
        pass
    known = reading.partitions[P0]
    assert len(known.keys) <= 4
    assert {MapSegment(100, 101, 40), own} <= set(known.view().segments())
    assert len(known.view().segments()) == count + 1
    adopted = len(log.rows)
    maps.read_former()
    commit(maps, own)
    assert len(log.rows) == adopted


def test_rows_of_an_aborted_adoption_are_written_again(maps: MapCommits, log: MemoryMapLog) -> None:
    count = left(maps, MAX_FORMER + 1)
    maps.begin(P0, replace(FRESH, map_chunks=count))
    own = MapSegment(100 + count, 101 + count, 40 + 2 * count)
    for _ in range(count):
        maps.read_former()
    rows = len(log.rows)
    commit(maps, own, counts=False)
    first = log.rows[rows:]
    commit(maps, own)
    assert log.rows[rows + len(first) :] == first


def test_another_begin_forgets_what_was_read(maps: MapCommits, log: MemoryMapLog) -> None:
    """Another owner may have changed it in between."""
    count = left(maps, MAX_FORMER + 1)
    maps.begin(P0, replace(FRESH, map_chunks=count))
    for _ in range(count):
        maps.read_former()
    maps.begin(P0, replace(FRESH, map_chunks=2))
    rows = len(log.rows)
    commit(maps, MapSegment(100 + count, 101 + count, 40 + 2 * count))
    assert len(log.rows) == rows + 1


def test_few_chunks_are_left(maps: MapCommits, log: MemoryMapLog) -> None:
    count = left(maps, MAX_FORMER)
    maps.begin(P0, replace(FRESH, map_chunks=count))
    for _ in range(count):
        maps.read_former()
    rows = len(log.rows)
    commit(maps, MapSegment(100 + count, 101 + count, 40 + 2 * count))
    assert len(log.rows) == rows + 1
