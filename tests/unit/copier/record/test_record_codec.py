"""Stored batches -> records -> outputs -> batches, judged by another library's records."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ureplicator_testkit.records import batches
from ureplicator_testkit.records.batches import CODECS, Row, batch, decode, old_batch
from ureplicator_worker.batches.header import CorruptBatch
from ureplicator_worker.copier.record import encoding
from ureplicator_worker.copier.record.decoding import Found, StoredRecords
from ureplicator_worker.copier.record.encoding import BadOutput, Builders, murmur2
from ureplicator_worker.handlers import Output, Record

TEXT = st.text(max_size=5)
ROWS = st.lists(
    st.tuples(
        st.integers(0, 1 << 41),
        st.none() | st.binary(max_size=20),
        st.none() | st.binary(max_size=300),
        st.lists(st.tuples(TEXT, st.none() | st.binary(max_size=5)), max_size=3),
    ),
    min_size=1,
    max_size=20,
)
TARGET = ("t", 0)


def read(stored: bytes, position: int = 0) -> tuple[StoredRecords, list[Found]]:
    found = StoredRecords(memoryview(bytearray(stored)), position=position)
    return found, list(found.read(topic="t", partition=0, position=position))


def decoded(stored: bytes, position: int = 0) -> list[Record]:
    return [record for record, _, _ in read(stored, position)[1]]


def rows_of(stored: Sequence[bytearray]) -> list[tuple[object, ...]]:
    return [
        (row.timestamp_ms, row.key, row.value, tuple(row.headers))
        for one in stored
        for row in decode(one)
    ]


@given(ROWS, st.sampled_from(CODECS), st.booleans())
def test_records_pass_unchanged(rows: list[Row], codec: int, spliced: bool) -> None:
    stored, found = read(batch(rows, codec=codec, base_offset=100))
    assert [record.offset for record, _, _ in found] == list(range(100, 100 + len(rows)))
    builders = Builders()
    for record, at, base_offset in found:
        if spliced:
            builders.splice(TARGET, stored, at, 1, base_offset)
        else:
            output = encoding.checked(record)
            rest = encoding.encoded(output)
            builders.append(
                TARGET, rest, offset=record.offset, time_ms=output.timestamp_ms, codec=codec
            )
    ready = list(builders.take())
    assert {made.target for made in ready} == {TARGET}
    expected = [(time, key, value, tuple(headers)) for time, key, value, headers in rows]
    assert rows_of([made.built.data for made in ready]) == expected
    assert ready[0].built.offsets.at(0) == 100


def test_records_before_the_position_are_left_out() -> None:
    stored = batch(batches.rows(10), base_offset=5)
    assert [record.offset for record in decoded(stored, 12)] == [12, 13, 14]


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats(magic: int) -> None:
    rows = [(1_000, b"k", b"v")] * 3
    stored = old_batch(rows, magic=magic, codec=batches.GZIP, base_offset=7)
    assert [record.offset for record in decoded(stored)] == [7, 8, 9]


@given(ROWS, st.data())
def test_garbage_is_a_corrupt_batch(rows: list[Row], data: st.DataObject) -> None:
    stored = bytearray(batch(rows))
    for _ in range(3):
        at = data.draw(st.integers(batches.HEADER_BYTES, len(stored) - 1))
        stored[at] = data.draw(st.integers(0, 255))
    try:
        found = decoded(bytes(stored))
    except (CorruptBatch, UnicodeDecodeError):
        return
    assert len(found) <= len(rows)


def test_a_header_name_that_is_no_utf_8_survives() -> None:
    header = (b"\xff\xfe".decode("utf-8", "surrogateescape"), b"v")
    rest = encoding.encoded(Output(None, b"v", (header,)))
    assert b"\xff\xfe" in rest


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (42, "an output is int, not Record or Output"),
        (Output(b"k", "text"), "value is str, not bytes or None"),  # type: ignore[arg-type]
        (Output(b"k", b"v", headers=(("h",),)), "no pair of a name and bytes"),  # type: ignore[arg-type]
        (Output(b"k", b"v", timestamp_ms="now"), "timestamp_ms is 'now'"),  # type: ignore[arg-type]
        (Output(b"k", b"v", topic=""), "topic is ''"),
        (Output(b"k", b"v", partition="1"), "partition is '1'"),  # type: ignore[arg-type]
        (Output(b"k", b"v", headers=None), "headers are NoneType"),  # type: ignore[arg-type]
    ],
)
def test_outputs_that_no_record_can_be_made_of(output: object, reason: str) -> None:
    with pytest.raises(BadOutput, match=reason):
        encoding.encoded(encoding.checked(output))


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_of_kafkas_default_partitioner(key: bytes, expected: int) -> None:
    """Values of Kafka's own tests."""
    assert murmur2(key) == expected & 0xFFFFFFFF
