"""Records of new batches, made from stored ones without decoding them. Hot path.

A record of format 2 (https://kafka.apache.org/documentation/#record; all numbers are zigzag varints):

    length            of what follows
    attributes        one byte, unused
    timestampDelta    from the base timestamp of the batch
    offsetDelta       from the base offset of the batch
    key, value, headers, each with its length

In another batch a record has another offset delta, mostly another timestamp delta, and so another length.
The rest stays as it is, bytes that are not looked at: a header name that is not UTF-8, for example, is
none of our business. The target's broker judges them.

Numbers without an end, lengths beyond the end or below what a record has are a CorruptBatch; so are more
or fewer records than the header promises.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import repeat

from ureplicator_worker.copier.raw.batches.codecs import Bytes, compress
from ureplicator_worker.copier.raw.batches.header import (
    HEADER_BYTES,
    LENGTH_OFFSET,
    NEWEST_MAGIC,
    CorruptBatch,
)
from ureplicator_worker.copier.raw.batches.offsets import Run, SourceOffsets

MAX_OFFSET = 1 << 62
INT64 = 1 << 63
_MAX_SHIFT = 63
_HEADER = struct.Struct(">qiibIhiqqqhii")
CODE_SIZE = 1 << 14
"""Numbers whose varints are looked up: those of one and two bytes."""


def zigzag(value: int) -> bytes:
    """A signed number as varint. Raises CorruptBatch for one that no int64 holds."""
    if not -INT64 <= value < INT64:
        raise CorruptBatch(f"a number of a record is {value}")
    left = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while left > 0x7F:
        out.append((left & 0x7F) | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


CODES = [zigzag(value) for value in range(CODE_SIZE)]


def read_zigzag(data: Bytes, at: int) -> tuple[int, int]:
    """(value, place behind it). Raises CorruptBatch, IndexError."""
    left = shift = 0
    while True:
        byte = data[at]
        at += 1
        left |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (left >> 1) ^ -(left & 1), at
        shift += 7
        if shift > _MAX_SHIFT:
            raise CorruptBatch("a number of a record has no end")


class Records:
    """Records of one new batch, in order, while they are collected."""

    __slots__ = ("_base_ms", "_data", "_latest_ms", "_next_offset", "_runs", "count")

    def __init__(self) -> None:
        self.count = 0
        self._data = bytearray()
        self._runs: list[Run] = []
        self._next_offset = -1
        self._base_ms = 0
        self._latest_ms = 0

    def splice(
        self,
        data: Bytes,
        at: int,
        count: int,
        base_offset: int,
        base_ms: int,
        stamped_ms: int | None = None,
        first: int = 0,
        stop: int = MAX_OFFSET,
        places: Iterable[int] | None = None,
    ) -> int:
        """Take `count` records of a stored batch; returns the place behind them. Raises CorruptBatch.

        `stamped_ms`: the time of all of them, if the broker stamped them. Only those whose offset is at
        least `first` and below `stop` are taken. The numbers of one byte, nearly all, are read in place.
        `places`: where each begins, unless they follow each other from `at` on.
        """
        try:
            codes, code_size, out, size = CODES, CODE_SIZE, self._data, len(data)
            for place in repeat(-1, count) if places is None else places:
                if place >= 0:
                    at = place
                length = data[at]
                if length < 0x80 and not length & 1:
                    length >>= 1
                    at += 1
                else:
                    length, at = read_zigzag(data, at)
                end = at + length
                attributes = at
                delta_ms = data[at + 1]
                if delta_ms < 0x80:
                    delta_ms = (delta_ms >> 1) ^ -(delta_ms & 1)
                    at += 2
                else:
                    delta_ms, at = read_zigzag(data, at + 1)
                offset = data[at]
                if offset < 0x80:
                    offset = base_offset + ((offset >> 1) ^ -(offset & 1))
                    at += 1
                else:
                    offset, at = read_zigzag(data, at)
                    offset += base_offset
                if at > end or end > size:
                    raise CorruptBatch(f"a record of {length} bytes at byte {attributes} of {size}")
                if first <= offset < stop:
                    time_ms = base_ms + delta_ms if stamped_ms is None else stamped_ms
                    index = self.count
                    if not index:
                        self._base_ms = self._latest_ms = time_ms
                    elif time_ms > self._latest_ms:
                        self._latest_ms = time_ms
                    if offset != self._next_offset:
                        self._runs.append((index, offset))
                    self._next_offset = offset + 1
                    self.count = index + 1
                    delta_ms = time_ms - self._base_ms
                    head = codes[delta_ms] if 0 <= delta_ms < code_size else zigzag(delta_ms)
                    head += codes[index] if index < code_size else zigzag(index)
                    length = 1 + len(head) + end - at
                    out += codes[length] if length < code_size else zigzag(length)
                    out.append(data[attributes])
                    out += head
                    out += data[at:end]
                at = end
            return at
        except IndexError as error:
            raise CorruptBatch("fewer records than the header promises") from error

    def append(self, rest: bytes, *, offset: int, time_ms: int) -> None:
        """One record; `rest`: its key, value and headers with their lengths."""
        record = b"\x00" + zigzag(0) + zigzag(0) + rest
        record = zigzag(len(record)) + record
        self.splice(record, 0, 1, offset, time_ms)

    @property
    def size_bytes(self) -> int:
        return len(self._data)

    def build(self, *, codec: int) -> Built | None:
        """The batch; None without records. Its checksum and producer come when it is stamped."""
        if not self.count:
            return None
        return Built.of(
            self._data,
            codec=codec,
            offsets=SourceOffsets(tuple(self._runs)),
            records=self.count,
            times_ms=(self._base_ms, self._latest_ms),
        )


class Built:
    """A new batch. `offsets`: its records' at the source."""

    __slots__ = ("data", "max_timestamp_ms", "offsets", "records")

    def __init__(
        self, data: bytearray, records: int, offsets: SourceOffsets, max_timestamp_ms: int
    ) -> None:
        self.data = data
        self.records = records
        self.offsets = offsets
        self.max_timestamp_ms = max_timestamp_ms

    @classmethod
    def of(
        cls,
        data: Bytes,
        *,
        codec: int,
        offsets: SourceOffsets,
        records: int,
        times_ms: tuple[int, int],
    ) -> Built:
        """A batch of encoded records with deltas 0, 1, ... of offsets. `times_ms`: of the first record, from
        which deltas count, and the latest one. Raises CorruptBatch."""
        payload = compress(codec, data)
        base_ms, latest_ms = times_ms
        size = HEADER_BYTES - LENGTH_OFFSET + len(payload)
        last = records - 1
        fields = (codec, last, base_ms, latest_ms, -1, -1, -1, records)
        try:
            header = _HEADER.pack(0, size, -1, NEWEST_MAGIC, 0, *fields)
        except struct.error as error:
            raise CorruptBatch(f"a time of a record: {error}") from error
        built = bytearray(header)
        built += payload
        return cls(built, records, offsets, latest_ms)

    @property
    def first_offset(self) -> int:
        return self.offsets.at(0)

    @property
    def last_offset(self) -> int:
        return self.offsets.at(self.records - 1)
