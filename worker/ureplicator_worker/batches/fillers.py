"""Fillers: batches of many empty records, with which a log comes to an offset far up in a short time.

A record without key, value and headers takes 9 bytes in a batch, nearly the same ones as the record before:
zstd makes 85 KB of 100,000, gzip 139 KB. Consumers see fillers until they are deleted (`delete_records_api`).
"""

from __future__ import annotations

from functools import lru_cache

from ureplicator_worker.batches.codecs import ZSTD, compress
from ureplicator_worker.batches.header import HEADER_BYTES, stamp
from ureplicator_worker.batches.offsets import SourceOffsets
from ureplicator_worker.batches.records import CODES, Built, zigzag

CODEC = ZSTD
NO_PRODUCER = -1
_START = b"\0\0"
"""No attributes, and no time behind the batch's."""
_REST = b"\x01\x01\0"
"""Key and value null, no headers."""
_LOW = 64
"""Deltas from a multiple of it on have equal varints but for their first bytes."""
_FIRST_BYTES = [bytes((0x80 | delta << 1,)) for delta in range(_LOW)]


def filler(records: int, *, timestamp_ms: int) -> Built:
    """One batch of so many records, at least one, of no producer. May be stamped with others, as often as
    wanted; its checksum is valid. The records of the last sizes are kept: to encode 100,000 takes 6 ms."""
    built = Built.headed(
        bytearray(HEADER_BYTES) + _payload(records),
        codec=CODEC,
        offsets=SourceOffsets.from_(0),
        records=records,
        times_ms=(timestamp_ms, timestamp_ms),
    )
    view = memoryview(built.data)
    stamp(view, producer_id=NO_PRODUCER, producer_epoch=NO_PRODUCER, sequence=NO_PRODUCER)
    return built


@lru_cache(maxsize=2)
def _payload(records: int) -> bytes:
    """So many records, compressed."""
    assert records > 0
    first = map(_record, CODES[: min(records, _LOW)])
    blocks = (_block(delta, min(records - delta, _LOW)) for delta in range(_LOW, records, _LOW))
    return bytes(compress(CODEC, b"".join((*first, *blocks))))


def _record(delta: bytes) -> bytes:
    """Record at this delta of offsets."""
    return CODES[len(_START) + len(delta) + len(_REST)] + _START + delta + _REST


def _block(delta: int, records: int) -> bytes:
    """Records from a delta on that only the first bytes of their deltas tell apart."""
    rest = zigzag(delta)[1:] + _REST
    front = CODES[len(_START) + 1 + len(rest)] + _START
    return front + (rest + front).join(_FIRST_BYTES[:records]) + rest
