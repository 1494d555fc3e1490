"""Records of stored batches, decoded for a handler. Hot path of the handler's process.

A record's place in the decoded bytes is kept, so that those that the handler returns as they are are spliced
into the new batch without encoding them.
"""

from __future__ import annotations

from collections.abc import Iterator

from ureplicator_worker.batches.codecs import decompress
from ureplicator_worker.batches.header import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    CorruptBatch,
    Header,
    Kind,
)
from ureplicator_worker.batches.offsets import SourceOffsets
from ureplicator_worker.batches.rebuild import MAX_DECODED_BYTES, rebuild
from ureplicator_worker.batches.records import read_zigzag
from ureplicator_worker.handlers import Header as RecordHeader
from ureplicator_worker.handlers import Record

NAME_ENCODING = ("utf-8", "surrogateescape")


Found = tuple[Record, int, int]
"""A record, its place in the decoded bytes, and the base of its offset there."""


class StoredRecords:
    """The records of a stored batch from `position` on. Making and iterating it raise CorruptBatch.

    `whole`: the batch, `view`, can be sent as it is.
    """

    __slots__ = ("_offsets", "base_ms", "data", "header", "stamped_ms", "view", "whole")

    def __init__(self, view: memoryview, *, position: int) -> None:
        self._offsets: SourceOffsets | None = None
        self.view = view
        self.header = Header(view, 0)
        self.whole = self.header.kind(position) is Kind.PASS
        self.data = b""
        self.stamped_ms: int | None = None
        if self.header.magic < 2:
            built = rebuild(view, self.header, position=position)
            if built is None:
                self.header.records = 0
                return
            view, self._offsets = memoryview(built.data), built.offsets
            self.header = Header(view, 0)
        elif self.header.attributes & LOG_APPEND_TIME:
            self.stamped_ms = self.header.max_timestamp_ms
        self.base_ms = self.header.base_timestamp_ms
        codec = self.header.codec
        self.data = bytes(decompress(codec, view[HEADER_BYTES:], limit_bytes=MAX_DECODED_BYTES))

    @property
    def contiguous(self) -> bool:
        """Offsets of all records count from that of the batch."""
        return self._offsets is None

    def read(self, *, topic: str, partition: int, position: int) -> Iterator[Found]:
        try:
            yield from self._read(topic, partition, position)
        except IndexError as error:
            raise CorruptBatch("fewer records than the header promises") from error

    def _read(self, topic: str, partition: int, position: int) -> Iterator[Found]:
        """Numbers of one and two bytes, nearly all, are read in place; so is the tuple of a Record made."""
        data, size, offsets = self.data, len(self.data), self._offsets
        base_offset, base_ms, stamped_ms = self.header.base_offset, self.base_ms, self.stamped_ms
        new, at = tuple.__new__, 0
        for index in range(self.header.records):
            start = at
            length = data[at]
            if length < 0x80:
                length = (length >> 1) ^ -(length & 1)
                at += 1
            elif data[at + 1] < 0x80:
                length = length & 0x7F | data[at + 1] << 7
                length = (length >> 1) ^ -(length & 1)
                at += 2
            else:
                length, at = read_zigzag(data, at)
            end = at + length
            if length <= 0 or end > size:
                raise CorruptBatch(f"a record of {length} bytes at byte {at} of {size}")
            delta_ms = data[at + 1]
            if delta_ms < 0x80:
                delta_ms = (delta_ms >> 1) ^ -(delta_ms & 1)
                at += 2
            else:
                delta_ms, at = read_zigzag(data, at + 1)
            delta = data[at]
            if delta < 0x80:
                delta = (delta >> 1) ^ -(delta & 1)
                at += 1
            elif data[at + 1] < 0x80:
                delta = delta & 0x7F | data[at + 1] << 7
                delta = (delta >> 1) ^ -(delta & 1)
                at += 2
            else:
                delta, at = read_zigzag(data, at)
            offset = base_offset + delta if offsets is None else offsets.at(index)
            if offset >= position:
                time_ms = base_ms + delta_ms if stamped_ms is None else stamped_ms
                key, at = (None, at + 1) if data[at] == 1 else _field(data, at, end)
                value, at = _field(data, at, end)
                headers = () if data[at] == 0 else _headers(data, at, end)
                fields = (topic, partition, offset, time_ms, key, value, headers)
                yield new(Record, fields), start, offset - delta
            at = end


def _field(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    size = data[at]
    if size < 0x80:
        size = (size >> 1) ^ -(size & 1)
        at += 1
    elif data[at + 1] < 0x80:
        size = size & 0x7F | data[at + 1] << 7
        size = (size >> 1) ^ -(size & 1)
        at += 2
    else:
        size, at = read_zigzag(data, at)
    if size < 0:
        return None, at
    after = at + size
    if after > end:
        raise CorruptBatch(f"a field of {size} bytes at byte {at}")
    return data[at:after], after


def _headers(data: bytes, at: int, end: int) -> tuple[RecordHeader, ...]:
    count, at = read_zigzag(data, at)
    found: list[RecordHeader] = []
    for _ in range(count):
        name, at = _field(data, at, end)
        value, at = _field(data, at, end)
        found.append(((name or b"").decode(*NAME_ENCODING), value))
    return tuple(found)
