"""From a Fetch response to batches in a partition's send window. Hot path.

Isolation is read_committed: the broker names the aborted transactions of the range that it sends;
batches of their producers are dropped until the producer's abort marker (as in Kafka's own consumer).

Whole batches stay in the buffer of the response. But a Produce request holds one batch per partition, so
many small ones would wait for each other: a run of them is decoded and merged into one. Runs end with
the response, so no batch waits for others to come; few batches in a response mean that there is no
backlog.
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
    verify_crc,
)
from ureplicator_worker.copier.raw.batches.rebuild import Built, merge, rebuild
from ureplicator_worker.copier.raw.batches.send_window import Batch, SendWindow
from ureplicator_worker.copier.raw.net.buffers import Lease
from ureplicator_worker.copier.raw.net.fetch_api import Fetched
from ureplicator_worker.copier.raw.partition import FetchSide

SMALL_BATCH_BYTES = 8 << 10
MERGED_BYTES = 256 << 10
MERGE_AT_LEAST = 4

Item = tuple[memoryview, Header, Kind]


def ingest(fetch: FetchSide, fetched: Fetched, lease: Lease) -> None:
    """Queue what a response brought and move the fetch offset behind it. Raises CorruptBatch.

    Batches before a corrupt one are queued; the fetch offset then is that of the corrupt one.
    """
    run = Run(fetch.window, lease)
    try:
        for view, header, kind in _items(fetch, fetched, lease.view):
            if kind is Kind.PASS:
                run.add(view, header)
            else:
                run.flush()
                _take(fetch, view, header, kind)
            fetch.offset = header.last_offset + 1
            fetch.leader_epoch = header.leader_epoch
    finally:
        run.flush()


def _items(fetch: FetchSide, fetched: Fetched, buffer: memoryview) -> Iterator[Item]:
    """Each whole batch that reaches beyond the fetch offset, and what to do with it."""
    to_come = deque(sorted(fetched.aborted, key=lambda row: row[1]))
    aborted: set[int] = set()
    check = fetch.verify_crc
    for start, stop in spans(buffer, fetched.start, fetched.end):
        header = Header(buffer, start)
        if header.last_offset < fetch.offset:
            continue
        view = buffer[start:stop]
        if check:
            verify_crc(view, header)
        while to_come and to_come[0][1] <= header.last_offset:
            aborted.add(to_come.popleft()[0])
        kind = header.kind(fetch.offset)
        if kind is Kind.CONTROL:
            if marker_type(view) == ABORT_MARKER:
                aborted.discard(header.producer_id)
        elif header.attributes & TRANSACTIONAL and header.producer_id in aborted:
            kind = Kind.DROP
        yield view, header, kind


def _take(fetch: FetchSide, view: memoryview, header: Header, kind: Kind) -> None:
    """Anything but a whole batch."""
    built = rebuild(view, position=fetch.offset) if kind is Kind.REBUILD else None
    if built is None:
        fetch.window.pass_over(header.last_offset + 1, header.leader_epoch)
    else:
        fetch.window.push(_built(built, header, first_offset=built.first_offset))


class Run:
    """Consecutive whole batches of one response, while they are small."""

    def __init__(self, window: SendWindow, lease: Lease) -> None:
        self._window = window
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
            self._window.push(_built(built, last, first_offset=first.base_offset))
        self._batches.clear()
        self._size = 0

    def _merged(self) -> Built | None:
        """None if they are few, or cannot be decoded: then they are sent as they are."""
        if len(self._batches) < MERGE_AT_LEAST:
            return None
        try:
            return merge([view for view, _ in self._batches])
        except CorruptBatch:
            return None

    def _push_whole(self, view: memoryview, header: Header) -> None:
        self._lease.hold()
        self._window.push(
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
    """A built batch, in a buffer of its own, that ends with `last` of the source."""
    return Batch(
        memoryview(built.data),
        lease=None,
        first_offset=first_offset,
        next_offset=last.last_offset + 1,
        leader_epoch=last.leader_epoch,
        records=built.records,
        max_timestamp_ms=built.max_timestamp_ms,
    )
