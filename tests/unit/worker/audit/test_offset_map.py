"""Additions of an audit to the offset map of a route, and its refusals."""

from dataclasses import replace
from uuid import UUID

import pytest

from ureplicator_common.kafka import topic_id_text
from ureplicator_common.model import Partition, Route
from ureplicator_common.offset_map.chunks import Chunk
from ureplicator_common.offset_map.codec import decode_key, encode_chunk
from ureplicator_common.offset_map.partition_map import PartitionMap
from ureplicator_common.offset_map.segments import MapSegment
from ureplicator_common.offset_map.writing import CHUNK_SEGMENTS
from ureplicator_worker.audit.offset_map import Mapped, plan, rows_of
from ureplicator_worker.audit.result import AuditResult, PartitionResult

ROUTE = Route("a", "b")
PARTITION = Partition(ROUTE, "orders", 0)
SOURCE, TARGET = UUID(int=1), UUID(int=2)
COMPARED = PartitionResult(0, 0, 300, target_to=300, end=300, compared=300)
WHOLE = MapSegment(0, 300, 0)


def result(*segments: MapSegment, done: PartitionResult = COMPARED) -> AuditResult:
    return AuditResult(
        str(ROUTE),
        "orders",
        "orders",
        (done,),
        source_topic_id=topic_id_text(SOURCE),
        target_topic_id=topic_id_text(TARGET),
        segments={0: segments},
    )


def copiers_map(*segments: MapSegment, source: UUID = SOURCE) -> PartitionMap:
    found = PartitionMap()
    found.add(encode_chunk(Chunk(str(source), str(TARGET), segments, open=True)))
    return found


def with_rows(known: PartitionMap, found: AuditResult, planned: list[Mapped]) -> PartitionMap:
    for row in rows_of(found, planned):
        assert decode_key(row.key).partition == PARTITION
        assert row.value is not None
        known.add(row.value)
    return known


def test_without_a_map_all_is_added() -> None:
    found = result(WHOLE)
    planned = list(plan(found, {}))
    assert planned == [Mapped(0, (WHOLE,))]
    assert with_rows(PartitionMap(), found, planned).view().segments() == (WHOLE,)


def test_what_copiers_have_written_stays() -> None:
    known = copiers_map(MapSegment(200, 250, 205))
    found = result(WHOLE)
    planned = list(plan(found, {PARTITION: known}))
    assert planned == [Mapped(0, (MapSegment(0, 205, 0),))]
    whole = with_rows(known, found, planned)
    assert whole.view().segments() == (MapSegment(0, 205, 0), MapSegment(200, 250, 205))
    assert whole.view(290, 295, mapped=205).segments()[-1] == MapSegment(200, 290, 205)


def test_a_second_time_nothing_is_added() -> None:
    found = result(WHOLE)
    known = with_rows(PartitionMap(), found, list(plan(found, {})))
    (again,) = plan(found, {PARTITION: known})
    assert (again.segments, again.reason) == ((), "the map has all that was compared")


def test_many_segments_are_several_rows() -> None:
    each = [MapSegment(n, n + 1, 2 * n) for n in range(2 * CHUNK_SEGMENTS + 1)]
    found = result(*each)
    planned = list(plan(found, {}))
    rows = list(rows_of(found, planned))
    assert len(rows) == 3
    assert with_rows(PartitionMap(), found, planned).view().segments() == tuple(each)


def test_a_map_of_a_former_topic_ends() -> None:
    known = copiers_map(MapSegment(0, 50, 0), source=UUID(int=9))
    found = result(WHOLE)
    planned = list(plan(found, {PARTITION: known}))
    assert with_rows(known, found, planned).view().segments() == (WHOLE,)


@pytest.mark.parametrize(
    ("done", "reason"),
    [
        (replace(COMPARED, missing=2, altered=1), "records differ: 3"),
        (replace(COMPARED, foreign=1), "records differ: 1"),
        (replace(COMPARED, end=400), "it was not compared to the end"),
        (replace(COMPARED, uncompared="the target has no records"), "the target has no records"),
    ],
)
def test_what_is_not_equal_to_its_end_is_refused(done: PartitionResult, reason: str) -> None:
    found = result(WHOLE, done=done)
    assert list(plan(found, {})) == [Mapped(0, reason=reason)]
    assert not list(rows_of(found, plan(found, {})))


def test_a_topic_of_a_handler_is_refused() -> None:
    found = replace(result(), not_comparable="its records go through a handler")
    assert list(plan(found, {})) == [Mapped(0, reason="its records go through a handler")]


def test_repeats_refuse_nothing() -> None:
    copy = MapSegment(100, 200, 200, repeated=True)
    done = replace(COMPARED, repeated=100)
    assert list(plan(result(MapSegment(0, 200, 0), copy, done=done), {})) == [
        Mapped(0, (MapSegment(0, 200, 0), copy))
    ]
