"""Comparison of stored record batches by their checksums, without a look at the records.

A batch that was passed on as it is has another producer, sequence and offset at the target; the records, as
they are stored, are the same bytes. The stored CRC-32C covers the 40 bytes of the header behind it and the
records. CRCs are linear: for two batches with records of equal length,

    crc(H1 | R1) ^ crc(H2 | R2) == shift(crc(H1) ^ crc(H2), length of the records)

holds if the records are equal, where `shift` appends zeros. For records that differ it holds once in 2^32,
and never if less than 33 bits in a row differ. So the bytes of the records need not be read.

`Lockstep` passes over pairs of equal batches, and ends at the first pair that is not provably equal. It
never leaves a batch with records out, so a missing, repeated, reordered or altered record ends it, and one
that lies elsewhere than claimed. So do holes of compaction, and batches that were merged or compressed
again: which of these it is, only the comparison of records says. Records of aborted transactions, and
markers, are on no side.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from crc32c import crc32c

from ureplicator_worker.audit.core.claims import UNCLAIMED, Claim

HEADER = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length, leader epoch, format, checksum, attributes, last offset delta, first and highest time,
producer, its epoch, sequence, count of records."""
LENGTH_FROM = 12
"""Bytes that the length does not count."""
COVERED_FROM = 21
FORMAT = 2

_CODEC = 0x07
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_DELETE_HORIZON = 0x40
_ONES = 0xFFFFFFFF
STEP_BYTES = 32 << 10
MOST_STEPS = 32
"""Steps that are looked up at once, of `STEP_BYTES` each: to append zeros takes 0.04 ns for a byte, and
a batch may have megabytes."""
_ZEROS = memoryview(bytes(STEP_BYTES))


class OldFormat(Exception):
    """A batch of format 0 or 1."""


class Batch(NamedTuple):
    """One batch with records. `form`: what must be equal; None: it is not comparable by its checksum.

    `head`: CRC of the covered part of the header; `crc`: of that and the records; `size`: of the records.
    """

    first: int
    next: int
    form: tuple[int, ...] | None
    size: int
    head: int
    crc: int


@dataclass(frozen=True, slots=True)
class Place:
    """Offsets of a record and of its copy."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Matched:
    """Result of a comparison of batches: up to `place` both sides are equal. `differs`: they are not,
    or not provably, in the next `records`; 0: one of them has ended."""

    place: Place
    differs: bool = False
    records: int = 0


class Aborted:
    """Aborted transactions of one response, by producer and first offset. One ends at the producer's next
    marker."""

    def __init__(self, transactions: Iterable[tuple[int, int]] = ()) -> None:
        self._begins: dict[int, list[int]] = {}
        for producer, first in transactions:
            self._begins.setdefault(producer, []).append(first)

    def holds(self, producer: int, offset: int) -> bool:
        return any(first <= offset for first in self._begins.get(producer, ()))

    def end(self, producer: int, offset: int) -> None:
        left = [first for first in self._begins.get(producer, ()) if first > offset]
        self._begins[producer] = left


def parsed(
    header: bytes | memoryview, *, timestamps: bool, aborted: Aborted
) -> tuple[Batch | None, int, int]:
    """The batch, None if it has no records for readers of committed ones; the offset behind it; bytes of its
    records. Headers come in the order of the log. Raises OldFormat."""
    (base, length, _, format, crc, flags, last, first_ms, newest_ms, producer, _, _, count) = (
        HEADER.unpack(header)
    )
    if format != FORMAT:
        raise OldFormat(f"format {format} at offset {base}")
    size, after = length + LENGTH_FROM - HEADER.size, base + last + 1
    if flags & _CONTROL:
        aborted.end(producer, base)
        return None, after, size
    if not count or (flags & _TRANSACTIONAL and aborted.holds(producer, base)):
        return None, after, size
    unfit = _DELETE_HORIZON | (_LOG_APPEND_TIME if timestamps else 0)
    if count != last + 1 or flags & unfit:
        return Batch(base, after, None, size, 0, crc), after, size
    form = (count, flags & _CODEC, size, first_ms, newest_ms if timestamps else 0)
    return Batch(base, after, form, size, crc32c(header[COVERED_FROM:]), crc), after, size


def shifted(crc: int, count: int) -> int:
    """The linear part of a CRC after `count` bytes more."""
    steps, rest = divmod(count, STEP_BYTES)
    while steps:
        some = min(steps, MOST_STEPS)
        first, second, third, fourth = _shifts(some)
        crc = first[crc & 255] ^ second[crc >> 8 & 255] ^ third[crc >> 16 & 255] ^ fourth[crc >> 24]
        steps -= some
    return crc32c(_ZEROS[:rest], crc ^ _ONES) ^ _ONES


@lru_cache(MOST_STEPS)
def _shifts(steps: int) -> Sequence[Sequence[int]]:
    """A table for each byte of a CRC: its values after so many steps. The whole is the XOR of those of its
    bytes."""
    bits = [1 << bit for bit in range(32)]
    for _ in range(steps):
        bits = [crc32c(_ZEROS, bit ^ _ONES) ^ _ONES for bit in bits]
    return [_sums(bits[at : at + 8]) for at in range(0, 32, 8)]


def _sums(bits: Sequence[int]) -> list[int]:
    """XOR of the bits of each number."""
    sums = [0]
    for bit in bits:
        sums += [former ^ bit for former in sums]
    return sums


def equal(source: Batch, target: Batch) -> bool:
    """True if both hold the same records."""
    if source.form is None or source.form != target.form:
        return False
    return source.crc ^ target.crc == shifted(source.head ^ target.head, source.size)


class Lockstep:
    """Pairs of batches of one partition, from `place` on. The first pair may begin before it, on both sides
    as far."""

    def __init__(
        self,
        source: Iterator[Batch],
        target: Iterator[Batch],
        *,
        place: Place,
        end: int,
        claim: Claim = UNCLAIMED,
        late: Callable[[], bool] = lambda: False,
    ) -> None:
        """`end`: source offset; a batch that reaches it is the last one. `late`: it is to end earlier."""
        self._source, self._target = source, target
        self._place, self._end = place, end
        self._claim = claim
        self._late = late

    def run(self) -> Matched:
        at, copy = self._place.source, self._place.target
        while at < self._end and not self._late():
            ours, theirs = next(self._source, None), next(self._target, None)
            if ours is None or theirs is None:
                return Matched(Place(at, copy), differs=True)
            begins_alike = max(0, at - ours.first) == max(0, copy - theirs.first)
            lies_as_claimed = self._claim.holds(ours.first, ours.next, theirs.first)
            if not begins_alike or not lies_as_claimed or not equal(ours, theirs):
                records = max(batch.next - batch.first for batch in (ours, theirs))
                return Matched(Place(at, copy), differs=True, records=records)
            at, copy = ours.next, theirs.next
        return Matched(Place(at, copy))
