"""The way from a Fetch response to batches in a partition's send window. Hot path.

Whole batches stay in the buffer of the response. But a Produce request holds one batch per partition, so
many small ones would wait for each other: a run of them is merged into one (`batches.merge_rules` says which;
`batches.rebuild`, and plain ones at the beginning of a response in one step, `batches.plain`). Markers and
dropped batches between them do not end a run, and batches that must be rebuilt join it. Runs end with the
response, so no batch waits for others to come; few batches in a response mean that there is no backlog.

What a response holds is the source's. Whatever is wrong with it concerns its partition only: every error
here is a CorruptBatch with the place.
"""

from __future__ import annotations

import logging

from ureplicator_worker.batches.codecs import NONE
from ureplicator_worker.batches.committed import Item, committed_batches
from ureplicator_worker.batches.header import CorruptBatch, Header, Kind, is_cut
from ureplicator_worker.batches.merge_rules import (
    LARGE_BYTES,
    MERGE_AT_LEAST,
    MERGE_AT_LEAST_FAR,
    MERGED_BYTES,
    is_merged,
)
from ureplicator_worker.batches.plain import PlainRecords
from ureplicator_worker.batches.rebuild import (
    FAR_DECODED_BYTES,
    MERGED_DECODED_BYTES,
    merge,
    rebuild,
    split_at_holes,
)
from ureplicator_worker.batches.records import Built
from ureplicator_worker.copier.net.buffers import Lease
from ureplicator_worker.copier.raw.batch import Batch
from ureplicator_worker.copier.raw.partition import FetchSide, StoredWindow
from ureplicator_worker.copier.raw.send_window import MAX_IN_FLIGHT_BATCHES, SendWindow
from ureplicator_worker.wire.fetch_api import Fetched

logger = logging.getLogger(__name__)


def ingest(fetch: FetchSide, fetched: Fetched, lease: Lease) -> None:
    """Queue what a response brought and move the fetch offset behind it. Raises CorruptBatch.

    Batches before a corrupt one are queued; the fetch offset then is that of the corrupt one.
    """
    try:
        _ingest(fetch, fetched, lease)
    except CorruptBatch:
        raise
    except Exception as error:
        logger.exception("%s: offset %d cannot be read", fetch.partition, fetch.offset)
        raise CorruptBatch(f"{type(error).__name__}: {error}") from error


def _ingest(fetch: FetchSide, fetched: Fetched, lease: Lease) -> None:
    window = fetch.window
    if isinstance(window, SendWindow) and _ingest_plain(fetch, window, fetched, lease):
        return
    run = (
        Run(fetch, window, lease) if isinstance(window, SendWindow) else Kept(fetch, window, lease)
    )
    try:
        items = committed_batches(
            lease.view, fetched, position=fetch.offset, check_crc=fetch.verify_crc
        )
        for item in items:
            _, header, kind = item
            if kind is Kind.PASS or kind is Kind.REBUILD:
                run.add(item)
            else:
                run.pass_over(header)
            fetch.offset = header.last_offset + 1
            fetch.leader_epoch = header.leader_epoch
    finally:
        run.flush()


def _ingest_plain(fetch: FetchSide, window: SendWindow, fetched: Fetched, lease: Lease) -> bool:
    """Merge the small plain batches that a response begins with; True if no whole batch follows them."""
    began_at = fetched.start
    limit_bytes = merged_limit_bytes(window)
    while True:
        records = PlainRecords()
        taken = records.take_plain(
            lease.view,
            fetched.start,
            fetched.end,
            position=fetch.offset,
            end_offset=fetched.high_watermark,
            batch_bytes=min(LARGE_BYTES, limit_bytes // MERGE_AT_LEAST),
            limit_bytes=limit_bytes,
            check_crc=fetch.verify_crc,
        )
        built = records.build(codec=NONE) if taken.batches >= MERGE_AT_LEAST else None
        if built is None:
            return began_at < fetched.start and is_cut(lease.view, fetched.start, fetched.end)
        push_built(window, built, taken.next_offset, taken.leader_epoch, lease)
        fetched.start, fetch.offset = taken.at, taken.next_offset
        fetch.leader_epoch = taken.leader_epoch


class Run:
    """Consecutive batches of one response, while they are small.

    `_ahead`: batches that are sent before what is added, five if any wait. `_far_bytes`: size of merged ones
    if what is added would wait for round trips to a far broker, else 0.
    """

    def __init__(self, fetch: FetchSide, window: SendWindow, lease: Lease) -> None:
        self._fetch = fetch
        self._window = window
        self._lease = lease
        self._limit_bytes = merged_limit_bytes(window)
        self._ahead = window.in_flight if window.head is None else MAX_IN_FLIGHT_BATCHES
        self._far_bytes = 0
        self._items: list[Item] = []
        self._size = 0
        self._position = fetch.offset
        self._epoch = fetch.leader_epoch
        self._end = (0, 0)

    def add(self, item: Item) -> None:
        view, header, _ = item
        size = len(view)
        if self._ahead >= MAX_IN_FLIGHT_BATCHES:
            self._far_bytes = self._window.far_bytes
        merged = is_merged(
            size, records=header.records, codec=header.codec, far_bytes=self._far_bytes
        )
        if self._items and (
            self._size + size > self._limit_bytes
            or not merged
            or self._items[0][1].codec != header.codec
            or header.base_offset < self._fetch.offset
            or (self._window.fills and header.base_offset != self._end[0])
        ):
            self.flush()
        if not self._items:
            self._position, self._epoch = self._fetch.offset, self._fetch.leader_epoch
        self._items.append(item)
        self._size += size
        self._end = (header.last_offset + 1, header.leader_epoch)
        if not merged:
            self.flush()

    def pass_over(self, header: Header) -> None:
        """A batch that holds nothing to send."""
        if self._window.fills:
            self.flush()
        if self._items:
            self._end = (header.last_offset + 1, header.leader_epoch)
        else:
            after = header.last_offset + 1
            whole = header.base_offset == after - header.records
            seen_from = header.base_offset if whole else after
            self._window.pass_over(after, header.leader_epoch, seen_from=seen_from)

    def flush(self) -> None:
        """Queue what was added, as one batch if it is many.

        Raises CorruptBatch; the fetch offset then is that of the corrupt batch.
        """
        if not self._items:
            return
        items, self._items, self._size = self._items, [], 0
        try:
            self._queue(items)
        except BaseException:
            self._fetch.offset, self._fetch.leader_epoch = self._position, self._epoch
            raise
        if self._position != self._end[0]:
            self._window.pass_over(*self._end)

    def _queue(self, items: list[Item]) -> None:
        """Merge; if that fails, merge each half: only the batch at fault is left alone."""
        at_least = MERGE_AT_LEAST_FAR if self._far_bytes else MERGE_AT_LEAST
        if len(items) == 1 or (
            len(items) < at_least and all(item[2] is Kind.PASS for item in items)
        ):
            for item in items:
                self._queue_one(*item)
            return
        try:
            built = merge(
                [item[:2] for item in items],
                position=self._position,
                limit_bytes=FAR_DECODED_BYTES if self._far_bytes else MERGED_DECODED_BYTES,
            )
        except CorruptBatch:
            middle = len(items) // 2
            self._queue(items[:middle])
            self._queue(items[middle:])
        else:
            self._push(built, items[-1][1])

    def _queue_one(self, view: memoryview, header: Header, kind: Kind) -> None:
        if kind is Kind.REBUILD:
            self._push(rebuild(view, header, position=self._position), header)
            return
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
                checked=self._fetch.verify_crc,
            )
        )
        self._passed(header)

    def _push(self, built: Built | None, last: Header) -> None:
        """A built batch, in a buffer of its own, that ends with `last` of the source."""
        if built is None:
            self._window.pass_over(last.last_offset + 1, last.leader_epoch)
        else:
            after = last.last_offset + 1
            push_built(self._window, built, after, last.leader_epoch, self._lease)
        self._passed(last)

    def _passed(self, last: Header) -> None:
        self._position, self._epoch = last.last_offset + 1, last.leader_epoch
        self._ahead += 1


class Kept:
    """Batches of one response for a handler, as they are stored, each in memory of its own: a handler may
    take long, and must not hold the whole response."""

    def __init__(self, fetch: FetchSide, window: StoredWindow, lease: Lease) -> None:
        self._fetch = fetch
        self._window = window
        self._lease = lease

    def add(self, item: Item) -> None:
        view, header, _ = item
        self._window.keep(
            self._lease.adopt(bytes(view)),
            position=self._fetch.offset,
            next_offset=header.last_offset + 1,
            leader_epoch=header.leader_epoch,
        )

    def pass_over(self, header: Header) -> None:
        """A batch that holds nothing to handle."""
        self._window.pass_over(header.last_offset + 1, header.leader_epoch)

    def flush(self) -> None:
        """Nothing is held back."""


def merged_limit_bytes(window: SendWindow) -> int:
    """Most bytes of a merged batch: by the distance of the broker, and by what the target has refused."""
    return min(window.merged_bytes, window.far_bytes or MERGED_BYTES)


def push_built(
    window: SendWindow, built: Built, next_offset: int, leader_epoch: int, source: Lease
) -> None:
    """Queue a batch that was built, and where holes are filled, one for each run of offsets. Raises
    CorruptBatch."""
    pieces = [built]
    if window.fills and len(built.offsets.runs) > 1:
        pieces = split_at_holes(memoryview(built.data), built.offsets)
    for piece in pieces[:-1]:
        window.push(batch_of(piece, piece.last_offset + 1, leader_epoch, source))
    window.push(batch_of(pieces[-1], next_offset, leader_epoch, source))


def batch_of(built: Built, next_offset: int, leader_epoch: int, source: Lease) -> Batch:
    """A batch that was built from bytes of a lease, in memory of its own."""
    lease = source.adopt(built.data)
    return Batch(
        lease.view,
        lease=lease,
        first_offset=built.first_offset,
        next_offset=next_offset,
        leader_epoch=leader_epoch,
        records=built.records,
        max_timestamp_ms=built.max_timestamp_ms,
        offsets=built.offsets,
    )
