"""Rebuilt batches hold the same records, whatever format, codec and holes they had."""

import contextlib
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ureplicator_testkit.records import batches
from ureplicator_worker.copier.raw.batches.header import CorruptBatch, Header, Kind, stamp
from ureplicator_worker.copier.raw.batches.rebuild import (
    Built,
    Record,
    build,
    decode,
    merge,
    rebuild,
    split,
)

BYTES = st.none() | st.binary(max_size=40)
TIMES = st.sampled_from([-1, 0, 1, 1_000]) | st.integers(-1, 2**50)
HEADERS = st.lists(st.tuples(st.sampled_from(["", "a", "name", "ключ"]), BYTES), max_size=4)
ROWS = st.lists(st.tuples(TIMES, BYTES, BYTES, HEADERS), min_size=1, max_size=8)
CODECS = st.sampled_from(batches.CODECS)


def taken(data: bytes | bytearray | memoryview) -> list[batches.Row]:
    return [
        (record.timestamp_ms, record.key, record.value, list(record.headers))
        for record in decode(memoryview(data))
    ]


def records(rows: Sequence[batches.Row], *, first: int = 0) -> list[Record]:
    return [Record(first + place, *row) for place, row in enumerate(rows)]


def assert_sendable(built: Built | None, rows: Sequence[batches.Row]) -> None:
    """A batch that a broker takes once it is stamped, with these records."""
    assert built is not None
    header = Header(built.data, 0)
    assert header.kind(0) is Kind.PASS
    assert (header.base_offset, header.records) == (0, len(rows)) == (0, built.records)
    stamp(memoryview(built.data), producer_id=1, producer_epoch=0, sequence=0)
    assert batches.checksum_fits(built.data)
    assert taken(built.data) == [(time, key, value, list(more)) for time, key, value, more in rows]
    latest = max(row[0] for row in rows)
    assert batches.field(built.data, "base_timestamp") == rows[0][0]
    assert batches.field(built.data, "max_timestamp") == latest == built.max_timestamp_ms


@given(ROWS, CODECS)
def test_built_records_are_the_same(rows: list[batches.Row], codec: int) -> None:
    assert_sendable(build(records(rows), codec=codec), rows)


def test_nothing_is_no_batch() -> None:
    assert build([], codec=batches.NONE) is None


@given(ROWS.filter(lambda rows: rows[0][0] != -1), CODECS, st.data())
def test_holes_close_and_what_lies_before_the_position_goes(
    rows: list[batches.Row], codec: int, data: st.DataObject
) -> None:
    gaps = data.draw(st.lists(st.integers(1, 3), min_size=len(rows), max_size=len(rows)))
    deltas = [sum(gaps[: place + 1]) - 1 for place in range(len(rows))]
    stored = batches.batch(rows, base_offset=100, codec=codec, deltas=deltas)
    position = 100 + data.draw(st.integers(0, deltas[-1] + 2))
    built = rebuild(memoryview(stored), position=position)
    left = [place for place, delta in enumerate(deltas) if 100 + delta >= position]
    if not left:
        assert built is None
        return
    assert_sendable(built, [rows[place] for place in left])
    assert built is not None
    assert built.first_offset == 100 + deltas[left[0]]
    assert built.last_offset == 100 + deltas[-1]


@pytest.mark.parametrize("codec", batches.CODECS)
def test_the_codec_stays(codec: int) -> None:
    built = rebuild(memoryview(batches.batch(batches.rows(20, size=200), codec=codec)), position=1)
    assert built is not None
    assert Header(built.data, 0).codec == codec


@pytest.mark.parametrize("codec", batches.CODECS)
def test_the_brokers_time_is_kept_as_create_time(codec: int) -> None:
    stored = batches.patched(
        batches.batch(
            [(5, None, b"a", ()), (9, None, b"b", ())],
            codec=codec,
            attributes=batches.LOG_APPEND_TIME,
        ),
        max_timestamp=7_777,
    )
    built = rebuild(memoryview(stored), position=0)
    assert_sendable(built, [(7_777, None, b"a", ()), (7_777, None, b"b", ())])
    assert built is not None
    assert not Header(built.data, 0).attributes & batches.LOG_APPEND_TIME


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [batches.NONE, batches.GZIP, batches.SNAPPY, batches.LZ4])
def test_old_formats(magic: int, codec: int) -> None:
    if (magic, codec) == (0, batches.LZ4):
        codec = batches.SNAPPY  # format 0 has no LZ4 worth the name
    rows = [(5, b"k", b"v"), (0, None, b""), (7, b"", None)]
    stored = batches.old_batch(rows, magic=magic, codec=codec, base_offset=50)
    if codec == batches.NONE:
        size = len(batches.old_batch(rows[:1], magic=magic, codec=codec))
        stored, rows = stored[:size], rows[:1]
    built = rebuild(memoryview(stored), position=0)
    times = [time if magic else -1 for time, _, _ in rows]
    assert_sendable(
        built, [(time, key, value, ()) for time, (_, key, value) in zip(times, rows, strict=True)]
    )
    assert built is not None
    assert (built.first_offset, built.last_offset) == (50, 50 + len(rows) - 1)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_position_inside_of_an_old_wrapper(magic: int) -> None:
    rows = [(n, b"%d" % n, b"v") for n in range(4)]
    stored = batches.old_batch(rows, magic=magic, codec=batches.GZIP, base_offset=50)
    built = rebuild(memoryview(stored), position=52)
    assert built is not None
    assert (built.first_offset, built.records) == (52, 2)


@given(ROWS, CODECS)
def test_two_halves_are_the_whole(rows: list[batches.Row], codec: int) -> None:
    whole = build(records(rows), codec=codec)
    assert whole is not None
    halves = split(memoryview(whole.data), first_offset=300)
    assert len(halves) == min(2, len(rows))
    middle = halves[0].records
    assert_sendable(halves[0], rows[:middle])
    if len(halves) == 2:
        assert_sendable(halves[1], rows[middle:])
        assert abs(halves[0].records - halves[1].records) <= 1
        assert halves[1].first_offset == 300 + middle
    assert (halves[0].first_offset, halves[-1].last_offset) == (300, 300 + len(rows) - 1)


@given(st.lists(ROWS, min_size=1, max_size=4), CODECS)
def test_merged_is_one_after_the_other(parts: list[list[batches.Row]], codec: int) -> None:
    views = []
    for part in parts:
        built = build(records(part), codec=codec)
        assert built is not None
        views.append(memoryview(bytes(built.data)))
    assert_sendable(merge(views), [row for part in parts for row in part])


CALLS: dict[str, Callable[[memoryview], object]] = {
    "decode": lambda view: list(decode(view)),
    "rebuild": lambda view: rebuild(view, position=0),
    "split": lambda view: split(view, first_offset=0),
    "merge": lambda view: merge([view]),
}


@pytest.mark.parametrize("codec", batches.CODECS[1:])
@pytest.mark.parametrize("call", sorted(CALLS))
def test_a_garbled_payload_is_corrupt(codec: int, call: str) -> None:
    whole = batches.batch(batches.rows(20, size=100), codec=codec)
    garbage = b"\xa7" * (len(whole) - batches.HEADER_BYTES)
    view = memoryview(batches.patched(whole[: batches.HEADER_BYTES] + garbage))
    with pytest.raises(CorruptBatch):
        CALLS[call](view)


@given(st.binary(max_size=120), st.integers(1, 5))
def test_no_payload_is_more_than_corrupt(payload: bytes, count: int) -> None:
    whole = batches.batch(1)[: batches.HEADER_BYTES] + payload
    view = memoryview(
        batches.patched(whole, length=len(whole) - 12, records=count, last_offset_delta=count - 1)
    )
    with contextlib.suppress(CorruptBatch):
        list(decode(view))


@pytest.mark.parametrize("magic", [0, 1])
def test_a_damaged_message_of_an_old_format_is_not_given_a_new_checksum(magic: int) -> None:
    message = bytearray(batches.old_batch([(5, b"k", b"value")], magic=magic, base_offset=3))
    message[-1] ^= 0xFF
    with pytest.raises(CorruptBatch, match="checksum"):
        list(decode(memoryview(message)))
