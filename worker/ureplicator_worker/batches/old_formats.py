"""Messages of formats 0 and 1, as brokers upgraded from before 0.11 still store them. Cold path.

    0  8 offset     12 4 crc      16 1 magic         18 8 timestamp (format 1 only)
    8  4 length     (from 16 on)  17 1 attributes    .. key, value, each with an int32 length

A compressed one is a wrapper: its value holds messages, its offset is that of the last. The offsets inside
are the log's (format 0) or count from any number up to that of the last (format 1). Bit 3 of a wrapper's
attributes: all have the wrapper's time. Format 0 has no times.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from ureplicator_worker.batches.codecs import LZ4, NONE, Bytes, decompress
from ureplicator_worker.batches.header import (
    CODEC_BITS,
    LOG_APPEND_TIME,
    CorruptBatch,
)
from ureplicator_worker.batches.records import Records, zigzag

UNKNOWN_TIME_MS = -1
NO_BYTES = -1

_SET = struct.Struct(">qiIbb")
_TIME = struct.Struct(">q")
_SIZE = struct.Struct(">i")
_CRC_FROM = 16


class Message:
    """One message, or a wrapper."""

    __slots__ = ("attributes", "key", "magic", "offset", "time_ms", "value")

    def __init__(self, data: Bytes, at: int) -> None:
        self.offset, _length, _crc, self.magic, self.attributes = _SET.unpack_from(data, at)
        at += _SET.size
        self.time_ms = UNKNOWN_TIME_MS
        if self.magic:
            (self.time_ms,) = _TIME.unpack_from(data, at)
            at += _TIME.size
        self.key, at = _field(data, at)
        self.value, at = _field(data, at)


def collect(view: memoryview, records: Records, *, first: int, limit_bytes: int) -> None:
    """Take the records of one stored message, or wrapper, from offset `first` on. Raises CorruptBatch."""
    try:
        for message in _messages(bytes(view), limit_bytes):
            if message.offset >= first:
                rest = _encoded(message.key) + _encoded(message.value) + zigzag(0)
                records.append(rest, offset=message.offset, time_ms=message.time_ms)
    except struct.error as error:
        raise CorruptBatch(f"cut message of an old format: {error}") from error


def _messages(data: bytes, limit_bytes: int) -> Iterator[Message]:
    outer = Message(data, 0)
    (crc,) = struct.unpack_from(">I", data, 12)
    if zlib.crc32(data[_CRC_FROM:]) != crc:
        raise CorruptBatch("checksum of a message of the old format is wrong")
    codec = outer.attributes & CODEC_BITS
    if codec == NONE:
        yield outer
        return
    if codec == LZ4 and not outer.magic:
        raise CorruptBatch("format 0 with lz4, whose frames are none")
    inner = list(_unpacked(decompress(codec, outer.value or b"", limit_bytes=limit_bytes)))
    shift = outer.offset - inner[-1].offset if inner and outer.magic else 0
    for message in inner:
        message.offset += shift
        if outer.attributes & LOG_APPEND_TIME:
            message.time_ms = outer.time_ms
        yield message


def _unpacked(data: Bytes) -> Iterator[Message]:
    at = 0
    while at < len(data):
        yield Message(data, at)
        (length,) = _SIZE.unpack_from(data, at + 8)
        if length < _SET.size - 12:
            raise CorruptBatch(f"message of {length} bytes")
        at += 12 + length


def _field(data: Bytes, at: int) -> tuple[bytes | None, int]:
    (size,) = _SIZE.unpack_from(data, at)
    at += _SIZE.size
    if size == NO_BYTES:
        return None, at
    if not 0 <= size <= len(data) - at:
        raise CorruptBatch(f"key or value of {size} bytes in a message of an old format")
    return bytes(data[at : at + size]), at + size


def _encoded(field: bytes | None) -> bytes:
    return zigzag(NO_BYTES) if field is None else zigzag(len(field)) + field
