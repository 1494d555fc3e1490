"""Rounds: which rows they have, how they are divided, and what their results become."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from ureplicator_testkit.copier.memory_sql import ALL, QUERIES
from ureplicator_testkit.records import batches
from ureplicator_worker.copier.record.decoding import StoredRecords
from ureplicator_worker.sql.query import ROW, Query
from ureplicator_worker.sql.results import Emitted, Results
from ureplicator_worker.sql.rounds import Round, Task
from ureplicator_worker.sql.tables import SCHEMA, table_of

HEADERS = (("h", b"1"), ("h", None))


def filled(*chunks: tuple[int, int], size: int = 10) -> Round:
    """Chunks: partition, and number of records; their offsets begin at 100."""
    round_ = Round()
    for partition, count in chunks:
        data = batches.patched(batches.batch(batches.rows(count, size=size)), base_offset=100)
        stored = StoredRecords(memoryview(data), position=0)
        round_.begin(Task("t", partition, "u", 100 + count), 100)
        for found in stored.read(topic="t", partition=partition, position=0):
            round_.add_found(found, stored)
        round_.end(last=True)
    return round_


def results(round_: Round, query: Query, **columns: Any) -> Results:
    rows = columns.pop("rows")
    table = pa.table({ROW: pa.array(rows, pa.int32()), **columns})
    return Results(round_, query, table, partition_count={"u": 3, "w": 2}.get)  # type: ignore[arg-type]


def values(emitted: Emitted) -> dict[tuple[str, int], list[tuple[bytes | None, bytes | None]]]:
    found: dict[tuple[str, int], list[tuple[bytes | None, bytes | None]]] = {}
    for ready in emitted.ready:
        rows = found.setdefault(ready.target, [])
        rows += [(row.key, row.value) for row in batches.decode(ready.built.data)]
    return found


def test_columns_that_the_query_does_not_compute_with_are_null() -> None:
    round_ = filled((4, 2))
    table = table_of(round_, frozenset({"key", "timestamp", "timestampType", "headers"}))
    assert table.schema == SCHEMA
    assert table.column("key").to_pylist() == [b"k0", b"k1"]
    assert table.column("timestamp").cast(pa.int64()).to_pylist() == [1_000_000, 1_001_000]
    assert table.column("timestampType").to_pylist() == [0, 0]
    assert table.column("headers").to_pylist() == [None, None]
    assert table.column("value").null_count == table.column("offset").null_count == 2
    assert table.column(ROW).to_pylist() == [0, 1]


def test_a_round_that_failed_is_divided_by_segments_and_then_in_halves() -> None:
    round_ = filled((0, 3), (1, 4))
    first, second = round_.divided()
    assert [part.rows for part in (first, second)] == [3, 4]
    assert second.segments[0].task is round_.segments[1].task
    left, right = second.divided()
    (of_left,), (of_right,) = left.segments, right.segments
    assert [left.offset(row) for row in range(left.rows)] == [100, 101]
    assert (of_left.next_offset, of_left.last) == (102, False)
    assert (of_right.next_offset, of_right.last) == (104, True)


def test_rows_go_to_their_segments_in_the_order_of_the_source() -> None:
    round_ = filled((0, 2), (1, 2))
    query = Query(None, frozenset(), frozenset(), ("value",))
    found = results(
        round_, query, rows=[3, 0, 2, 3], value=pa.array([b"c", b"a", b"b", b"d"], pa.binary())
    )
    first, second = (found.emitted(segment) for segment in round_.segments)
    assert values(first) == {("u", 0): [(None, b"a")]}
    assert values(second) == {("u", 1): [(None, b"b"), (None, b"c"), (None, b"d")]}
    assert (first.outputs, first.kept, second.outputs, second.kept) == (1, 1, 3, 2)
    assert second.ready[0].built.offsets.runs == ((0, 100), (2, 101))


@pytest.mark.parametrize("rows", [[0, 0], [0, 0, 1], [1, 1, 1], [0, 1, 1]])
def test_records_that_stay_as_they_are_and_come_more_than_once(rows: list[int]) -> None:
    round_ = filled((1, 2))
    emitted = results(round_, QUERIES[ALL], rows=rows).emitted(round_.segments[0])
    keys = [key for key, _ in values(emitted)[("u", 1)]]
    assert keys == [b"k%d" % row for row in rows]
    assert (emitted.outputs, emitted.kept) == (len(rows), len(set(rows)))


def test_records_that_stay_as_they_are_keep_headers_and_times() -> None:
    data = batches.batch([(7, None, None, HEADERS), (8, b"", b"", ()), (9, b"k", b"v", ())])
    stored = StoredRecords(memoryview(data), position=0)
    round_ = Round()
    round_.begin(Task("t", 0, "u", 3), 0)
    for found in stored.read(topic="t", partition=0, position=0):
        round_.add_found(found, stored)
    round_.end(last=True)
    (ready,) = results(round_, QUERIES[ALL], rows=[0, 2]).emitted(round_.segments[0]).ready
    first, second = batches.decode(ready.built.data)
    assert (first.timestamp_ms, first.key, first.value) == (7, None, None)
    assert tuple(first.headers) == HEADERS
    assert (second.timestamp_ms, second.key) == (9, b"k")


def test_null_of_a_result_is_what_the_record_has_at_the_source() -> None:
    round_ = filled((1, 2))
    query = Query(None, frozenset(), frozenset({"key"}), ("value", "timestamp", "partition"))
    emitted = results(
        round_,
        query,
        rows=[0, 1],
        value=pa.array([None, b"x"], pa.binary()),
        timestamp=pa.array([None, 5_000], pa.timestamp("us", tz="UTC")),
        partition=pa.array([None, 2], pa.int64()),
    ).emitted(round_.segments[0])
    assert values(emitted) == {("u", 1): [(b"k0", None)], ("u", 2): [(b"k1", b"x")]}
    own, other = emitted.ready
    assert (own.built.max_timestamp_ms, other.built.max_timestamp_ms) == (1_000, 5)


@pytest.mark.parametrize(
    ("column", "targets"),
    [
        (["t", "u"], [("u", 1), ("u", 1)]),
        ([None, "w"], [("u", 1), ("w", 1)]),
    ],
)
def test_the_source_topic_by_name_means_its_own_target_topic(
    column: list[str | None], targets: list[tuple[str, int]]
) -> None:
    round_ = filled((1, 2))
    query = Query(None, frozenset(), frozenset({"value"}), ("topic",))
    emitted = results(round_, query, rows=[0, 1], topic=pa.array(column)).emitted(
        round_.segments[0]
    )
    assert [ready.target for ready in emitted.ready] == list(dict.fromkeys(targets))


@pytest.mark.parametrize(
    ("name", "column", "reason"),
    [
        ("topic", pa.array(["u", "x"]), "the target has no topic x"),
        ("partition", pa.array([0, 3], pa.int64()), "u has no partition 3: it has 3"),
        ("partition", pa.array([0, -1], pa.int64()), "u has no partition -1: it has 3"),
        (
            "headers",
            pa.array([[], [{"key": None, "value": b"x"}]], SCHEMA.field("headers").type),
            "a header has no key",
        ),
    ],
)
def test_all_outputs_of_a_record_that_fails_are_left_out(
    name: str, column: Any, reason: str
) -> None:
    """The row before it goes; of its own two results the first could have gone, too."""
    round_ = filled((0, 2))
    query = Query(None, frozenset(), frozenset({"value"}), (name,))
    twice = pa.concat_arrays([column.slice(0, 1), column.slice(0, 1), column.slice(1)])
    found = results(round_, query, rows=[0, 1, 1], **{name: twice})
    emitted = found.emitted(round_.segments[0])
    assert emitted.outputs == emitted.kept == 1
    assert emitted.failed is not None
    assert (emitted.failed.row, str(emitted.failed)) == (1, reason)
