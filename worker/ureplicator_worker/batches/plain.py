"""Records of small plain batches, taken many at once. Hot path.

Plain: format 2 and no attributes (no codec, the producer's time, no transaction), without holes. Producers
that do not wait send batches of one record, and all that is done for a batch is done for each record then.
So the header, the checksum and the record of such a batch are read in one step, if the numbers of the
record are as nearly always:

    length of the record       one or two bytes, as long as the batch's length says
    attributes, deltas         0
    key, value, headers        not looked at

Count, length, attributes and deltas are eight or nine bytes in a row, so one comparison with what belongs
to the length of the batch (`_FRONTS`) is enough. Where many have one length, all are compared at once
(`equal`). All other plain batches are taken by `Records.splice`.

The bytes are copied in portions first: a part of `bytes` costs less than one of a view, and two are needed
for each record.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import chain

from crc32c import crc32c

from ureplicator_worker.batches.codecs import Bytes
from ureplicator_worker.batches.equal import EqualBatches, read_equal
from ureplicator_worker.batches.header import (
    COVERED_FROM,
    HEADER_BYTES,
    LENGTH_OFFSET,
    NEWEST_MAGIC,
    CorruptBatch,
)
from ureplicator_worker.batches.merge_rules import FEW_RECORDS, LARGE_BYTES, SMALL_BYTES
from ureplicator_worker.batches.records import (
    CODE_SIZE,
    CODES,
    ZERO_CODES,
    Records,
    zigzag,
)

_INT32 = struct.Struct(">i")
_PLAIN = struct.Struct(">qi4xbIhiq22xQB")
"""Base offset, length, format, checksum, attributes, last offset delta, first time; then as one number the
count of records and the first four bytes of the first one; then its fifth byte."""
_LENGTH_AT = 8
_EPOCH_AT = 12
_REST_FROM = HEADER_BYTES + 4
"""Place of the bytes behind the numbers of the only record, if its length has one byte."""
_PORTION_BYTES = 128 << 10

_FRONT_SIZE = SMALL_BYTES
_ONE_BYTE_TO = 113
_TWO_BYTES_FROM = 115
"""Length fields of batches whose only record has a length of one byte, and of two."""
_NEVER = -1
_LENGTHENS_AT = (1 << 6, 1 << 13, CODE_SIZE)
"""Numbers from which on a varint has two bytes, and three; and those that are not looked up."""


def _front(size: int) -> int:
    """Count and first four bytes of the only record of a batch, by the length field of the batch: zeros
    follow the record's length."""
    record_bytes = size + LENGTH_OFFSET - HEADER_BYTES - (1 if size <= _ONE_BYTE_TO else 2)
    if record_bytes < 3 or _ONE_BYTE_TO < size < _TWO_BYTES_FROM:
        return _NEVER
    return int.from_bytes(b"\0\0\0\1" + zigzag(record_bytes).ljust(4, b"\0"))


_FRONTS = [_front(size) for size in range(_FRONT_SIZE)]


@dataclass(frozen=True, slots=True)
class Taken:
    """Stored batches that were taken, the place behind them, and the last one's next offset and epoch."""

    batches: int
    at: int
    next_offset: int
    leader_epoch: int


class _Cursor:
    """Place where taking goes on. `position`: the next source offset; `data`, `at`: bytes of batches, and
    a place in them; `begin`: of the last batch that was taken; `batches`: number that was taken of `data`."""

    __slots__ = (
        "at",
        "batch_bytes",
        "batches",
        "begin",
        "check_crc",
        "data",
        "end_offset",
        "position",
        "single_bytes",
    )

    def __init__(self, position: int, end_offset: int, batch_bytes: int, check_crc: bool) -> None:
        assert batch_bytes <= LARGE_BYTES <= _PORTION_BYTES
        self.position = position
        self.end_offset = end_offset
        self.batch_bytes = batch_bytes
        self.single_bytes = min(batch_bytes, SMALL_BYTES)
        self.check_crc = check_crc
        self.data = b""
        self.at = self.begin = self.batches = 0

    @property
    def leader_epoch(self) -> int:
        """Leader epoch of the last batch that was taken."""
        epoch: int = _INT32.unpack_from(self.data, self.begin + _EPOCH_AT)[0]
        return epoch

    def take(self, batches: int, begin: int, at: int, position: int) -> None:
        self.batches += batches
        self.begin, self.at, self.position = begin, at, position


class PlainRecords(Records):
    """Records of one new batch, from small plain ones."""

    __slots__ = ()

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

        They have at most `batch_bytes`, and lie from `position` on and below `end_offset`. Nothing is raised:
        a batch that is wrong in itself is not taken, so the reader of single batches names the fault.
        """
        cursor = _Cursor(position, end_offset, batch_bytes, check_crc)
        batches, epoch = 0, -1
        while (
            end - at >= _PLAIN.size and _INT32.unpack_from(buffer, at + _LENGTH_AT)[0] < batch_bytes
        ):
            room = limit_bytes - self.size_bytes
            if room < batch_bytes:
                break
            portion = bytes(buffer[at : min(end, at + min(room, _PORTION_BYTES))])
            self._take_portion(portion, cursor)
            if not cursor.batches:
                break
            batches, at, epoch = batches + cursor.batches, at + cursor.at, cursor.leader_epoch
        return Taken(batches, at, cursor.position, epoch)

    def _take_portion(self, data: bytes, cursor: _Cursor) -> None:
        """Take batches that are whole in these bytes."""
        cursor.data, cursor.at, cursor.begin, cursor.batches = data, 0, 0, 0
        before = -1
        while before != cursor.batches:
            before = cursor.batches
            while self._take_equal(cursor):
                pass
            self._take_singles(cursor)
            self._take_others(cursor)

    def _take_equal(self, cursor: _Cursor) -> bool:
        """Take batches of one record and the same length; False if they are few."""
        data, at, index = cursor.data, cursor.at, self.count
        if at > len(data) - _PLAIN.size:
            return False
        base, size, magic, _, attributes, last, _, front, fifth = _PLAIN.unpack_from(data, at)
        if (
            not 0 < size <= cursor.single_bytes - LENGTH_OFFSET
            or front != _FRONTS[size]
            or attributes
            or last
            or magic != NEWEST_MAGIC
            or base < cursor.position
            or (fifth and size >= _TWO_BYTES_FROM)
        ):
            return False
        rest_from = _REST_FROM + (size >= _TWO_BYTES_FROM)
        size += LENGTH_OFFSET
        found = read_equal(
            data,
            at,
            size=size,
            rest_from=rest_from,
            most=min(
                (len(data) - at) // size,
                cursor.end_offset - base,
                next((limit for limit in _LENGTHENS_AT if index < limit), index) - index,
            ),
            offset=base,
            check_crc=cursor.check_crc,
        )
        if found is None or not self._add_equal(found, base, size - rest_from):
            return False
        count = len(found.rests)
        end = at + count * size
        cursor.take(count, end - size, end, base + count)
        return True

    def _add_equal(self, found: EqualBatches, offset: int, rest_bytes: int) -> bool:
        """False, and nothing has changed, if a time needs a longer number."""
        index, count = self.count, len(found.rests)
        base_ms = self._base_ms if index else found.times_ms[0]
        latest_ms = max(found.times_ms)
        if min(found.times_ms) < base_ms or latest_ms - base_ms >= CODE_SIZE:
            return False
        heads = [ZERO_CODES[time_ms - base_ms] for time_ms in found.times_ms]
        indexes = CODES[index : index + count]
        behind = len(indexes[0]) + rest_bytes
        lengths = [CODES[len(head) + behind] for head in heads]
        records = zip(lengths, heads, indexes, found.rests, strict=True)
        self._data += b"".join(chain.from_iterable(records))
        if offset != self._next_offset:
            self._runs.append((index, offset))
        self._latest_ms = max(self._latest_ms, latest_ms) if index else latest_ms
        self._base_ms, self.count, self._next_offset = base_ms, index + count, offset + count
        return True

    def _take_singles(self, cursor: _Cursor) -> None:
        """Take batches of one record, whose numbers are as nearly always."""
        codes, zero_codes, code_size, fronts = CODES, ZERO_CODES, CODE_SIZE, _FRONTS
        unpack, out, runs, index = _PLAIN.unpack_from, self._data, self._runs, self.count
        data, at, position, begin = cursor.data, cursor.at, cursor.position, cursor.begin
        end, most_size, check_crc = len(data), cursor.single_bytes - LENGTH_OFFSET, cursor.check_crc
        base_ms, latest_ms, end_offset = self._base_ms, self._latest_ms, cursor.end_offset
        first, last_at, follows = index, end - _PLAIN.size, self._next_offset
        while at <= last_at:
            base, size, magic, crc, attributes, last, time_ms, front, fifth = unpack(data, at)
            stop = at + LENGTH_OFFSET + size
            if not index:
                base_ms = latest_ms = time_ms
            delta_ms = time_ms - base_ms
            if (
                not 0 < size <= most_size
                or front != fronts[size]
                or attributes
                or last
                or magic != NEWEST_MAGIC
                or not position <= base < end_offset
                or stop > end
                or not 0 <= delta_ms < code_size > index
                or (fifth and size >= _TWO_BYTES_FROM)
                or (check_crc and crc32c(data[at + COVERED_FROM : stop]) != crc)
            ):
                break
            if time_ms > latest_ms:
                latest_ms = time_ms
            if base != follows:
                runs.append((index, base))
            head = zero_codes[delta_ms] + codes[index]
            rest = at + _REST_FROM + (size >= _TWO_BYTES_FROM)
            out += codes[len(head) + stop - rest] + head
            out += data[rest:stop]
            begin, at, index = at, stop, index + 1
            position = follows = base + 1
        if index > first:
            self.count, self._base_ms, self._latest_ms = index, base_ms, latest_ms
            self._next_offset = position
            cursor.take(index - first, begin, at, position)

    def _take_others(self, cursor: _Cursor) -> None:
        """Take batches of several records, or the next one if it has one record with other numbers."""
        data, end, taken = cursor.data, len(cursor.data), 0
        view = memoryview(data)
        while cursor.at <= end - _PLAIN.size:
            at = cursor.at
            base, size, magic, crc, attributes, last, time_ms, front, _ = _PLAIN.unpack_from(
                data, at
            )
            stop = at + LENGTH_OFFSET + size
            large = stop - at > SMALL_BYTES
            if (
                attributes
                or magic != NEWEST_MAGIC
                or not cursor.position <= base <= base + last < cursor.end_offset
                or last != (front >> 32) - 1
                or (last >= FEW_RECORDS if large else taken and not last)
                or not HEADER_BYTES < stop - at <= cursor.batch_bytes
                or stop > end
            ):
                return
            covered = (view if large else data)[at + COVERED_FROM : stop]
            if cursor.check_crc and crc32c(covered) != crc:
                return
            if not self._spliced(covered, last + 1, base, time_ms):
                return
            taken += 1
            cursor.take(1, at, stop, base + last + 1)

    def _spliced(self, covered: Bytes, count: int, base_offset: int, base_ms: int) -> bool:
        """Take the records of a batch, `covered` by its checksum; False, and nothing has changed, if they are
        wrong."""
        before = (self.count, self._next_offset, self._base_ms, self._latest_ms)
        size, runs = len(self._data), len(self._runs)
        try:
            begin = HEADER_BYTES - COVERED_FROM
            if self.splice(covered, begin, count, base_offset, base_ms) == len(covered):
                return True
        except CorruptBatch:
            pass
        self.count, self._next_offset, self._base_ms, self._latest_ms = before
        del self._data[size:], self._runs[runs:]
        return False
