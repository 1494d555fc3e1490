"""From an answer of the source to batches in a partition's window. Hot path.

It follows read_committed: the broker names the aborted transactions of the range it sends; batches of
their producers are dropped until the producer's abort marker (as in Kafka's own consumer).

Whole batches stay where they lie. But a request holds one batch a partition, so many small ones would
wait for each other: a run of them is decoded and built into one. Runs are looked for within one answer
only, so nothing ever waits for company; few batches in an answer mean that there is no backlog.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from ureplicator_worker.copier.raw.batches.header import (
    ABORT_MARKER,
    TRANSACTIONAL,
    CorruptBatch,
    Header,
    Kind,
    marker_type,
    spans,
    verify,
)
from ureplicator_worker.copier.raw.batches.rebuild import Built, merge, rebuild
from ureplicator_worker.copier.raw.batches.send_window import Batch
from ureplicator_worker.copier.raw.net.buffers import Lease
from ureplicator_worker.copier.raw.net.fetch_api import Fetched
from ureplicator_worker.copier.raw.partition import PartitionCopy

SMALL_BATCH_BYTES = 8 << 10
MERGED_BYTES = 256 << 10
MERGE_AT_LEAST = 4

Item = tuple[memoryview, Header, Kind]


def ingest(copy: PartitionCopy, fetched: Fetched, lease: Lease) -> None:
    """Queue what an answer brought and move the fetch offset behind it. Raises CorruptBatch.

    What came before a corrupt batch is queued; the fetch offset then stands at the corrupt one.
    """
    run = Run(copy, lease)
    try:
        for view, header, kind in _items(copy, fetched, lease.view):
            if kind is Kind.PASS:
                run.add(view, header)
            else:
                run.flush()
                _take(copy, view, header, kind)
            copy.fetch_offset = header.last_offset + 1
            copy.fetched_epoch = header.leader_epoch
    finally:
        run.flush()


def _items(copy: PartitionCopy, fetched: Fetched, buffer: memoryview) -> Iterator[Item]:
    """Each whole batch that is not yet behind the fetch offset, and what to do with it."""
    to_come = deque(sorted(fetched.aborted, key=lambda row: row[1]))
    aborted: set[int] = set()
    check = copy.grant.settings.verify_crc
    for start, stop in spans(buffer, fetched.start, fetched.end):
        header = Header(buffer, start)
        if header.last_offset < copy.fetch_offset:
            continue
        view = buffer[start:stop]
        if check:
            verify(view, header)
        while to_come and to_come[0][1] <= header.last_offset:
            aborted.add(to_come.popleft()[0])
        kind = header.kind(copy.fetch_offset)
        if kind is Kind.CONTROL:
            if marker_type(view) == ABORT_MARKER:
                aborted.discard(header.producer_id)
        elif header.attributes & TRANSACTIONAL and header.producer_id in aborted:
            kind = Kind.DROP
        yield view, header, kind


def _take(copy: PartitionCopy, view: memoryview, header: Header, kind: Kind) -> None:
    """Anything but a whole batch."""
    built = rebuild(view, position=copy.fetch_offset) if kind is Kind.REBUILD else None
    if built is None:
        copy.window.pass_over(header.last_offset + 1, header.leader_epoch)
    else:
        copy.window.push(_built(built, header, first_offset=built.first_offset))


class Run:
    """Whole batches of one answer that follow each other, while they are small."""

    def __init__(self, copy: PartitionCopy, lease: Lease) -> None:
        self._copy = copy
        self._lease = lease
        self._batches: list[tuple[memoryview, Header]] = []
        self._size = 0

    def add(self, view: memoryview, header: Header) -> None:
        size = len(view)
        if size > SMALL_BATCH_BYTES:
            self.flush()
            self._push_whole(view, header)
            return
        fits = self._size + size <= MERGED_BYTES
        if self._batches and not (fits and self._batches[0][1].codec == header.codec):
            self.flush()
        self._batches.append((view, header))
        self._size += size

    def flush(self) -> None:
        """Queue what was added, as one batch if it is many."""
        built = self._merged()
        if built is None:
            for view, header in self._batches:
                self._push_whole(view, header)
        else:
            first, last = self._batches[0][1], self._batches[-1][1]
            self._copy.window.push(_built(built, last, first_offset=first.base_offset))
        self._batches.clear()
        self._size = 0

    def _merged(self) -> Built | None:
        """None if they are few, or will not be decoded: then they go as they are."""
        if len(self._batches) < MERGE_AT_LEAST:
            return None
        try:
            return merge([view for view, _ in self._batches])
        except CorruptBatch:
            return None

    def _push_whole(self, view: memoryview, header: Header) -> None:
        self._lease.hold()
        self._copy.window.push(
            Batch(
                view,
                lease=self._lease,
                first_offset=header.base_offset,
                next_offset=header.last_offset + 1,
                leader_epoch=header.leader_epoch,
                records=header.records,
                max_timestamp_ms=header.max_timestamp_ms,
            )
        )


def _built(built: Built, last: Header, *, first_offset: int) -> Batch:
    """A batch of ours, in memory of its own, that ends with a batch of the source."""
    return Batch(
        memoryview(built.data),
        lease=None,
        first_offset=first_offset,
        next_offset=last.last_offset + 1,
        leader_epoch=last.leader_epoch,
        records=built.records,
        max_timestamp_ms=built.max_timestamp_ms,
    )
