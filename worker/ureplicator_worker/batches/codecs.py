"""Compressed records: bounded decompression, and compression. Hot path.

Codecs of the attributes: 0 none, 1 gzip, 2 snappy, 3 lz4 (frames), 4 zstd. A batch of 700 bytes may decode
to 20 MB: every call names its limit, and nothing beyond it is held in memory.

* gzip and zstd allow several members or frames in one payload, which are decoded one after the other. For
  small payloads the set-up of a decoder of lz4 or zstd takes longer than the decoding, so those of a run
  of batches are decoded together (`CONCATENATE`; plain ones need no decoding at all).
* snappy comes raw, or in blocks behind a header (snappy-java's framing). Brokers read both; the latter is
  written.
* lz4 frames have independent blocks: brokers refuse linked ones. Checksums are written for neither.

What Kafka's own reader reads is read, which is what brokers accept (`kafka_readers.json` of the testkit has
what it does with each input, of Kafka 2.8.2 to 4.4.0):

| codec | behind a member, frame or stream | other than the formats say |
|---|---|---|
| gzip | members are read; all else is ignored | - |
| snappy | streams are read; up to 3 bytes are ignored, all else is an error | versions are not looked at |
| lz4 | ignored, also whole frames | checksum and size of the content are not looked at |
| zstd | frames are read, skippable ones and a cut one ignored, all else is an error | - |

Levels are the fastest ones. What is compressed here was many small batches before, and gets smaller by far
from being one; the highest gzip level takes five times as long for 3 % less.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping

import cramjam

from ureplicator_worker.batches.frames import lz4_end, lz4_unchecked, zstd_end
from ureplicator_worker.batches.header import CorruptBatch

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CONCATENATE = frozenset({NONE, LZ4, ZSTD})
"""Codecs whose payloads may be joined and decoded in one call."""

GZIP_LEVEL = 1
LZ4_LEVEL = 1
ZSTD_LEVEL = 1
SNAPPY_BLOCK_BYTES = 32 << 10
GZIP_PORTION_BYTES = 4 << 10
FIRST_GUESS_BYTES = 64 << 10
GUESSED_RATIO = 8
GROWTH = 4

_SNAPPY_MAGIC = b"\x82SNAPPY\x00"
_SNAPPY_HEADER = _SNAPPY_MAGIC + struct.pack(">ii", 1, 1)
_INT32 = struct.Struct(">i")
_GZIP_WINDOW = 31
_GZIP_MEMBER = b"\x1f\x8b\x08"
_GZIP_LEAST_BYTES = 19
"""Java's reader looks for another member only in as many."""
_LZ4_UNCHECKED = "contentChecksum", "frameSize"
"""Parts of the library's messages for what Kafka's reader does not look at."""
_ZSTD_CUT = "incomplete frame", "Unknown frame descriptor"
_BUFFER_FULL = "whole buffer"
"""Part of the library's message for an output buffer that is too small."""

Bytes = bytes | bytearray | memoryview
Decoder = Callable[[Bytes, bytearray], int]
Decoders = Mapping[int, Callable[[Bytes, int], Bytes]]


class TooLarge(CorruptBatch):
    """The records decode to more bytes than allowed."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"records decode to more than {limit_bytes} bytes")


def decompress(codec: int, payload: Bytes, *, limit_bytes: int) -> Bytes:
    """The records of a batch. Raises CorruptBatch, and TooLarge above the limit."""
    return _decoded(_DECODERS, codec, payload, limit_bytes)


def decompress_joined(codec: int, payload: Bytes, *, limit_bytes: int) -> Bytes:
    """The records of batches whose payloads are joined.

    Raises CorruptBatch, and TooLarge above the limit; each payload may be readable by itself all the same.
    """
    return _decoded(_JOINED, codec, payload, limit_bytes)


def _decoded(decoders: Decoders, codec: int, payload: Bytes, limit_bytes: int) -> Bytes:
    if codec == NONE:
        return payload
    try:
        return decoders[codec](payload, limit_bytes)
    except CorruptBatch:
        raise
    except KeyError as error:
        raise CorruptBatch(f"codec {codec} does not exist") from error
    except Exception as error:  # the libraries raise whatever their codecs raise
        raise CorruptBatch(f"cannot be decompressed: {error}") from error


def _gunzip(payload: Bytes, limit_bytes: int) -> Bytes:
    decoder = zlib.decompressobj(_GZIP_WINDOW)
    data = decoder.decompress(payload, limit_bytes + 1)
    if len(data) > limit_bytes:
        raise TooLarge(limit_bytes)
    if not decoder.eof:
        raise CorruptBatch("cut gzip stream")
    at = len(payload) - len(decoder.unused_data)
    return b"".join((data, *_further_members(payload, at, limit_bytes - len(data))))


def _further_members(payload: Bytes, at: int, limit_bytes: int) -> Iterator[bytes]:
    """Members behind the first one, in portions, since zlib copies what follows a member, each time."""
    view, left_bytes = memoryview(payload), limit_bytes
    while len(view) - at >= _GZIP_LEAST_BYTES and view[at : at + 3] == _GZIP_MEMBER:
        decoder = zlib.decompressobj(_GZIP_WINDOW)
        while not decoder.eof:
            portion = view[at : at + GZIP_PORTION_BYTES]
            if not portion:
                raise CorruptBatch("cut gzip stream")
            data = decoder.decompress(portion, left_bytes + 1)
            left_bytes -= len(data)
            if left_bytes < 0:
                raise TooLarge(limit_bytes)
            at += len(portion) - len(decoder.unused_data)
            yield data


def _unsnap(payload: Bytes, limit_bytes: int) -> Bytes:
    payload = bytes(payload)
    if not payload.startswith(_SNAPPY_MAGIC):
        return _unsnap_block(payload, limit_bytes)
    blocks = []
    at = len(_SNAPPY_HEADER)
    while len(payload) - at >= _INT32.size:
        if payload.startswith(_SNAPPY_MAGIC[: _INT32.size], at):  # another stream
            at += len(_SNAPPY_HEADER)
            if at > len(payload):
                raise CorruptBatch("cut snappy header")
            continue
        (size,) = _INT32.unpack_from(payload, at)
        at += _INT32.size
        if not 0 <= size <= len(payload) - at:
            raise CorruptBatch(f"snappy block of {size} bytes")
        block = _unsnap_block(payload[at : at + size], limit_bytes)
        limit_bytes -= len(block)
        blocks.append(block)
        at += size
    return blocks[0] if len(blocks) == 1 else b"".join(blocks)


def _unsnap_block(block: Bytes, limit_bytes: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(block) > limit_bytes:
        raise TooLarge(limit_bytes)
    return memoryview(cramjam.snappy.decompress_raw(block)).tobytes()


def _unlz4(payload: Bytes, limit_bytes: int) -> Bytes:
    """The first frame, as in Kafka's reader."""
    view = memoryview(payload)
    try:
        return _unlz4_all(view[: lz4_end(view)], limit_bytes)
    except cramjam.DecompressionError as error:
        if not any(part in str(error) for part in _LZ4_UNCHECKED):
            raise
    return _unlz4_all(lz4_unchecked(view), limit_bytes)


def _unlz4_all(payload: Bytes, limit_bytes: int) -> Bytes:
    return _into_buffer(cramjam.lz4.decompress_into, payload, limit_bytes)


def _unzstd(payload: Bytes, limit_bytes: int) -> Bytes:
    """A frame that is cut behind others is ignored, as in Kafka's reader."""
    try:
        return _unzstd_all(payload, limit_bytes)
    except cramjam.DecompressionError as error:
        if not any(part in str(error) for part in _ZSTD_CUT):
            raise
    view = memoryview(payload)
    return _unzstd_all(view[: zstd_end(view)], limit_bytes)


def _unzstd_all(payload: Bytes, limit_bytes: int) -> Bytes:
    return _into_buffer(cramjam.zstd.decompress_into, payload, limit_bytes)


def _into_buffer(decode: Decoder, payload: Bytes, limit_bytes: int) -> Bytes:
    """Decode into a buffer of a guessed size, then into larger ones up to the limit."""
    size = max(FIRST_GUESS_BYTES, GUESSED_RATIO * len(payload))
    while True:
        buffer = bytearray(min(size, limit_bytes))
        try:
            return bytes(memoryview(buffer)[: decode(payload, buffer)])
        except cramjam.DecompressionError as error:
            if _BUFFER_FULL not in str(error):
                raise
            if size >= limit_bytes:
                raise TooLarge(limit_bytes) from error
        size *= GROWTH


def compress(codec: int, records: Bytes) -> Bytes:
    return _ENCODERS[codec](records)


def _gzip(records: Bytes) -> bytes:
    encoder = zlib.compressobj(GZIP_LEVEL, wbits=_GZIP_WINDOW)
    return encoder.compress(records) + encoder.flush()


def _snap(records: Bytes) -> bytes:
    pieces = [_SNAPPY_HEADER]
    view = memoryview(records)
    for at in range(0, len(view), SNAPPY_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[at : at + SNAPPY_BLOCK_BYTES]))
        pieces += (_INT32.pack(len(block)), block)
    return b"".join(pieces)


def _lz4(records: Bytes) -> bytes:
    encoder = cramjam.lz4.Compressor(level=LZ4_LEVEL, content_checksum=False, block_linked=False)
    encoder.compress(bytes(records))
    return bytes(encoder.finish())


def _zstd(records: Bytes) -> bytes:
    return bytes(cramjam.zstd.compress(records, level=ZSTD_LEVEL))


_JOINED: Decoders = {LZ4: _unlz4_all, ZSTD: _unzstd_all}
_DECODERS: Decoders = {
    GZIP: _gunzip,
    SNAPPY: _unsnap,
    LZ4: _unlz4,
    ZSTD: _unzstd,
}
_ENCODERS: dict[int, Callable[[Bytes], Bytes]] = {
    NONE: bytes,
    GZIP: _gzip,
    SNAPPY: _snap,
    LZ4: _lz4,
    ZSTD: _zstd,
}
