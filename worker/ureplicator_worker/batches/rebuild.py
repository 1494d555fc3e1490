"""New batches: of stored ones that cannot be sent as they are, of several small ones, of halves.

A new batch holds the same records (key, value, headers, time) under offsets 0..n-1, with the codec of the
batches it came from. Records stamped by the source's broker keep the broker's time, as create time: that
is what a consumer of the source sees.

Records are decompressed, and taken over as bytes (`records`). What they decode to is bounded: a batch is
small because it is compressed, not because there is little in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ureplicator_worker.batches.codecs import (
    CONCATENATE,
    Bytes,
    decompress,
    decompress_joined,
)
from ureplicator_worker.batches.header import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    CorruptBatch,
    Header,
)
from ureplicator_worker.batches.offsets import SourceOffsets
from ureplicator_worker.batches.old_formats import collect
from ureplicator_worker.batches.records import Built, Records

MAX_DECODED_BYTES = 32 << 20
"""Bytes of one batch that must be decoded. Brokers take batches of 1 MiB unless configured otherwise."""
MERGED_DECODED_BYTES = 2 << 20
FAR_DECODED_BYTES = 8 << 20
"""Bytes of several batches that need not be; the latter where these are merged for a far broker, into
larger ones."""

Stored = tuple[memoryview, Header]


def rebuild(view: memoryview, header: Header, *, position: int) -> Built | None:
    """The records of a batch from `position` on; None if there are none. Raises CorruptBatch."""
    return merge([(view, header)], position=position, limit_bytes=MAX_DECODED_BYTES)


def merge(
    stored: Sequence[Stored], *, position: int, limit_bytes: int = MERGED_DECODED_BYTES
) -> Built | None:
    """One batch of the records from `position` on. All have the same codec. Raises CorruptBatch."""
    codec = stored[0][1].codec
    records = Records()
    if len(stored) > 1 and codec in CONCATENATE and all(header.magic >= 2 for _, header in stored):
        payload = b"".join([view[HEADER_BYTES:] for view, _ in stored])
        data = decompress_joined(codec, payload, limit_bytes=limit_bytes)
        _add(records, data, [header for _, header in stored], position)
        return records.build(codec=codec)
    for view, header in stored:
        left_bytes = max(0, limit_bytes - records.size_bytes)
        if header.magic < 2:
            collect(view, records, first=position, limit_bytes=left_bytes)
        else:
            data = decompress(codec, view[HEADER_BYTES:], limit_bytes=left_bytes)
            _add(records, data, (header,), position)
    return records.build(codec=codec)


def _add(records: Records, data: Bytes, headers: Sequence[Header], position: int) -> None:
    """Batches that were decoded in one call: the records show where each ends."""
    at = 0
    for header in headers:
        at = records.splice(
            data,
            at,
            header.records,
            header.base_offset,
            header.base_timestamp_ms,
            header.max_timestamp_ms if header.attributes & LOG_APPEND_TIME else None,
            position,
        )
    if at != len(data):
        raise CorruptBatch("more records than the header promises")


def split(view: memoryview, offsets: SourceOffsets) -> list[Built]:
    """Two halves of a stamped batch (base offset 0) whose records have these offsets at the source.

    A batch of one record comes back alone. Raises CorruptBatch.
    """
    records = Header(view, 0).records
    return parts(view, offsets, sorted({0, (records + 1) // 2, records}))


def split_at_holes(view: memoryview, offsets: SourceOffsets) -> list[Built]:
    """Batches without holes, of one that was built. Raises CorruptBatch."""
    return parts(view, offsets, [*(index for index, _ in offsets.runs), Header(view, 0).records])


def parts(view: memoryview, offsets: SourceOffsets, cuts: Sequence[int]) -> list[Built]:
    """The records between each two of the cuts, from the first record to the last, as batches of their own.
    Raises CorruptBatch."""
    header = Header(view, 0)
    data = bytes(decompress(header.codec, view[HEADER_BYTES:], limit_bytes=MAX_DECODED_BYTES))
    at, found = 0, []
    for start, stop in pairwise(cuts):
        records = Records()
        at = records.splice(data, at, stop - start, 0, header.base_timestamp_ms, None, start)
        built = records.build(codec=header.codec)
        if built is None or built.records != stop - start:
            raise CorruptBatch("fewer records than the header promises")
        built.offsets = offsets.part(start, stop)
        found.append(built)
    return found
