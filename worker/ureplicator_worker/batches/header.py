"""Record batches as stored in a Fetch response: reading and rewriting their headers. Hot path.

Layout of format version 2 (https://kafka.apache.org/documentation/#recordbatch), big-endian:

    0  8 baseOffset         17 4 crc                 43 8 producerId
    8  4 length (from 12)   21 2 attributes          51 2 producerEpoch
    12 4 leaderEpoch        23 4 lastOffsetDelta     53 4 baseSequence
    16 1 magic              27 8 baseTimestamp       57 4 recordCount
                            35 8 maxTimestamp        61 . records

The CRC-32C covers everything from byte 21 on, the records as they are stored (compressed). Attributes:
bits 0-2 codec, 3 log append time, 4 transactional, 5 control, 6 delete horizon.

What a broker accepts from a client: base offset 0, `recordCount == lastOffsetDelta + 1 > 0`, no control
bit, a sequence with every producer id. So a batch is one of four kinds, which its header alone shows:

    PASS     whole: 28 bytes of the header change, the records stay as they are
    REBUILD  has holes (compaction), was stamped by the broker (log append time), is of an older format,
             or begins before the position: decode it and build a new one
    DROP     empty (compaction, of markers too), or of an aborted transaction: nothing to copy
    CONTROL  an end-of-transaction marker: drop it; it ends an aborted transaction

Never patch lastOffsetDelta: a broker accepts that for an uncompressed batch and stores records whose
offsets lie outside of it. The source's producer ids are never forwarded: on another cluster they belong
to other producers. Bit 6 would carry the source's tombstone deadline along; it is cleared.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import Enum

from crc32c import crc32c

from ureplicator_worker.batches.derived_checksum import derived

HEADER_BYTES = 61
LENGTH_OFFSET = 12
"""Bytes that the length field does not count."""
MIN_BYTES = 18
"""Bytes up to the magic byte and the first one of the attributes, which every format has."""

NEWEST_MAGIC = 2

CODEC_BITS = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20

SEQUENCE_MODULUS = 1 << 31
ABORT_MARKER = 0

COVERED_FROM = 21
"""First byte that the checksum covers."""
_CRC_AT = 17
_PRODUCER_AT, _STAMPED_TO = 43, 57

_LENGTH = struct.Struct(">i")
_FIXED = struct.Struct(">qiibIhiqqqhii")
_ATTRIBUTES = struct.Struct(">h")
_PRODUCER = struct.Struct(">qhi")
_CRC = struct.Struct(">I")
_OFFSET = struct.Struct(">q")


class Kind(Enum):
    PASS = "pass"  # noqa: S105
    REBUILD = "rebuild"
    DROP = "drop"
    CONTROL = "control"


class CorruptBatch(Exception):
    """The bytes are not what the producer wrote; the message names the place."""


class Header:
    """The fields of one header that matter here. `base_offset`, `last_offset` are the source's."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_timestamp_ms",
        "codec",
        "crc",
        "last_offset",
        "leader_epoch",
        "magic",
        "max_timestamp_ms",
        "producer_id",
        "records",
    )

    def __init__(self, buffer: bytearray | memoryview | bytes, at: int) -> None:
        self.magic = buffer[at + 16]
        if self.magic < 2:
            self._read_old(buffer, at)
            return
        (
            self.base_offset,
            _length,
            self.leader_epoch,
            _magic,
            self.crc,
            self.attributes,
            last_delta,
            self.base_timestamp_ms,
            self.max_timestamp_ms,
            self.producer_id,
            _producer_epoch,
            _sequence,
            self.records,
        ) = _FIXED.unpack_from(buffer, at)
        self.last_offset = self.base_offset + last_delta
        self.codec = self.attributes & CODEC_BITS

    def _read_old(self, buffer: bytearray | memoryview | bytes, at: int) -> None:
        """Formats 0 and 1: one message (or a wrapper) with the offset of its *last* record."""
        (self.last_offset,) = _OFFSET.unpack_from(buffer, at)
        self.base_offset = self.last_offset
        self.leader_epoch = -1
        self.crc = 0
        self.attributes = self.codec = buffer[at + 17] & CODEC_BITS
        self.base_timestamp_ms = -1
        self.max_timestamp_ms = -1
        self.producer_id = -1
        self.records = 1

    def kind(self, position: int) -> Kind:
        """Treatment of the batch when copying goes on at `position`."""
        if self.last_offset < position:
            return Kind.DROP
        if self.magic < 2:
            return Kind.REBUILD
        if self.records <= 0:
            return Kind.DROP
        if self.attributes & CONTROL:
            return Kind.CONTROL
        whole = self.records == self.last_offset - self.base_offset + 1
        if not whole or self.base_offset < position or self.attributes & LOG_APPEND_TIME:
            return Kind.REBUILD
        return Kind.PASS


def spans(
    buffer: bytearray | memoryview | bytes, start: int, end: int
) -> Iterator[tuple[int, int]]:
    """(start, end) of each whole batch between two places; a cut one at the end is left out.

    Raises CorruptBatch, also if not even the first is whole: brokers send that one however large it is.
    """
    at = start
    while end - at >= MIN_BYTES:
        (length,) = _LENGTH.unpack_from(buffer, at + 8)
        stop = at + LENGTH_OFFSET + length
        magic = buffer[at + 16]
        if magic > NEWEST_MAGIC or stop - at < (HEADER_BYTES if magic >= 2 else MIN_BYTES):
            raise CorruptBatch(
                f"format {magic}, length {length} at byte {at - start} of the response"
            )
        if stop > end:
            break
        yield at, stop
        at = stop
    if at == start != end:
        raise CorruptBatch(f"no whole batch in the {end - start} bytes of the response")


def is_cut(buffer: bytearray | memoryview | bytes, at: int, end: int) -> bool:
    """True if a response ends before the batch that begins at `at`."""
    return end - at < MIN_BYTES or at + LENGTH_OFFSET + _LENGTH.unpack_from(buffer, at + 8)[0] > end


def is_intact(view: memoryview) -> bool:
    """True if the checksum of a batch of format 2 fits its bytes."""
    (crc,) = _CRC.unpack_from(view, _CRC_AT)
    return bool(crc32c(view[COVERED_FROM:]) == crc)


def verify_crc(view: memoryview, header: Header) -> None:
    """Compare the stored checksum with the bytes. Raises CorruptBatch."""
    if header.magic >= 2 and crc32c(view[COVERED_FROM:]) != header.crc:
        raise CorruptBatch(f"checksum of the batch at offset {header.base_offset} is wrong")


def stamp(
    view: memoryview,
    *,
    producer_id: int,
    producer_epoch: int,
    sequence: int,
    transactional: bool = False,
    checked: bool = False,
) -> None:
    """Rewrite a whole batch for our producer, in place: base offset, attributes, producer, checksum.

    `view` is exactly one batch and writable. `checked`: its checksum was compared with its bytes, or has been
    computed since. Then the new one is derived, and is wrong if the bytes have changed meanwhile: the broker
    finds that. May be repeated with other values.
    """
    before = bytes(view[COVERED_FROM:_STAMPED_TO])
    _OFFSET.pack_into(view, 0, 0)
    (attributes,) = _ATTRIBUTES.unpack_from(view, COVERED_FROM)
    ours = TRANSACTIONAL if transactional else 0
    _ATTRIBUTES.pack_into(view, COVERED_FROM, attributes & CODEC_BITS | ours)
    _PRODUCER.pack_into(view, _PRODUCER_AT, producer_id, producer_epoch, sequence)
    if checked:
        (crc,) = _CRC.unpack_from(view, _CRC_AT)
        after = bytes(view[COVERED_FROM:_STAMPED_TO])
        crc = derived(crc, before=before, after=after, behind_bytes=len(view) - _STAMPED_TO)
    else:
        crc = crc32c(view[COVERED_FROM:])
    _CRC.pack_into(view, _CRC_AT, crc)


def marker_type(view: memoryview) -> int:
    """Type of a control batch's only record: 0 abort, 1 commit. Its key is (version, type), int16s.

    Record: length, attributes, timestamp delta, offset delta, key length as varints; never compressed.
    Raises CorruptBatch.
    """
    try:
        at = _skip_varint(view, HEADER_BYTES) + 1
        for _field in range(3):
            at = _skip_varint(view, at)
        (kind,) = _ATTRIBUTES.unpack_from(view, at + 2)
    except (IndexError, struct.error) as error:
        raise CorruptBatch(f"a marker of {len(view)} bytes") from error
    return int(kind)


def _skip_varint(view: memoryview, at: int) -> int:
    while view[at] & 0x80:
        at += 1
    return at + 1


def next_sequence(sequence: int, records: int) -> int:
    """Sequences wrap from 2^31 - 1 to 0."""
    return (sequence + records) % SEQUENCE_MODULUS
