"""Batches that cannot be sent as they are: decode them, build new ones. Cold path.

aiokafka's compiled record classes do the decoding and building, for all three formats and all codecs.
They are internals of that library: only this module imports them.

A rebuilt batch holds the same records (key, value, headers, time) under offsets 0..n-1, with the codec
of the batch it came from. Records stamped by the source's broker keep the broker's time, as create time:
that is what a consumer of the source sees.

The library's builder takes a first timestamp of -1 ("no time", which Kafka allows) for "not set yet" and
loses it. So the times are shifted for it, and the header gets the true ones; the records hold
differences only. The checksum is computed when the batch is stamped, as for every batch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from ureplicator_worker.copier.raw.batches.header import CODEC_BITS, CorruptBatch, Header

UNKNOWN_TIME_MS = -1
_TIMES = struct.Struct(">qq")
_TIMES_OFFSET = 27
"""Base and maximum timestamp in the header."""

GROWTH_LIMIT_BYTES = 1 << 31
"""The builder refuses what exceeds its limit; the limit of a batch is for the broker to enforce."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record as a consumer sees it. `offset` and `timestamp_ms` are the source's."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Built:
    """A new batch. Offsets are the source's: first and last record in it."""

    data: bytearray
    records: int
    first_offset: int
    last_offset: int
    max_timestamp_ms: int


def decode(view: memoryview) -> Iterator[Record]:
    """Records of one stored batch, in order. Raises CorruptBatch."""
    try:
        stored = MemoryRecords(bytes(view))
        while stored.has_next():
            batch = stored.next_batch()
            if batch is None:
                raise CorruptBatch("cut batch")
            if stored_format(view) < 2 and not batch.validate_crc():
                raise CorruptBatch("checksum of a message of the old format is wrong")
            for record in batch:
                yield Record(
                    offset=record.offset,
                    timestamp_ms=-1 if record.timestamp is None else record.timestamp,
                    key=record.key,
                    value=record.value,
                    headers=record.headers,
                )
    except CorruptBatch:
        raise
    except Exception as error:  # the library raises whatever its codecs raise
        raise CorruptBatch(f"cannot be decoded: {error}") from error


def build(records: Iterable[Record], *, codec: int) -> Built | None:
    """One batch of these records; None of none. `codec` as in a batch's attributes."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=GROWTH_LIMIT_BYTES - 1,
    )
    taken = list(records)
    if not taken:
        return None
    shift_ms = 1 if taken[0].timestamp_ms == UNKNOWN_TIME_MS else 0
    for index, record in enumerate(taken):
        time_ms = record.timestamp_ms + shift_ms
        builder.append(index, time_ms, record.key, record.value, list(record.headers))
    latest_ms = max(record.timestamp_ms for record in taken)
    data = bytearray(builder.build())
    _TIMES.pack_into(data, _TIMES_OFFSET, taken[0].timestamp_ms, latest_ms)
    return Built(data, len(taken), taken[0].offset, taken[-1].offset, latest_ms)


def rebuild(view: memoryview, *, position: int) -> Built | None:
    """The records of a batch from `position` on; None if there are none. Raises CorruptBatch."""
    codec = _codec(view)
    return build((record for record in decode(view) if record.offset >= position), codec=codec)


def split(view: memoryview, *, first_offset: int) -> list[Built]:
    """Two halves of a stamped batch (base offset 0; the first record is `first_offset` at the source).

    A batch of one record comes back alone. Raises CorruptBatch.
    """
    records = [
        Record(
            offset=first_offset + record.offset,
            timestamp_ms=record.timestamp_ms,
            key=record.key,
            value=record.value,
            headers=record.headers,
        )
        for record in decode(view)
    ]
    middle = (len(records) + 1) // 2
    halves = (build(half, codec=_codec(view)) for half in (records[:middle], records[middle:]))
    return [half for half in halves if half is not None]


def merge(views: Sequence[memoryview]) -> Built | None:
    """One batch of several consecutive ones; offsets in the result are counted from 0."""
    return build((record for view in views for record in decode(view)), codec=_codec(views[0]))


def stored_format(view: memoryview) -> int:
    """0, 1 or 2. The checksum of format 2 is verified where it is read (`header.verify_crc`)."""
    return view[16]


def _codec(view: memoryview) -> int:
    """The codec of a batch, also of an older format's wrapper message."""
    header = Header(view, 0)
    return header.codec if header.magic >= 2 else view[17] & CODEC_BITS
