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
from dataclasses import dataclass
from itertools import repeat

from crc32c import crc32c

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
_PLAIN = struct.Struct(">qiibIhiq22xi5B")
"""A header as far as it matters to plain batches, and the first bytes of the first record."""
_CODE_SIZE = 1 << 14
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


_CODES = [zigzag(value) for value in range(_CODE_SIZE)]


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


@dataclass(frozen=True, slots=True)
class Taken:
    """Stored batches that were taken, the place behind them, and the last one's next offset and epoch."""

    batches: int
    at: int
    next_offset: int
    leader_epoch: int


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
            codes, code_size, out, size = _CODES, _CODE_SIZE, self._data, len(data)
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

    def take_plain(
        self,
        buffer: memoryview,
        at: int,
        end: int,
        *,
        position: int,
        end_offset: int,
        batch_bytes: int,
        limit_bytes: int,
        check_crc: bool,
    ) -> Taken:
        """Take whole plain batches that follow each other from `at` on, up to the first other one.

        Plain: format 2 and no attributes (no codec, producer's time, no transaction), at most `batch_bytes`,
        without holes, from `position` on and below `end_offset`. Nothing is raised: a batch that is wrong
        in itself is not taken, so whoever reads it next names what is wrong.

        A batch of one record costs most, since all is done for each record. So its header, checksum and
        record are read in one step here, if the numbers of the record are as nearly always: a length of one
        or two bytes (`a`, `b`), then zeros. `splice` takes the others.
        """
        codes, code_size, out, unpack = _CODES, _CODE_SIZE, self._data, _PLAIN.unpack_from
        batches, epoch, most_bytes = 0, -1, limit_bytes - batch_bytes
        while at <= end - _PLAIN.size and len(out) <= most_bytes:
            base, size, its_epoch, magic, crc, attributes, last, base_ms, count, a, b, c, d, e = (
                unpack(buffer, at)
            )
            stop = at + LENGTH_OFFSET + size
            if (
                attributes
                or magic != NEWEST_MAGIC
                or not position <= base <= base + last < end_offset
                or last != count - 1
                or not HEADER_BYTES < stop - at <= batch_bytes
                or stop > end
                or (check_crc and crc32c(buffer[at + 21 : stop]) != crc)
            ):
                break
            index = self.count
            delta_ms = base_ms - self._base_ms if index else 0
            if a < 0x80:
                rest = at + HEADER_BYTES + 4
                plain = a == (stop - rest + 3) << 1 and not (b or c or d)
            else:
                rest = at + HEADER_BYTES + 5
                plain = (
                    a & 0x7F | b << 7 == (stop - rest + 3) << 1 and b < 0x80 and not (c or d or e)
                )
            if plain and not last and 0 <= delta_ms < code_size > index:
                if not index:
                    self._base_ms = self._latest_ms = base_ms
                elif base_ms > self._latest_ms:
                    self._latest_ms = base_ms
                if base != self._next_offset:
                    self._runs.append((index, base))
                self._next_offset = base + 1
                self.count = index + 1
                head = codes[delta_ms] + codes[index]
                out += codes[1 + len(head) + stop - rest]
                out += b"\x00" + head
                out += buffer[rest:stop]
            elif not self._spliced(buffer[at + HEADER_BYTES : stop], count, base, base_ms):
                break
            batches, at, position, epoch = batches + 1, stop, base + last + 1, its_epoch
        return Taken(batches, at, position, epoch)

    def _spliced(self, data: memoryview, count: int, base_offset: int, base_ms: int) -> bool:
        """False, and nothing has changed, if the records are wrong."""
        before = (self.count, self._next_offset, self._base_ms, self._latest_ms)
        size, runs = len(self._data), len(self._runs)
        try:
            if self.splice(data, 0, count, base_offset, base_ms) == len(data):
                return True
        except CorruptBatch:
            pass
        self.count, self._next_offset, self._base_ms, self._latest_ms = before
        del self._data[size:], self._runs[runs:]
        return False

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
