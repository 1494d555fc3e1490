"""Plain batches of one record and of the same length, read by columns. Hot path.

Records of a topic are often equally long, and so are their batches then: the same field of all of them lies
at equal distances. What Python would do for each batch is one call for all:

    a byte that is the same in all      a slice with a step, and how far its first byte goes on
    offsets, checksums, times, the rest `struct.iter_unpack`
    checksums                           `map`, and one comparison

Batches that differ are left to the caller, which reads them one by one.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache

from crc32c import crc32c

from ureplicator_worker.batches.header import COVERED_FROM

LEAST = 16
"""Least number of batches: with fewer of them it is not faster."""
_SIZE, _SIZE_END = 8, 12
_FORMAT = 16
_DELTAS_END = 27
"""Attributes and last offset delta are between `COVERED_FROM` and here."""
_COUNT = 57
"""The record's numbers are behind it."""
_FIXED = (*range(_SIZE_END - 1, _SIZE - 1, -1), _FORMAT, *range(COVERED_FROM, _DELTAS_END))
"""Places of bytes that are the same in all, the one first that differs most."""


@dataclass(frozen=True, slots=True)
class EqualBatches:
    """`rests`: of each record, the bytes behind its numbers."""

    times_ms: tuple[int, ...]
    rests: tuple[bytes, ...]


def read_equal(
    data: bytes, at: int, *, size: int, rest_from: int, most: int, offset: int, check_crc: bool
) -> EqualBatches | None:
    """Batches of `size` bytes from `at` on, `most` of them at most; None unless `LEAST` are equal.

    The first one is known to be plain, with one record and the base offset `offset`; its record's rest begins
    `rest_from` bytes behind `at`. None, too, if their offsets do not follow one another, or a checksum is
    wrong.
    """
    count = _equal(data, at, size=size, rest_from=rest_from, most=most)
    if count < LEAST:
        return None
    outer, inner = _structs(size, rest_from)
    batches = memoryview(data)[at : at + count * size]
    offsets, crcs, bodies = zip(*outer.iter_unpack(batches), strict=True)
    if offsets != tuple(range(offset, offset + count)):
        return None
    if check_crc and tuple(map(crc32c, bodies)) != crcs:
        return None
    return EqualBatches(*zip(*inner.iter_unpack(batches), strict=True))


def _equal(data: bytes, at: int, *, size: int, rest_from: int, most: int) -> int:
    """Number of batches whose fixed bytes are those of the first one."""
    count = most
    for place in (*_FIXED, *range(_COUNT, rest_from)):
        if count < LEAST:
            break
        column = data[at + place : at + count * size : size]
        count -= len(column.lstrip(column[:1]))
    return count


@lru_cache(maxsize=256)
def _structs(size: int, rest_from: int) -> tuple[struct.Struct, struct.Struct]:
    """Base offset, checksum and what it covers; time and rest of the record: of each batch."""
    outer = struct.Struct(f">q9xI{size - COVERED_FROM}s")
    inner = struct.Struct(f">{_DELTAS_END}xq{rest_from - _DELTAS_END - 8}x{size - rest_from}s")
    return outer, inner
