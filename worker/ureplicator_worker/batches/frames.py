"""Ends of compressed frames in a payload, without decoding them. Pure.

lz4 (LZ4 Frame Format Description 1.6, https://github.com/lz4/lz4):

    magic 4, flags 1, block size 1, [content size 8], [dictionary 4], header checksum 1,
    blocks: size 4 (its highest bit: stored as it is), data, [checksum 4]; a size of 0 ends them,
    [content checksum 4]

zstd (RFC 8878):

    magic 4, descriptor 1, [window 1], [dictionary 0 to 4], [content size 0 to 8],
    blocks: header 3 (last 1 bit, kind 2 bits, size 21 bits), data (of kind 1: one byte), [checksum 4]
    skippable frames: magic 4, size 4, data

All numbers are little endian. Every function raises CorruptBatch for a payload that does not begin with a
whole frame.
"""

from __future__ import annotations

import struct

from ureplicator_worker.batches.header import CorruptBatch

_LZ4_MAGIC = 0x184D2204
_BLOCK_CHECKSUM, _CONTENT_SIZE, _CONTENT_CHECKSUM, _DICTIONARY = 0x10, 0x08, 0x04, 0x01
_STORED = 1 << 31
_ZSTD_MAGIC = 0xFD2FB528
_SKIPPABLE_MAGIC = 0x184D2A50
_DICTIONARY_BYTES = (0, 1, 2, 4)
_SIZE_BYTES = (0, 2, 4, 8)
_ONE_BYTE = 1
_UINT32 = struct.Struct("<I")
_PRIMES = 2654435761, 2246822519, 3266489917, 374761393
_MASK = 0xFFFFFFFF


def lz4_end(payload: memoryview) -> int:
    """End of the first frame."""
    try:
        _begin, end = _lz4_blocks(payload)
    except (IndexError, struct.error) as error:
        raise CorruptBatch("cut lz4 frame") from error
    if end > len(payload):
        raise CorruptBatch("cut lz4 frame")
    return end


def lz4_unchecked(payload: memoryview) -> bytes:
    """The first frame without size and checksum of its content, which Kafka's reader does not look at."""
    end = lz4_end(payload)
    flags = payload[4]
    at, _ = _lz4_blocks(payload)
    if flags & _CONTENT_CHECKSUM:
        end -= 4
    descriptor = bytes((flags & ~(_CONTENT_SIZE | _CONTENT_CHECKSUM | _DICTIONARY), payload[5]))
    check = _xxh32(descriptor) >> 8 & 0xFF
    return b"".join((payload[:4], descriptor, bytes((check,)), payload[at:end]))


def _lz4_blocks(payload: memoryview) -> tuple[int, int]:
    """(where the blocks begin, end of the frame)."""
    (magic,) = _UINT32.unpack_from(payload)
    if magic != _LZ4_MAGIC:
        raise CorruptBatch("no lz4 frame")
    flags = payload[4]
    begin = at = 7 + 8 * bool(flags & _CONTENT_SIZE) + 4 * bool(flags & _DICTIONARY)
    more = 4 * bool(flags & _BLOCK_CHECKSUM)
    while True:
        (size,) = _UINT32.unpack_from(payload, at)
        at += 4
        if not size:
            return begin, at + 4 * bool(flags & _CONTENT_CHECKSUM)
        at += (size & ~_STORED) + more


def _xxh32(data: bytes) -> int:
    """Hash of less than four bytes, seed 0 (https://github.com/Cyan4973/xxHash)."""
    first, second, third, fifth = _PRIMES
    value = (fifth + len(data)) & _MASK
    for byte in data:
        value = (value + byte * fifth) & _MASK
        value = (value << 11 | value >> 21) * first & _MASK
    value = (value ^ value >> 15) * second & _MASK
    value = (value ^ value >> 13) * third & _MASK
    return value ^ value >> 16


def zstd_end(payload: memoryview) -> int:
    """End of the last whole frame."""
    at = 0
    while len(payload) - at >= _UINT32.size:
        try:
            end = _zstd_frame_end(payload, at)
        except (IndexError, struct.error):
            break
        if end > len(payload):
            break
        at = end
    if not at:
        raise CorruptBatch("cut zstd frame")
    return at


def _zstd_frame_end(payload: memoryview, at: int) -> int:
    (magic,) = _UINT32.unpack_from(payload, at)
    if magic & ~0xF == _SKIPPABLE_MAGIC:
        return at + 8 + int(_UINT32.unpack_from(payload, at + 4)[0])
    if magic != _ZSTD_MAGIC:
        raise CorruptBatch("no zstd frame")
    descriptor = payload[at + 4]
    single = descriptor >> 5 & 1
    at += 5 + (1 - single) + _DICTIONARY_BYTES[descriptor & 3]
    at += _SIZE_BYTES[descriptor >> 6] or single
    while True:
        block = payload[at] | payload[at + 1] << 8 | payload[at + 2] << 16
        at += 3 + (1 if block >> 1 & 3 == _ONE_BYTE else block >> 3)
        if block & 1:
            return at + 4 * (descriptor >> 2 & 1)
