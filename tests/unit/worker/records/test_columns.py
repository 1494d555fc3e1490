"""Stored batches become Arrow columns that hold what a consumer reads, and wrong ones are refused."""

import contextlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ureplicator_testkit.records import batches
from ureplicator_testkit.records.batches import decode
from ureplicator_worker.batches.header import LOG_APPEND_TIME, CorruptBatch, Header
from ureplicator_worker.records.columns import MAX_MS, ROUNDS, SCHEMA, RecordColumns

CODECS = (batches.NONE, 1, 2, 3, 4)
LAST_OFFSET = 1 << 60

fields = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=5), fields), max_size=3)
times_ms = st.integers(0, 1 << 42)
rows = st.lists(st.tuples(times_ms, fields, fields, headers), min_size=1, max_size=30)


def columns(*stored: bytes, start: int = 0, end: int = LAST_OFFSET) -> RecordColumns:
    found = RecordColumns(topic="t", partition=3, start=start, end=end)
    for batch in stored:
        found.add(memoryview(batch), Header(batch, 0))
    return found


def taken(*stored: bytes, start: int = 0, end: int = LAST_OFFSET) -> list[dict[str, Any]]:
    batch = columns(*stored, start=start, end=end).take()
    if batch is None:
        return []
    batch.validate(full=True)
    assert batch.schema.equals(SCHEMA)
    found: list[dict[str, Any]] = batch.set_column(
        5, "timestamp", batch.column("timestamp").cast(pa.int64())
    ).to_pylist()
    return found


def consumed(*stored: bytes) -> list[tuple[object, ...]]:
    return [
        (row.offset, row.timestamp_ms, row.key, row.value, list(row.headers) or None)
        for batch in stored
        for row in decode(batch)
    ]


def plain(found: Sequence[dict[str, Any]]) -> list[tuple[object, ...]]:
    return [
        (
            row["offset"],
            row["timestamp"] // 1_000,
            row["key"],
            row["value"],
            row["headers"] and [(header["key"], header["value"]) for header in row["headers"]],
        )
        for row in found
    ]


@given(st.lists(st.tuples(rows, st.sampled_from(CODECS)), min_size=1, max_size=4))
def test_columns_hold_what_a_consumer_reads(written: list[tuple[Any, int]]) -> None:
    stored, offset = [], 1 << 33
    for records, codec in written:
        stored.append(batches.batch(records, base_offset=offset, codec=codec))
        offset += len(records) + 2
    assert plain(taken(*stored)) == consumed(*stored)


@given(rows, st.integers(0, 32), st.integers(0, 32))
def test_only_the_range_is_taken(written: Any, start: int, end: int) -> None:
    stored = batches.batch(written, base_offset=1)
    expected = [row for row in consumed(stored) if start <= int(str(row[0])) < end]
    assert plain(taken(stored, start=start, end=end)) == expected


def test_columns_are_those_of_sparks_kafka_source() -> None:
    (row,) = taken(batches.batch([(5, b"k", b"v", [("h", b"1"), ("h", None)])]))
    assert row == {
        "key": b"k",
        "value": b"v",
        "topic": "t",
        "partition": 3,
        "offset": 0,
        "timestamp": 5_000,
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
    }


def test_holes_of_compaction() -> None:
    stored = batches.batch(batches.rows(3), base_offset=10, deltas=[1, 4, 9])
    assert [row["offset"] for row in taken(stored)] == [11, 14, 19]


def test_times_of_the_broker() -> None:
    stored = batches.batch(batches.rows(3), attributes=LOG_APPEND_TIME)
    assert [(row["timestamp"], row["timestampType"]) for row in taken(stored)] == [
        (1_002_000, 1)
    ] * 3


def test_times_beyond_microseconds() -> None:
    """A producer that takes nanoseconds for milliseconds must not stop a query."""
    (row,) = taken(batches.batch([(1_700_000_000_000_000_000, None, b"v", ())]))
    assert row["timestamp"] == MAX_MS * 1_000


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2])
def test_old_formats(magic: int, codec: int) -> None:
    records = [(1_000 + n, b"k%d" % n if n % 2 else None, b"v%d" % n) for n in range(4)]
    stored = batches.old_batch(records, magic=magic, codec=codec, base_offset=7)
    found = taken(*split(stored), start=8)
    assert [(row["offset"], row["key"], row["value"]) for row in found] == [
        (7 + n, key, value) for n, (_, key, value) in enumerate(records) if n
    ]
    kind, first_us = (0, 1_001_000) if magic else (-1, -1_000)
    assert (found[0]["timestampType"], found[0]["timestamp"]) == (kind, first_us)


def split(stored: bytes) -> list[bytes]:
    """The messages of an old format one by one."""
    found, at = [], 0
    while at < len(stored):
        end = at + 12 + int.from_bytes(stored[at + 8 : at + 12])
        found.append(stored[at:end])
        at = end
    return found


def test_many_headers_beside_few() -> None:
    many = [(f"h{n}", b"%d" % n) for n in range(ROUNDS + 5)]
    rows = [(1, None, b"a", [("x", b"y")]), (1, None, b"b", many), (1, None, b"c", [])]
    stored = batches.batch(rows)
    assert plain(taken(stored)) == consumed(stored)


def test_names_of_headers_that_are_not_utf_8() -> None:
    stored = batches.batch([(1, None, b"v", [("ab", b"1")])])
    garbled = stored.replace(b"ab", b"\xffb")
    (row,) = taken(garbled)
    assert row["headers"] == [{"key": "\ufffdb", "value": b"1"}]


@given(rows, st.data())
def test_garbled_records_are_refused_or_read(written: Any, data: st.DataObject) -> None:
    """Any byte may be wrong: nothing but CorruptBatch is raised, and what is read is a valid column."""
    stored = bytearray(batches.batch(written))
    at = data.draw(st.integers(61, len(stored) - 1))
    stored[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptBatch):
        taken(bytes(stored))


@pytest.mark.parametrize("records", [0, 2, 4, 1 << 30])
def test_another_number_of_records_than_promised(records: int) -> None:
    stored = batches.patched(batches.batch(3), records=records)
    with pytest.raises(CorruptBatch, match="batch at offset 0"):
        columns(stored)


def test_a_refused_batch_leaves_the_others() -> None:
    found = columns(batches.batch(3))
    bad = batches.patched(batches.batch(3, base_offset=3), records=2)
    with pytest.raises(CorruptBatch):
        found.add(memoryview(bad), Header(bad, 0))
    batch = found.take()
    assert batch is not None
    assert batch.num_rows == 3


def test_nothing_collected() -> None:
    assert columns().take() is None
    assert taken(batches.batch(3), start=3) == []
