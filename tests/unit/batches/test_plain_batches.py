"""Small plain batches are merged in one step: with the same outcome as in the general way."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ureplicator_common.model import OwnerEpoch, Partition, Route, RouteSettings
from ureplicator_testkit.kafka.batch_log import BatchLog
from ureplicator_testkit.records import batches
from ureplicator_testkit.records.batches import HEADER_BYTES, Row
from ureplicator_worker.batches.codecs import decompress
from ureplicator_worker.batches.header import CorruptBatch, Header
from ureplicator_worker.batches.merge_rules import LARGE_BYTES
from ureplicator_worker.batches.plain import PlainRecords, Taken
from ureplicator_worker.batches.records import read_zigzag
from ureplicator_worker.copier.net.buffers import BufferPool
from ureplicator_worker.copier.position_values import StartPosition
from ureplicator_worker.copier.raw import ingest as ingesting
from ureplicator_worker.copier.raw.partition import RawPartition
from ureplicator_worker.lifeline.messages import Grant
from ureplicator_worker.wire.fetch_api import Fetched

AT = Partition(Route("a", "b"), "t", 0)
ID = "6a5f0d4e-5b0f-4d57-9a43-1f1f4f1b7a01"
NOW_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Outcome:
    """Source offset, time, and the other bytes of each record that is queued; where fetching goes on."""

    records: list[tuple[object, ...]]
    fetch_offset: int
    leader_epoch: int
    position: int
    corrupt: bool
    used_bytes: int


def contents(view: memoryview, header: Header) -> Iterator[tuple[int, bytes]]:
    """Time and the rest of each record; of a batch that cannot be read, its bytes."""
    data = bytes(decompress(header.codec, view[HEADER_BYTES:], limit_bytes=1 << 20))
    at, found = 0, []
    try:
        for index in range(header.records):
            length, at = read_zigzag(data, at)
            end, attributes = at + length, data[at]
            delta_ms, at = read_zigzag(data, at + 1)
            delta, at = read_zigzag(data, at)
            assert delta == index
            assert at <= end <= len(data)
            found.append((header.base_timestamp_ms + delta_ms, bytes([attributes]) + data[at:end]))
            at = end
        assert at == len(data)
    except (IndexError, CorruptBatch, AssertionError):
        found = [(header.base_timestamp_ms, data)]
    yield from found


def outcome(
    data: bytes, *, position: int = 0, high_watermark: int = 1_000, verify_crc: bool = True
) -> Outcome:
    grant = Grant(OwnerEpoch(1), "t", settings=RouteSettings(verify_crc=verify_crc))
    raw = RawPartition.begin(AT, grant, StartPosition(position, -1, 0, "A", ID, ID))
    raw.window.restart(1, 0)
    pool = BufferPool(limit_bytes=1 << 20)
    lease = pool.lease(len(data))
    lease.view[:] = data
    fetched = Fetched((b"t", 0), error=0, high_watermark=high_watermark, last_stable=high_watermark)
    fetched.start, fetched.end = 0, len(data)
    corrupt = False
    try:
        ingesting.ingest(raw.fetch, fetched, lease)
    except CorruptBatch:
        corrupt = True
    finally:
        lease.release()
    records: list[tuple[object, ...]] = []
    while (batch := raw.window.next()) is not None:
        header = Header(batch.view, 0)
        assert header.last_offset == header.records - 1
        for index, (time_ms, rest) in enumerate(contents(batch.view, header)):
            records.append((batch.source_offsets().at(index), time_ms, rest))
        raw.window.acknowledged(batch, -1)
    fetch = raw.fetch
    used_bytes = pool.used_bytes
    return Outcome(
        records, fetch.offset, fetch.leader_epoch, raw.window.position, corrupt, used_bytes
    )


def in_the_general_way(
    data: bytes, *, position: int = 0, high_watermark: int = 1_000, verify_crc: bool = True
) -> Outcome:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingesting, "_ingest_plain", lambda *_: False)
        return outcome(
            data, position=position, high_watermark=high_watermark, verify_crc=verify_crc
        )


TIMES = st.integers(-5, 200) | st.sampled_from([-(10**13), 20_000, 10**13])
VALUES = (
    st.none()
    | st.binary(max_size=3)
    | st.sampled_from([b"x" * n for n in (50, 56, 57, 58, 63, 64, 900)])
)
HEADERS = st.just(()) | st.just((("name", b"value"), ("none", None)))
ROWS: st.SearchStrategy[Row] = st.tuples(
    TIMES.map(lambda delta_ms: NOW_MS + delta_ms), st.none() | st.just(b"key"), VALUES, HEADERS
)
MANY = st.lists(ROWS, min_size=1, max_size=3)
PLAIN = st.lists(ROWS, min_size=1, max_size=1) | MANY


def put(log: BatchLog, rows: list[Row], kind: str) -> None:
    if kind == "compressed":
        log.put(batches.batch(rows, codec=batches.GZIP))
    elif kind == "stamped":
        log.put(batches.batch(rows, attributes=batches.LOG_APPEND_TIME))
    elif kind == "transactional":
        log.put(batches.batch(rows, producer_id=7, attributes=batches.TRANSACTIONAL))
        log.put(batches.marker(base_offset=0, producer_id=7, commit=True))
    elif kind == "holes":
        log.put(batches.batch(rows, deltas=[2 * place + 1 for place in range(len(rows))]))
    elif kind == "old":
        old = [row[:3] for row in rows]
        log.taken.append(batches.old_batch(old, magic=1, base_offset=log.end))
        log.end += len(rows)
    elif kind == "large":
        log.put(batches.batch([(NOW_MS, None, b"l" * 9_000, ())]))
    elif kind == "of a producer with defaults":
        log.put(
            batches.batch([(NOW_MS + n * 9, b"%d" % n, b"v" * (900 + n), ()) for n in range(16)])
        )
    elif kind == "of many records":
        log.put(batches.batch([(NOW_MS + n, b"%d" % n, b"v" * 200, ()) for n in range(70)]))
    elif kind == "compacted away":
        log.end += 3
    elif kind == "empty":
        log.put(batches.emptied(batches.batch(rows)))
    else:
        log.put(batches.batch(rows))


OTHERS = (
    "compressed",
    "stamped",
    "transactional",
    "holes",
    "old",
    "large",
    "of a producer with defaults",
    "of many records",
    "compacted away",
    "empty",
)
KINDS = st.sampled_from(["plain"] * 12 + list(OTHERS))


@given(
    st.lists(st.tuples(PLAIN, KINDS), max_size=12),
    st.integers(0, 6),
    st.sampled_from([1_000, 3, 5]),
    st.integers(0, 40),
    st.booleans(),
)
@example([([(NOW_MS, None, None, ())], "plain")] * 5, 0, 1_000, 0, True)
@example([([(NOW_MS, None, None, ())], "plain")] * 5, 0, 1_000, 1, False)
@example([([], "of a producer with defaults")] * 5, 0, 1_000, 0, True)
@example([([], "of a producer with defaults"), ([], "of many records")] * 5, 0, 1_000, 9, True)
def test_the_outcome_is_that_of_the_general_way(
    stored: list[tuple[list[Row], str]],
    position: int,
    high_watermark: int,
    cut_bytes: int,
    verify_crc: bool,
) -> None:
    log = BatchLog(end=0, epoch=3)
    for rows, kind in stored:
        put(log, rows, kind)
    data = b"".join(log.taken)
    data = data[: max(0, len(data) - cut_bytes)]
    found = outcome(data, position=position, high_watermark=high_watermark, verify_crc=verify_crc)
    assert found == in_the_general_way(
        data, position=position, high_watermark=high_watermark, verify_crc=verify_crc
    )


@given(st.integers(0, 3), st.data())
def test_garbled_bytes_are_found_as_in_the_general_way(flips: int, data: st.DataObject) -> None:
    log = BatchLog(end=0, epoch=3)
    for rows in data.draw(st.lists(PLAIN, min_size=5, max_size=8)):
        log.put(batches.batch(rows))
    stored = bytearray(b"".join(log.taken))
    for _ in range(flips):
        stored[data.draw(st.integers(0, len(stored) - 1))] ^= data.draw(st.integers(1, 255))
    assert outcome(bytes(stored)) == in_the_general_way(bytes(stored))


ROW: Row = (NOW_MS, b"k", b"value" * 14, ())


@pytest.mark.parametrize("codec", [0, batches.GZIP])
def test_an_offset_that_was_read_is_not_read_again(codec: int) -> None:
    """A garbled base offset: no checksum covers it. Consumers of the source leave such records out, too."""
    whole = [
        batches.batch([ROW] * rows, codec=codec, base_offset=base)
        for base, rows in ((0, 1), (1, 1), (2, 3), (6, 1), (6, 2), (8, 1))
    ]
    data = b"".join(whole)
    for found in (outcome(data), in_the_general_way(data)):
        assert [row[0] for row in found.records] == [0, 1, 2, 3, 4, 6, 7, 8]
        assert not found.corrupt


def garbled(place: int, byte: int, *, rows: int, size: int) -> bytes:
    """A batch with another byte in its last record, and a correct checksum."""
    row: Row = (NOW_MS, b"k", b"v" * size, ())
    whole = bytearray(batches.batch([row] * rows))
    whole[len(batches.batch([row] * (rows - 1))) + place if rows > 1 else HEADER_BYTES + place] = (
        byte
    )
    return batches.patched(bytes(whole))


@pytest.mark.parametrize("place", range(8))
@pytest.mark.parametrize("byte", [0, 1, 2, 0x7F, 0x80, 0xFF])
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("size", [10, 70])
def test_a_record_with_other_numbers_has_the_outcome_of_the_general_way(
    place: int, byte: int, rows: int, size: int
) -> None:
    """The checksum is right, so the bytes are the producer's."""
    log = BatchLog(end=0, epoch=3)
    log.put(
        *[batches.batch([ROW])] * 5,
        garbled(place, byte, rows=rows, size=size),
        batches.batch([ROW]),
    )
    data = b"".join(log.taken)
    assert outcome(data) == in_the_general_way(data)


def test_a_batch_with_fewer_records_than_it_promises_is_left_as_it_is() -> None:
    log = BatchLog(end=0, epoch=3)
    log.put(*[batches.batch([ROW])] * 5)
    log.put(batches.patched(batches.batch([ROW]), records=3, last_offset_delta=2))
    data = b"".join(log.taken)
    assert outcome(data) == in_the_general_way(data)


def test_the_latest_time_is_that_of_the_merged_batch() -> None:
    log = BatchLog(end=0, epoch=3)
    log.put(*[batches.batch([(NOW_MS + delta_ms, None, None, ())]) for delta_ms in (0, 5, 3, 4)])
    records = PlainRecords()
    data = memoryview(b"".join(log.taken))
    assert take(records, data).batches == 4
    built = records.build(codec=0)
    assert built is not None
    assert built.max_timestamp_ms == NOW_MS + 5


def test_offsets_that_no_log_has_are_corrupt() -> None:
    """Beyond the end, and not where the log goes on."""
    log = BatchLog(end=0, epoch=3)
    log.put(*[batches.batch([ROW])] * 5)
    log.end = 1_000
    log.put(batches.batch([ROW]))
    found = outcome(b"".join(log.taken), position=0, high_watermark=500)
    assert (found.fetch_offset, found.corrupt) == (5, True)


@pytest.mark.parametrize("later_ms", [(1 << 14) - 1, 1 << 14])
def test_a_time_that_needs_three_bytes_has_the_outcome_of_the_general_way(later_ms: int) -> None:
    """Numbers of up to two bytes are looked up."""
    rows = [(NOW_MS, None, None, ()), *[(NOW_MS + later_ms, None, None, ())] * 4]
    log = BatchLog(end=0, epoch=3)
    log.put(*[batches.batch([row]) for row in rows])
    found = outcome(b"".join(log.taken))
    assert [row[:2] for row in found.records] == [(at, row[0]) for at, row in enumerate(rows)]


def test_numbers_of_three_bytes_are_written() -> None:
    """One batch has so many records that their offsets take three bytes."""
    one = batches.batch([(NOW_MS, None, None, ())])
    count = 17_000
    data = b"".join(
        batches.patched(one, base_offset=place, base_timestamp=NOW_MS + place // 2)
        for place in range(count)
    )
    found = outcome(data, position=0, high_watermark=count)
    assert [row[:2] for row in found.records] == [
        (place, NOW_MS + place // 2) for place in range(count)
    ]


def take(
    records: PlainRecords, data: memoryview, *, position: int = 0, batch_bytes: int = 8_192
) -> Taken:
    return records.take_plain(
        data,
        0,
        len(data),
        position=position,
        end_offset=1_000,
        batch_bytes=batch_bytes,
        limit_bytes=1 << 18,
        check_crc=True,
    )


def test_the_batches_of_a_producer_with_defaults_are_taken_at_once() -> None:
    """They are taken also where portions end within one; but not if they hold many records."""
    log = BatchLog(end=0, epoch=3)
    for _ in range(12):
        put(log, [], "of a producer with defaults")
    many_at = sum(map(len, log.taken))
    put(log, [], "of many records")
    data = memoryview(b"".join(log.taken))
    records = PlainRecords()
    taken = take(records, data, batch_bytes=LARGE_BYTES)
    assert (taken.batches, taken.at, taken.next_offset) == (12, many_at, 12 * 16)
    assert take(PlainRecords(), data).batches == 0


@pytest.mark.parametrize("place", [21, 100, 3_000, 14_000])
def test_a_large_batch_with_a_wrong_checksum_is_not_taken(place: int) -> None:
    log = BatchLog(end=0, epoch=3)
    for _ in range(5):
        put(log, [], "of a producer with defaults")
    third_ends_at = sum(map(len, log.taken[:3]))
    stored = bytearray(b"".join(log.taken))
    stored[third_ends_at + place] ^= 1
    taken = take(PlainRecords(), memoryview(stored), batch_bytes=LARGE_BYTES)
    assert taken.batches == 3
    assert outcome(bytes(stored)).corrupt


def test_all_small_plain_batches_are_taken_at_once() -> None:
    """The other tests would compare the general way with itself otherwise."""
    log = BatchLog(end=10, epoch=3)
    log.put(*[batches.batch(1)] * 5, *[batches.batch(3)] * 2)
    data = memoryview(b"".join(log.taken))
    records = PlainRecords()
    taken = take(records, data, position=10)
    assert (taken.batches, taken.at, taken.next_offset, taken.leader_epoch) == (7, len(data), 21, 3)
    assert records.count == 11


def test_the_leader_epoch_is_that_of_the_last_batch() -> None:
    epochs = (3, 3, 4, 7)
    data = b"".join(
        batches.batch(1, base_offset=at, leader_epoch=epoch) for at, epoch in enumerate(epochs)
    )
    assert take(PlainRecords(), memoryview(data)).leader_epoch == 7
    assert take(PlainRecords(), memoryview(data[:-1])).leader_epoch == 4


def test_batches_that_begin_before_the_position_are_left() -> None:
    log = BatchLog(end=0, epoch=3)
    log.put(batches.batch(2))
    data = memoryview(b"".join(log.taken))
    records = PlainRecords()
    taken = take(records, data, position=1)
    assert (taken.batches, taken.at, records.count) == (0, 0, 0)


ONE = batches.batch([ROW])
NOT_PLAIN = {
    "of a transaction": batches.patched(ONE, attributes=batches.TRANSACTIONAL, producer_id=7),
    "with the broker's time": batches.patched(ONE, attributes=batches.LOG_APPEND_TIME),
    "compressed": batches.batch([ROW], codec=batches.GZIP),
    "a marker": batches.marker(base_offset=0, producer_id=7, commit=True),
    "of another format": batches.patched(ONE, magic=1),
    "a hole behind its record": batches.patched(ONE, last_offset_delta=2),
    "a hole before its record": batches.batch([ROW], deltas=[1]),
    "fewer records than offsets": batches.patched(batches.batch([ROW] * 3), records=2),
    "more records than offsets": batches.patched(batches.batch([ROW] * 3), last_offset_delta=1),
}


@pytest.mark.parametrize("kind", NOT_PLAIN)
def test_other_batches_are_not_taken(kind: str) -> None:
    """Each fails by one field, its checksum is right."""
    other = batches.patched(NOT_PLAIN[kind], base_offset=1)
    data = memoryview(ONE + other + batches.patched(ONE, base_offset=10))
    records = PlainRecords()
    taken = take(records, data)
    assert (taken.batches, taken.at, records.count) == (1, len(ONE), 1)


@pytest.mark.parametrize("size", range(40, 80))
def test_bytes_behind_the_only_record_are_not_taken(size: int) -> None:
    """The sizes are those around which its length takes two bytes instead of one."""
    whole = batches.batch([(NOW_MS, None, b"v" * size, ())])
    assert take(PlainRecords(), memoryview(whole)).batches == 1
    longer = batches.patched(whole + b"\0", length=len(whole) + 1 - 12)
    assert take(PlainRecords(), memoryview(longer)).batches == 0


@pytest.mark.parametrize("rows", [1, 3])
def test_no_more_is_taken_than_the_new_batch_may_hold(rows: int) -> None:
    limit_bytes = 20_000
    whole = batches.batch([(NOW_MS, None, b"v" * 700, ())] * rows)
    data = b"".join(batches.patched(whole, base_offset=at * rows) for at in range(100))
    records = PlainRecords()
    taken = records.take_plain(
        memoryview(data),
        0,
        len(data),
        position=0,
        end_offset=1_000,
        batch_bytes=8_192,
        limit_bytes=limit_bytes,
        check_crc=True,
    )
    assert limit_bytes - 8_192 <= records.size_bytes <= limit_bytes
    assert (taken.at, taken.next_offset) == (taken.batches * len(whole), taken.batches * rows)
    assert records.count == taken.batches * rows
