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

The first 64 records of a batch mostly have numbers of one byte behind their length: such a record takes
0.5 us (`_splice_regular`), any other 1 us.

Numbers without an end, lengths beyond the end or below what a record has are a CorruptBatch; so are more
or fewer records than the header promises.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable
from itertools import repeat

from ureplicator_worker.batches.codecs import NONE, Bytes, compress
from ureplicator_worker.batches.header import (
    HEADER_BYTES,
    LENGTH_OFFSET,
    NEWEST_MAGIC,
    CorruptBatch,
)
from ureplicator_worker.batches.offsets import Run, SourceOffsets

MAX_OFFSET = 1 << 62
INT64 = 1 << 63
_MAX_SHIFT = 63
_HEADER = struct.Struct(">qiibIhiqqqhii")
_FRONT = struct.Struct("<HBBB")
_FRONT_BYTES = 5
_ONE_BYTE_TO, _TWO_BYTES_TO = 1 << 6, 1 << 13
"""Numbers below have a varint of one byte, and of two."""
_NOT_SMALL = 0x81
"""Bits of a byte that is not the varint of a number from 0 to 63."""
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
ZERO_CODES = [b"\0" + code for code in CODES]
"""Codes behind the attributes, which are 0."""


def _spans() -> array[int]:
    """Size of a record with its length, by the two bytes of that as one number; 0 for other bytes."""
    sizes = array("H", bytes(2 << 16))
    for length in range(_ONE_BYTE_TO, _TWO_BYTES_TO):
        sizes[int.from_bytes(CODES[length], "little")] = length + 2
    return sizes


_SPANS = _spans()


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
        self._data = bytearray(HEADER_BYTES)
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

        `stamped_ms`: the time of all of them, if the broker stamped them. Only those whose offset is at least
        `first` and below `stop` are taken. `places`: where each begins, unless they follow each other."""
        if places is None and stamped_ms is None and first <= base_offset <= stop - count:
            taken, at = self._splice_regular(data, at, count, base_offset, base_ms)
            count -= taken
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

    def _splice_regular(
        self, data: Bytes, at: int, count: int, base_offset: int, base_ms: int
    ) -> tuple[int, int]:
        """Take records whose numbers are as nearly always, up to the first other one.

        Their length has two bytes. Each other number has one: no attributes, a time that is at most 63 ms
        behind the batch's, the offset behind the former record's. So they have 66 bytes at least, and are
        among the first 64 of their batch. Returns how many there were, and the place behind them.
        """
        first = index = self.count
        shift_ms = base_ms - self._base_ms if index else 0
        last = min(count, _ONE_BYTE_TO, CODE_SIZE - index) + index
        if not 0 <= shift_ms < CODE_SIZE - _ONE_BYTE_TO:
            return 0, at
        codes, zero_codes, spans, unpack = CODES, ZERO_CODES, _SPANS, _FRONT.unpack_from
        parts: list[Bytes] = []
        delta, latest_ms, last_at = 0, 0, len(data) - _FRONT_BYTES
        while index < last and at <= last_at:
            length, attributes, delta_ms, offset = unpack(data, at)
            span = spans[length]
            end = at + span
            if (
                not span
                or attributes
                or offset != delta
                or delta_ms & _NOT_SMALL
                or end > len(data)
            ):
                break
            delta_ms >>= 1
            if delta_ms > latest_ms:
                latest_ms = delta_ms
            head = zero_codes[shift_ms + delta_ms] + codes[index]
            parts += (
                codes[len(head) + span - _FRONT_BYTES],
                head,
                data[at + _FRONT_BYTES : end],
            )
            at = end
            index += 1
            delta += 2
        if index > first:
            self._data += b"".join(parts)
            self._count_regular(index - first, base_offset, base_ms, latest_ms)
        return index - first, at

    def _count_regular(self, taken: int, base_offset: int, base_ms: int, latest_ms: int) -> None:
        if not self.count:
            self._base_ms = self._latest_ms = base_ms
        self._latest_ms = max(self._latest_ms, base_ms + latest_ms)
        if base_offset != self._next_offset:
            self._runs.append((self.count, base_offset))
        self.count += taken
        self._next_offset = base_offset + taken

    def append(self, rest: bytes, *, offset: int, time_ms: int) -> None:
        """One record; `rest`: its key, value and headers with their lengths."""
        record = b"\x00" + zigzag(0) + zigzag(0) + rest
        record = zigzag(len(record)) + record
        self.splice(record, 0, 1, offset, time_ms)

    @property
    def size_bytes(self) -> int:
        return len(self._data) - HEADER_BYTES

    def build(self, *, codec: int) -> Built | None:
        """The batch; None without records. Its checksum and producer come when it is stamped.

        Nothing is collected any more then: the bytes without compression are those of the batch.
        """
        if not self.count:
            return None
        buffer = self._data
        if codec != NONE:
            buffer = _with_header(compress(codec, memoryview(buffer)[HEADER_BYTES:]))
        return Built.headed(
            buffer,
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
        """A batch of encoded records with deltas 0, 1, ... of offsets. `times_ms`: the one from which deltas
        count, and the latest record's. Raises CorruptBatch."""
        buffer = _with_header(compress(codec, data))
        return cls.headed(buffer, codec=codec, offsets=offsets, records=records, times_ms=times_ms)

    @classmethod
    def headed(
        cls,
        buffer: bytearray,
        *,
        codec: int,
        offsets: SourceOffsets,
        records: int,
        times_ms: tuple[int, int],
    ) -> Built:
        """A batch of a buffer with the compressed records behind the place for the header."""
        base_ms, latest_ms = times_ms
        size = len(buffer) - LENGTH_OFFSET
        fields = (codec, records - 1, base_ms, latest_ms, -1, -1, -1, records)
        try:
            _HEADER.pack_into(buffer, 0, 0, size, -1, NEWEST_MAGIC, 0, *fields)
        except struct.error as error:
            raise CorruptBatch(f"a time of a record: {error}") from error
        return cls(buffer, records, offsets, latest_ms)

    @property
    def first_offset(self) -> int:
        return self.offsets.at(0)

    @property
    def last_offset(self) -> int:
        return self.offsets.at(self.records - 1)


def _with_header(payload: Bytes) -> bytearray:
    """A buffer of the payload behind the place of a header."""
    buffer = bytearray(HEADER_BYTES)
    buffer += payload
    return buffer
