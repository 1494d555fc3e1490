"""Rebuilt, merged and split batches hold the same records, whatever format, codec and holes they had."""

from collections.abc import Callable, Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ureplicator_testkit.records import batches
from ureplicator_testkit.records.batches import decode
from ureplicator_worker.batches.header import CorruptBatch, Header, Kind, stamp
from ureplicator_worker.batches.offsets import SourceOffsets
from ureplicator_worker.batches.rebuild import merge, rebuild, split
from ureplicator_worker.batches.records import Built

BYTES = st.none() | st.binary(max_size=40)
TIMES = st.sampled_from([0, 1, 1_000]) | st.integers(0, 2**50)
HEADERS = st.lists(st.tuples(st.sampled_from(["", "a", "name", "ключ"]), BYTES), max_size=4)
ROW = st.tuples(TIMES, BYTES, BYTES, HEADERS)
ROWS = st.lists(ROW, min_size=1, max_size=8)
CODECS = st.sampled_from(batches.CODECS)


def stored(data: bytes) -> tuple[memoryview, Header]:
    return memoryview(data), Header(data, 0)


def rebuilt(data: bytes, position: int = 0) -> Built | None:
    return rebuild(*stored(data), position=position)


def taken(data: bytes | bytearray | memoryview) -> list[batches.Row]:
    return [
        (record.timestamp_ms, record.key, record.value, list(record.headers))
        for record in decode(data)
    ]


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


def offsets_of(built: Built) -> list[int]:
    return [built.offsets.at(index) for index in range(built.records)]


@given(ROWS, CODECS, st.data())
def test_holes_close_and_what_lies_before_the_position_goes(
    rows: list[batches.Row], codec: int, data: st.DataObject
) -> None:
    gaps = data.draw(st.lists(st.integers(1, 3), min_size=len(rows), max_size=len(rows)))
    offsets = [99 + gap for gap in accumulate(gaps)]
    whole = batches.batch(
        rows, base_offset=100, codec=codec, deltas=[offset - 100 for offset in offsets]
    )
    position = data.draw(st.integers(100, offsets[-1] + 2))
    built = rebuilt(whole, position)
    left = [place for place, offset in enumerate(offsets) if offset >= position]
    if not left:
        assert built is None
        return
    assert_sendable(built, [rows[place] for place in left])
    assert built is not None
    assert offsets_of(built) == offsets[-len(left) :]


@pytest.mark.parametrize("codec", batches.CODECS)
def test_a_batch_of_many_records_of_all_sizes(codec: int) -> None:
    """Numbers of one, two and three bytes in every place."""
    rows: list[batches.Row] = [
        (10**12 - 7 * n * (-1) ** n, b"%d" % n, b"x" * (n % 30 * (n % 30)), ())
        for n in range(17_000)
    ]
    built = rebuilt(batches.batch(rows, codec=codec), 3)
    assert_sendable(built, rows[3:])


@pytest.mark.parametrize("codec", batches.CODECS)
def test_the_codec_stays(codec: int) -> None:
    built = rebuilt(batches.batch(batches.rows(20, size=200), codec=codec), 1)
    assert built is not None
    assert Header(built.data, 0).codec == codec


@pytest.mark.parametrize("codec", batches.CODECS)
def test_the_brokers_time_is_kept_as_create_time(codec: int) -> None:
    whole = batches.patched(
        batches.batch(
            [(5, None, b"a", ()), (9, None, b"b", ())],
            codec=codec,
            attributes=batches.LOG_APPEND_TIME,
        ),
        max_timestamp=7_777,
    )
    built = rebuilt(whole)
    assert_sendable(built, [(7_777, None, b"a", ()), (7_777, None, b"b", ())])
    assert built is not None
    assert not Header(built.data, 0).attributes & batches.LOG_APPEND_TIME


@pytest.mark.parametrize("codec", batches.CODECS)
def test_records_without_a_time(codec: int) -> None:
    rows: list[batches.Row] = [(1, None, b"a", ()), (2, None, b"b", ()), (1, None, b"c", ())]
    whole = batches.patched(batches.batch(rows, codec=codec), base_timestamp=-1, max_timestamp=0)
    assert_sendable(rebuilt(whole), [(row[0] - 2, *row[1:]) for row in rows])


def test_a_header_name_that_is_no_text_stays_as_it_is() -> None:
    """Kafka's brokers take any bytes."""
    row: batches.Row = (1, b"k", b"v", [("name", b"1")])
    whole = batches.batch([row, row], deltas=[0, 3]).replace(b"name", b"\xff\xfe\x00x")
    built = rebuilt(batches.patched(whole))
    assert built is not None
    assert built.data.count(b"\xff\xfe\x00x") == 2
    assert_sendable(
        rebuilt(batches.patched(bytes(built.data).replace(b"\xff\xfe\x00x", b"name"))), [row] * 2
    )


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [batches.NONE, batches.GZIP, batches.SNAPPY, batches.LZ4])
def test_old_formats(magic: int, codec: int) -> None:
    if (magic, codec) == (0, batches.LZ4):
        codec = batches.SNAPPY  # format 0 has no LZ4 worth the name
    rows = [(5, b"k", b"v"), (0, None, b""), (7, b"", None)]
    whole = batches.old_batch(rows, magic=magic, codec=codec, base_offset=50)
    if codec == batches.NONE:
        size = len(batches.old_batch(rows[:1], magic=magic, codec=codec))
        whole, rows = whole[:size], rows[:1]
    built = rebuilt(whole)
    times = [time if magic else -1 for time, _, _ in rows]
    assert_sendable(
        built, [(time, key, value, ()) for time, (_, key, value) in zip(times, rows, strict=True)]
    )
    assert built is not None
    assert (built.first_offset, built.last_offset) == (50, 50 + len(rows) - 1)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_position_inside_of_an_old_wrapper(magic: int) -> None:
    rows = [(n, b"%d" % n, b"v") for n in range(4)]
    whole = batches.old_batch(rows, magic=magic, codec=batches.GZIP, base_offset=50)
    built = rebuilt(whole, 52)
    assert built is not None
    assert (built.first_offset, built.records) == (52, 2)


@given(ROWS, CODECS)
def test_two_halves_are_the_whole(rows: list[batches.Row], codec: int) -> None:
    """The offsets of the whole may have holes; those of the halves are theirs."""
    offsets = SourceOffsets(tuple((index, 300 + 10 * index) for index in range(len(rows))))
    halves = split(memoryview(batches.batch(rows, codec=codec)), offsets)
    assert len(halves) == min(2, len(rows))
    middle = halves[0].records
    assert_sendable(halves[0], rows[:middle])
    if len(halves) == 2:
        assert_sendable(halves[1], rows[middle:])
        assert abs(halves[0].records - halves[1].records) <= 1
    found = [offset for half in halves for offset in offsets_of(half)]
    assert found == [300 + 10 * index for index in range(len(rows))]


@given(st.lists(ROWS, min_size=1, max_size=4), CODECS, st.integers(0, 5))
def test_merged_is_one_after_the_other(
    parts: list[list[batches.Row]], codec: int, hole: int
) -> None:
    at, found = 0, []
    offsets: list[int] = []
    for part in parts:
        found.append(stored(batches.batch(part, codec=codec, base_offset=at)))
        offsets += range(at, at + len(part))
        at += len(part) + hole
    built = merge(found, position=0)
    assert_sendable(built, [row for part in parts for row in part])
    assert built is not None
    assert offsets_of(built) == offsets
    assert len(built.offsets.runs) == (len(parts) if hole else 1)


@pytest.mark.parametrize("codec", batches.CODECS)
def test_all_kinds_are_merged(codec: int) -> None:
    """Batches that are whole, have holes, are of the older formats, or stamped."""
    old = (
        []
        if codec == batches.ZSTD
        else [
            batches.old_batch(
                [(5, b"k", b"v"), (6, None, b"")], magic=1, codec=codec, base_offset=30
            )
        ]
    )
    stamped = batches.batch(2, base_offset=20, codec=codec, attributes=batches.LOG_APPEND_TIME)
    parts = [
        batches.batch(3, base_offset=10, codec=codec),
        batches.batch(2, base_offset=14, codec=codec, deltas=[1, 3]),
        batches.patched(stamped, max_timestamp=77),
        *(batch for batch in old if codec != batches.NONE),
        batches.batch(1, base_offset=40, codec=codec),
    ]
    wanted = [row for part in parts for row in taken(part)]
    built = merge([stored(part) for part in parts], position=11)
    assert_sendable(built, wanted[1:])
    assert built is not None
    inside = [30, 31] if len(parts) > 4 else []
    assert offsets_of(built) == [11, 12, 15, 17, 20, 21, *inside, 40]


@given(st.data())
def test_offsets_of_a_part_are_those_of_the_whole(data: st.DataObject) -> None:
    gaps = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=12))
    numbers = list(accumulate(gaps))
    runs = tuple(
        (index, number)
        for index, number in enumerate(numbers)
        if index == 0 or number != numbers[index - 1] + 1
    )
    start = data.draw(st.integers(0, len(numbers) - 1))
    stop = data.draw(st.integers(start + 1, len(numbers)))
    part = SourceOffsets(runs).part(start, stop)
    assert [part.at(index) for index in range(stop - start)] == numbers[start:stop]
    assert len(part.runs) <= len(runs)


CALLS: dict[str, Callable[[bytes], object]] = {
    "rebuild": rebuilt,
    "split": lambda data: split(memoryview(data), SourceOffsets.from_(0)),
    "merge": lambda data: merge([stored(data)], position=0),
}


@pytest.mark.parametrize("codec", batches.CODECS[1:])
@pytest.mark.parametrize("call", sorted(CALLS))
def test_a_garbled_payload_is_corrupt(codec: int, call: str) -> None:
    whole = batches.batch(batches.rows(20, size=100), codec=codec)
    garbage = b"\xa7" * (len(whole) - batches.HEADER_BYTES)
    with pytest.raises(CorruptBatch):
        CALLS[call](batches.patched(whole[: batches.HEADER_BYTES] + garbage))


@pytest.mark.parametrize("magic", [0, 1])
def test_a_damaged_message_of_an_old_format_is_not_given_a_new_checksum(magic: int) -> None:
    message = bytearray(batches.old_batch([(5, b"k", b"value")], magic=magic, base_offset=3))
    message[-1] ^= 0xFF
    with pytest.raises(CorruptBatch, match="checksum"):
        rebuilt(bytes(message))
