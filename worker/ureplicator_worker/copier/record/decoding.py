"""Records of stored batches, decoded for a handler. Hot path of the handler's process.

A record's place in the decoded bytes is kept, so that one that the handler returns as it is is spliced into
the new batch without encoding it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ureplicator_worker.copier.raw.batches.codecs import Bytes, decompress
from ureplicator_worker.copier.raw.batches.header import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    CorruptBatch,
    Header,
)
from ureplicator_worker.copier.raw.batches.offsets import SourceOffsets
from ureplicator_worker.copier.raw.batches.rebuild import MAX_DECODED_BYTES, rebuild
from ureplicator_worker.copier.raw.batches.records import read_zigzag
from ureplicator_worker.handlers import Header as RecordHeader
from ureplicator_worker.handlers import Record

NAME_ENCODING = ("utf-8", "surrogateescape")


class Place(NamedTuple):
    """Place of an encoded record, as `Records.splice` takes it."""

    data: Bytes
    at: int
    base_offset: int
    base_ms: int
    stamped_ms: int | None


def decode(
    view: memoryview, *, topic: str, partition: int, position: int
) -> Iterator[tuple[Record, Place]]:
    """The records of a stored batch from `position` on. Raises CorruptBatch."""
    header = Header(view, 0)
    offsets: SourceOffsets | None = None
    if header.magic < 2:
        built = rebuild(view, header, position=position)
        if built is None:
            return
        view, offsets = memoryview(built.data), built.offsets
        header = Header(view, 0)
    data = decompress(header.codec, view[HEADER_BYTES:], limit_bytes=MAX_DECODED_BYTES)
    stamped_ms = header.max_timestamp_ms if header.attributes & LOG_APPEND_TIME else None
    try:
        yield from _records(bytes(data), header, offsets, stamped_ms, topic, partition, position)
    except IndexError as error:
        raise CorruptBatch("fewer records than the header promises") from error


def _records(
    data: bytes,
    header: Header,
    offsets: SourceOffsets | None,
    stamped_ms: int | None,
    topic: str,
    partition: int,
    position: int,
) -> Iterator[tuple[Record, Place]]:
    at, base_ms = 0, header.base_timestamp_ms
    for index in range(header.records):
        start = at
        length, at = read_zigzag(data, at)
        end = at + length
        if length <= 0 or end > len(data):
            raise CorruptBatch(f"a record of {length} bytes at byte {at} of {len(data)}")
        delta_ms, at = read_zigzag(data, at + 1)
        delta, at = read_zigzag(data, at)
        offset = header.base_offset + delta if offsets is None else offsets.at(index)
        if offset >= position:
            time_ms = base_ms + delta_ms if stamped_ms is None else stamped_ms
            key, at = _field(data, at, end)
            value, at = _field(data, at, end)
            headers = () if data[at] == 0 else _headers(data, at, end)
            record = Record(topic, partition, offset, time_ms, key, value, headers)
            yield record, Place(data, start, offset - delta, base_ms, stamped_ms)
        at = end


def _field(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    size, at = read_zigzag(data, at)
    if size < 0:
        return None, at
    if at + size > end:
        raise CorruptBatch(f"a field of {size} bytes at byte {at}")
    return data[at : at + size], at + size


def _headers(data: bytes, at: int, end: int) -> tuple[RecordHeader, ...]:
    count, at = read_zigzag(data, at)
    found: list[RecordHeader] = []
    for _ in range(count):
        name, at = _field(data, at, end)
        value, at = _field(data, at, end)
        found.append(((name or b"").decode(*NAME_ENCODING), value))
    return tuple(found)
