"""Stored batches of a Fetch response, and which of them are committed. Hot path.

Isolation is read_committed: the broker names the aborted transactions of the range that it sends;
batches of their producers are dropped until the producer's abort marker (as in Kafka's own consumer).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from ureplicator_worker.batches.header import (
    ABORT_MARKER,
    NEWEST_MAGIC,
    TRANSACTIONAL,
    CorruptBatch,
    Header,
    Kind,
    marker_type,
    spans,
    verify_crc,
)
from ureplicator_worker.wire.fetch_api import Fetched

Item = tuple[memoryview, Header, Kind]


def committed_batches(
    buffer: memoryview, fetched: Fetched, *, position: int, check_crc: bool
) -> Iterator[Item]:
    """Each whole batch that reaches beyond the position, and what to do with it. Raises CorruptBatch."""
    to_come = deque(sorted(fetched.aborted, key=lambda row: row[1]))
    aborted: set[int] = set()
    end = fetched.high_watermark
    for start, stop in spans(buffer, fetched.start, fetched.end):
        header = Header(buffer, start)
        if not position <= header.last_offset < end and not _is_newer(
            header, position, end, size_bytes=stop - start
        ):
            continue
        view = buffer[start:stop]
        if check_crc:
            verify_crc(view, header)
        while to_come and to_come[0][1] <= header.last_offset:
            aborted.add(to_come.popleft()[0])
        kind = header.kind(position)
        if kind is Kind.CONTROL:
            if marker_type(view) == ABORT_MARKER:
                aborted.discard(header.producer_id)
        elif header.attributes & TRANSACTIONAL and header.producer_id in aborted:
            kind = Kind.DROP
        yield view, header, kind
        position = header.last_offset + 1


def _is_newer(header: Header, position: int, end: int, *, size_bytes: int) -> bool:
    """False for a batch before the position, which is left out: the checksum does not cover its offset.

    True for one that was appended while the broker performed the fetch: it takes the high watermark of a
    response before it reads the log. Nothing was compacted there yet, so such a batch has no holes and
    begins at the position. Formats 0 and 1 show only the last offset: no record is below a byte.

    Raises CorruptBatch for offsets that no log has: copying would stand still there, or jump.
    """
    first, last = header.base_offset, header.last_offset
    if 0 <= first <= last < min(position, end):
        return False
    if header.magic < NEWEST_MAGIC:
        follows = position <= last < position + size_bytes
    else:
        follows = 0 <= first <= position <= last == first + header.records - 1
    if follows:
        return True
    raise CorruptBatch(f"a batch from {first} to {last} in a log up to {end}")
