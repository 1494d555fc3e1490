"""Record batches of the map's topic: format 2, without compression, in transactions. Pure.

Layout: https://kafka.apache.org/documentation/#recordbatch, as in the data path, where nothing is decoded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c

from ureplicator_common.offset_map.codec import Row, UnknownMapFormat

HEADER_BYTES = 61
LENGTH_OFFSET = 12
FORMAT = 2
CODEC_BITS = 0x07
TRANSACTIONAL = 0x10
CONTROL = 0x20
ABORT_KEY = b"\0\0\0\0"
"""Of a marker: version 0, type 0."""

_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH = struct.Struct(">i")
_CRC_AT, _CRC_FROM = 17, 21
_CRC = struct.Struct(">I")


class Batch(NamedTuple):
    """A stored batch. `ends`: it is a marker, without rows; `aborts`: of an aborted transaction."""

    first: int
    last: int
    producer_id: int
    transactional: bool
    ends: bool
    aborts: bool
    rows: Sequence[Row]


def encode_batch(
    rows: Sequence[Row], *, producer_id: int, producer_epoch: int, sequence: int, time_ms: int
) -> bytes:
    """A batch of a transaction."""
    payload = b"".join(_record(number, each) for number, each in enumerate(rows))
    data = bytearray(
        _HEADER.pack(
            0,
            HEADER_BYTES - LENGTH_OFFSET + len(payload),
            -1,
            FORMAT,
            0,
            TRANSACTIONAL,
            len(rows) - 1,
            time_ms,
            time_ms,
            producer_id,
            producer_epoch,
            sequence,
            len(rows),
        )
    )
    data += payload
    _CRC.pack_into(data, _CRC_AT, crc32c(memoryview(data)[_CRC_FROM:]))
    return bytes(data)


def _record(number: int, row: Row) -> bytes:
    key, value = row
    body = b"".join(
        (b"\0", _zigzag(0), _zigzag(number), _sized(key), _sized(value), _zigzag(0)),
    )
    return _zigzag(len(body)) + body


def _sized(data: bytes | None) -> bytes:
    return _zigzag(-1) if data is None else _zigzag(len(data)) + data


def decode_batches(data: bytes) -> Iterator[Batch]:
    """Whole batches of a fetch response; a cut one at the end is left out. Raises UnknownMapFormat."""
    at = 0
    while len(data) - at >= HEADER_BYTES:
        (length,) = _LENGTH.unpack_from(data, at + 8)
        stop = at + LENGTH_OFFSET + length
        if stop > len(data) or length < HEADER_BYTES - LENGTH_OFFSET:
            return
        yield _batch(data[at:stop])
        at = stop


def _batch(data: bytes) -> Batch:
    first, _, _, form, crc, attributes, delta, _, _, producer_id, _, _, count = _HEADER.unpack_from(
        data
    )
    if form != FORMAT or attributes & CODEC_BITS:
        raise UnknownMapFormat(
            f"offset map: a batch at offset {first} of format {form}, codec {attributes & CODEC_BITS}:"
            " another program writes to the topic"
        )
    if crc32c(memoryview(data)[_CRC_FROM:]) != crc:
        raise UnknownMapFormat(f"offset map: a wrong checksum at offset {first}")
    rows = list(_rows(data, count))
    ends = bool(attributes & CONTROL)
    return Batch(
        first=first,
        last=first + delta,
        producer_id=producer_id,
        transactional=bool(attributes & TRANSACTIONAL),
        ends=ends,
        aborts=ends and any(each.key == ABORT_KEY for each in rows),
        rows=() if ends else rows,
    )


def _rows(data: bytes, count: int) -> Iterator[Row]:
    at = HEADER_BYTES
    for _ in range(count):
        length, at = _number(data, at)
        end = at + length
        _, at = _number(data, at + 1)
        _, at = _number(data, at)
        key, at = _bytes(data, at)
        value, _ = _bytes(data, at)
        yield Row(key or b"", value)
        at = end


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _number(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def _zigzag(value: int) -> bytes:
    left = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def _number(data: bytes, at: int) -> tuple[int, int]:
    left = shift = 0
    while True:
        byte = data[at]
        at += 1
        left |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (left >> 1) ^ -(left & 1), at
        shift += 7
