"""Record batches as a broker stores them, built and read by aiokafka.

The worker has its own code for records; this library's is the judge of it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from crc32c import crc32c

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40
HEADER_BYTES = 61

Headers = Sequence[tuple[str, bytes | None]]
Row = tuple[int, bytes | None, bytes | None, Headers]
"""Timestamp, key, value, headers."""

FIELDS = {
    "base_offset": (0, ">q"),
    "length": (8, ">i"),
    "leader_epoch": (12, ">i"),
    "magic": (16, ">b"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "records": (57, ">i"),
}


PRODUCER = ("producer_id", "producer_epoch", "base_sequence")


@dataclass(frozen=True, slots=True)
class Record:
    """One record as a consumer sees it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


def incompressible(name: bytes, size: int) -> bytes:
    """Bytes of a value that stay as many when they are compressed."""
    return hashlib.shake_128(name).digest(size)


def decode(stored: bytes | bytearray | memoryview) -> Iterator[Record]:
    """Records of one or more stored batches, in order."""
    found = MemoryRecords(bytes(stored))
    while found.has_next():
        batch = found.next_batch()
        assert batch is not None
        for record in batch:
            yield Record(
                offset=record.offset,
                timestamp_ms=-1 if record.timestamp is None else record.timestamp,
                key=record.key,
                value=record.value,
                headers=record.headers,
            )


def rows(count: int, *, size: int = 10, timestamp_ms: int = 1_000) -> list[Row]:
    """Records that compress well and differ from each other."""
    return [(timestamp_ms + n, b"k%d" % n, b"v%d" % n + b"." * size, ()) for n in range(count)]


def field(batch: bytes | bytearray | memoryview, name: str) -> int:
    at, form = FIELDS[name]
    (value,) = struct.unpack_from(form, batch, at)
    return int(value)


def patched(batch: bytes, **fields: int) -> bytes:
    """The batch with other header values and a correct checksum."""
    out = bytearray(batch)
    for name, value in fields.items():
        at, form = FIELDS[name]
        struct.pack_into(form, out, at, value)
    struct.pack_into(">I", out, 17, crc32c(out[21:]))
    return bytes(out)


def checksum_fits(batch: bytes | bytearray | memoryview) -> bool:
    (stored,) = struct.unpack_from(">I", batch, 17)
    return bool(stored == crc32c(bytes(batch[21:])))


def batch(
    records: Sequence[Row] | int,
    *,
    base_offset: int = 0,
    codec: int = NONE,
    leader_epoch: int = 0,
    producer_id: int = -1,
    attributes: int = 0,
    deltas: Sequence[int] | None = None,
) -> bytes:
    """Format 2. `deltas`: offsets of the records from the base (0, 1, ... unless given)."""
    taken = rows(records) if isinstance(records, int) else records
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        batch_size=1 << 30,
    )
    places = range(len(taken)) if deltas is None else deltas
    for place, (timestamp_ms, key, value, headers) in zip(places, taken, strict=True):
        builder.append(place, timestamp_ms, key, value, list(headers))
    built = bytes(builder.build())
    return patched(
        built,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=field(built, "attributes") | attributes,
    )


def emptied(whole: bytes) -> bytes:
    """Header that compaction leaves of a batch whose records are all removed."""
    length = HEADER_BYTES - 12
    return patched(whole[:HEADER_BYTES], length=length, records=0)


def compacted(whole: bytes, kept: Collection[int]) -> bytes:
    """The batch with the records at these offsets only. Its other offsets and its sequences stay."""
    if not kept:
        return emptied(whole)
    base = field(whole, "base_offset")
    records = [record for record in decode(whole) if record.offset in kept]
    rows = [(row.timestamp_ms, row.key, row.value, row.headers) for row in records]
    left = batch(rows, deltas=[record.offset - base for record in records])
    same = ("base_offset", "leader_epoch", "last_offset_delta", *PRODUCER)
    return patched(left, **{name: field(whole, name) for name in same})


def marker(
    *,
    base_offset: int,
    producer_id: int,
    commit: bool,
    leader_epoch: int = 0,
    producer_epoch: int = 0,
) -> bytes:
    """A control batch: the end of a transaction."""
    key = struct.pack(">hh", 0, int(commit))
    built = batch(
        [(1_000, key, struct.pack(">hi", 0, 0), ())],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        attributes=TRANSACTIONAL | CONTROL,
    )
    return patched(built, producer_epoch=producer_epoch)


def old_batch(
    records: Sequence[tuple[int, bytes | None, bytes | None]],
    *,
    magic: int,
    codec: int = NONE,
    base_offset: int = 0,
) -> bytes:
    """Formats 0 and 1: one message a record, or a wrapper if compressed.

    The offset of a wrapper is that of its last record; those inside count from 0 (format 1) or are
    the log's (format 0).
    """
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 30)
    first = base_offset if codec == NONE or magic == 0 else 0
    for place, (timestamp_ms, key, value) in enumerate(records):
        builder.append(first + place, timestamp_ms, key, value)
    built = bytearray(builder.build())
    if codec != NONE:
        struct.pack_into(">q", built, 0, base_offset + len(records) - 1)
    return bytes(built)
