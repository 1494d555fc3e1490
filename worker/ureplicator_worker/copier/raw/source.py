"""Fetching: one request in flight on each connection, for all its partitions that have room.

There are two connections to a source broker. On one large responses are fetched, of the partitions with a
backlog; on the other small ones, of those that are caught up, which so never wait for megabytes. Each
partition begins as caught up. It has a backlog for a while after a response brought much of it.

The next request is sent while what the last one brought is produced, so source and target work at the
same time. The pool bounds all partitions together, responses on their way included; half of it is left
for what waits. A partition takes part while its window is smaller than its share of that half, which
shrinks while the pool fills up: partitions whose target is slow stop there, those with an empty window
go on. And what waits for one target broker never takes more than that half.

Most partitions of a large slot are quiet, and their part of a request does not change. So only those that
are *due* are examined for the next one: their window holds something, they are put off, or something of
them has changed since they were requested. Partitions of topics with a byte limit are always due.

Byte limits (`byte_limits`) are consulted before a request: without room nothing is requested for the route,
and a topic without room takes no part in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ureplicator_common.kafka.errors import LEADER_MOVED, ErrorCode, error_name, refusal
from ureplicator_worker.batches.header import CorruptBatch
from ureplicator_worker.copier.messages import GapFound
from ureplicator_worker.copier.net.buffers import BufferPool, Lease
from ureplicator_worker.copier.net.connection import BrokerConnection, ConnectionClosed
from ureplicator_worker.copier.net.connections import (
    BACKLOG_BYTES,
    BACKLOG_KEPT_S,
    NO_VIA,
    Connections,
    Traffic,
    Via,
)
from ureplicator_worker.copier.net.metadata import ClusterMetadata
from ureplicator_worker.copier.raw.broker_fetches import Requested
from ureplicator_worker.copier.raw.byte_limits import RouteLimits
from ureplicator_worker.copier.raw.fetch_schedule import FetchSchedule, live_wait_ms
from ureplicator_worker.copier.raw.ingest import ingest
from ureplicator_worker.copier.raw.partition import NEVER_S, FetchSide
from ureplicator_worker.wire.fetch_api import (
    API_KEY,
    NAMES,
    Fetched,
    Wanted,
    parse,
    version_for,
)
from ureplicator_worker.wire.topic_keys import TopicKey

BACKLOG_WAIT_MS = 10
"""Partitions come and go here, and few stay long without data."""
RESPONSE_BYTES = 8 << 20
LIVE_RESPONSE_BYTES = 1 << 20
SILENCE_TIMEOUT_S = 5.0
RETRY_S = 0.1
BUSY_PAUSE_S = 0.02
BUSY_PAUSE_PER_PARTITION_S = 0.0001
"""A scan costs about a hundredth of that for each partition, so that it never takes more than 1 %."""
IDLE_PAUSE_S = 0.002
CORRUPT_TRIES = 3
"""Bytes may be garbled on the way; after so many tries the log itself is."""
NO_OFFSET = -1

SESSION_LOST = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class Source:
    """`failed(fetch, reason)`: the log is corrupt. Posted is that an offset is not there.

    `filled(fetch)`: its window holds something to send. `target_node(fetch)`: the broker that it
    waits for.
    """

    def __init__(
        self,
        metadata: ClusterMetadata,
        *,
        pool: BufferPool,
        limits: RouteLimits,
        failed: Callable[[FetchSide, str], None],
        filled: Callable[[FetchSide], None],
        target_node: Callable[[FetchSide], int],
        post: Callable[[GapFound], None],
    ) -> None:
        self.connections = Connections(
            metadata,
            pool=pool,
            on_response=self._on_response,
            on_lost=self._on_lost,
            silence_timeout_s=SILENCE_TIMEOUT_S,
        )
        self._pool = pool
        self._limits = limits
        self._response_bytes = 0
        self._min_bytes = 0
        self._failed = failed
        self._post = post
        self._filled = filled
        self._schedule = FetchSchedule(self.connections, target_node=target_node)
        self._now_s = 0.0
        self._scanned_s = 0.0
        self._pause_s = 0.0
        self._room = 0
        self.out_of_room = False
        """The last fetch was not sent, since the buffers are used up."""
        self._used: list[BrokerConnection] = []

    def add(self, fetch: FetchSide) -> None:
        self._schedule.add(fetch)
        self._scanned_s = 0.0

    def suspend(self, fetch: FetchSide, *, suspended: bool) -> None:
        fetch.suspended = suspended
        self._schedule.touch(fetch)

    def finish(self, fetch: FetchSide) -> None:
        fetch.finished = True
        self._schedule.remove(fetch)

    def seek(self, fetch: FetchSide, offset: int) -> None:
        """Go on at another offset, over a gap."""
        fetch.window.pass_over(offset, fetch.leader_epoch)
        fetch.gaps += 1
        if fetch.offset != NO_OFFSET:  # else the target lost something, not the source
            fetch.gap_offsets += max(0, offset - fetch.offset)
        fetch.offset = offset
        fetch.retry_at_s = 0.0
        self._schedule.touch(fetch)

    def hold(self, fetch: FetchSide) -> None:
        """Fetch no more, and discard what a response still brings, until `seek` or `finish`."""
        fetch.offset = NO_OFFSET
        fetch.leader_epoch = -1
        fetch.retry_at_s = NEVER_S
        self._schedule.touch(fetch)

    def rewind(self, fetch: FetchSide, offset: int, leader_epoch: int) -> None:
        """Fetch again from here, what was fetched and never sent."""
        fetch.offset, fetch.leader_epoch = offset, leader_epoch
        self._schedule.touch(fetch)

    def restart(self, fetch: FetchSide, offset: int, leader_epoch: int) -> None:
        """Fetch again from a former position, over a gap that was found since."""
        fetch.retry_at_s = 0.0
        self.rewind(fetch, offset, leader_epoch)

    def work(self, now_s: float) -> None:
        """Send the fetches that may be sent now.

        Called at every turn of the loop. It is done only when a connection is idle, and not too often.
        """
        self._now_s = now_s
        busy = bool(self._used) and all(connection.in_flight for connection in self._used)
        busy_pause_s = max(BUSY_PAUSE_S, self._schedule.due * BUSY_PAUSE_PER_PARTITION_S)
        pause_s = busy_pause_s if busy else self._pause_s
        if now_s - self._scanned_s < pause_s:
            return
        most_bytes = self._pool.limit_bytes // 4  # of a response, now: the share may have shrunk
        self.out_of_room = not self._pool.has_room(min(self._min_bytes, most_bytes))
        if self.out_of_room:
            return
        self._scanned_s = now_s
        self._min_bytes = min(LIVE_RESPONSE_BYTES, self._response_bytes)
        self._used.clear()
        sent = self._request_all()
        self._pause_s = 0.0 if sent else IDLE_PAUSE_S

    def _request_all(self) -> bool:
        """True if anything was requested."""
        limit_bytes = self._limits.room(self._now_s)
        if limit_bytes == 0:
            return False
        half = max(1, self._pool.limit_bytes // 2)
        scarce = self._pool.free_bytes < half
        by_via = self._schedule.scan(
            self._now_s,
            target_bytes=half - self._response_bytes if scarce else None,
            topic_rooms=self._limits.topic_rooms(self._now_s),
        )
        self._wait(by_via.pop(NO_VIA, ()))
        self._room = min(half, self._pool.free_bytes) // max(1, self._schedule.waiting)
        self._response_bytes = min(RESPONSE_BYTES, half // max(2, len(by_via)))
        if limit_bytes is not None:
            share = max(1, limit_bytes // max(1, len(by_via)))
            self._response_bytes = min(self._response_bytes, share)
        return any([self._fetch(via, due) for via, due in by_via.items()])

    def _wait(self, partitions: Iterable[FetchSide]) -> None:
        """A topic that the metadata do not cover yet is unknown, not in error."""
        for fetch in partitions:
            if fetch.partition.topic in self.connections.covered:
                self.connections.refresh()
                view = self.connections.view
                fetch.error = view.absence(fetch.partition.topic) if view else ""
                fetch.retry_at_s = self._now_s + RETRY_S
            else:
                fetch.retry_at_s = self._now_s + BUSY_PAUSE_S

    def _fetch(self, via: Via, due: list[FetchSide]) -> bool:
        """True if a request was sent."""
        connection = self.connections.connection_to(via, self._now_s)
        if connection is None:
            return False
        self._used.append(connection)
        held = self._now_s < self.connections.health.held_until_s(via.node_id)
        max_bytes = min(self._response_bytes, connection.receive_rate.limit_bytes)
        live = via.traffic is Traffic.LIVE
        if live:
            max_bytes = min(max_bytes, LIVE_RESPONSE_BYTES)
        if connection.in_flight or held:
            return False
        if not self._pool.has_room(max_bytes):
            self.out_of_room = True
            self._min_bytes = min(self._min_bytes, max_bytes)
            return False
        broker = self._schedule.compose(
            via,
            due,
            version=fetch_version(connection, due),
            room_bytes=self._room,
            far=connection.round_trip.is_far,
        )
        if not broker.partitions:
            return False
        correlation_id = connection.next_correlation_id()
        request = broker.request(
            correlation_id=correlation_id,
            max_wait_ms=live_wait_ms(len(broker.partitions)) if live else BACKLOG_WAIT_MS,
            max_bytes=max_bytes,
        )
        try:
            connection.send(
                [request],
                correlation_id=correlation_id,
                context=broker.partitions.copy(),
                now_s=self._now_s,
                response_bytes=max_bytes,
            )
        except ConnectionClosed as error:
            self.connections.drop(via, str(error), now_s=self._now_s)
            return False
        return True

    def _on_response(self, via: Via, requested: Requested, lease: Lease) -> None:
        self._pause_s = 0.0
        try:
            broker = self._schedule.broker(via)
            response = parse(lease.view, broker.version)
            broker.on_response(response)
            self.connections.health.hold(via.node_id, response.throttle_ms / 1_000, self._now_s)
            if response.error:
                self._on_error(via.node_id, requested, response.error)
                return
            if self._limits.limited:
                charge(self._limits, response.partitions, requested, self._now_s)
            for fetched in response.partitions:
                self._take_current(requested.get(fetched.key), fetched, lease, broker.known)
            if via.traffic is Traffic.BACKLOG:
                keep_backlog(requested.values(), self._now_s)
        finally:
            lease.release()

    def _take_current(
        self,
        fetch: FetchSide | None,
        fetched: Fetched,
        lease: Lease,
        known: Mapping[TopicKey, Wanted],
    ) -> None:
        """Ingest unless the partition was finished, or moved to another offset, since the request."""
        if fetch is None or fetch.finished:
            return
        self._schedule.touch(fetch)
        if known[fetched.key].offset == fetch.offset:
            fetch.read_by_name |= fetched.key == fetch.keys.by_name
            self._take(fetch, fetched, lease)

    def _on_error(self, node_id: int, requested: Requested, error: int) -> None:
        """Nothing of the request was done; a session that the broker has dropped is recreated."""
        if error in SESSION_LOST:
            return
        self.connections.health.hold(node_id, RETRY_S, self._now_s)
        for fetch in requested.values():
            fetch.fetching = False
            fetch.error = error_name(error)

    def _take(self, fetch: FetchSide, fetched: Fetched, lease: Lease) -> None:
        if fetched.error or fetched.diverging:
            self._refused(fetch, fetched)
            return
        fetch.last_stable = fetched.last_stable
        if fetched.start == fetched.end:
            return
        if fetched.end - fetched.start >= BACKLOG_BYTES:
            fetch.backlog_until_s = self._now_s + BACKLOG_KEPT_S
        try:
            ingest(fetch, fetched, lease)
            fetch.corrupt_tries = 0
        except CorruptBatch as error:
            self._corrupt(fetch, error)
        if not fetch.window.empty:
            self._filled(fetch)

    def _corrupt(self, fetch: FetchSide, error: CorruptBatch) -> None:
        fetch.corrupt_tries += 1
        fetch.retry_at_s = self._now_s + RETRY_S
        if fetch.corrupt_tries >= CORRUPT_TRIES:
            self._failed(fetch, f"corrupt at offset {fetch.offset}: {error}")

    def _refused(self, fetch: FetchSide, fetched: Fetched) -> None:
        fetch.fetching = False
        fetch.retry_at_s = self._now_s + RETRY_S
        if fetched.diverging:
            epoch, end_offset = fetched.diverging
            reason = (
                f"source log was truncated: epoch {epoch} ends at {end_offset}, "
                f"position is {fetch.offset}"
            )
            self._stop_at_gap(fetch, reason, epoch=epoch, next_offset=end_offset)
        elif fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._stop_at_gap(fetch, f"offset {fetch.offset} is out of range at the source")
        elif fetched.error in LEADER_MOVED:
            fetch.error = error_name(fetched.error)
            moved = self.connections.learn(fetch.topic_partition, fetched.leader, fetched.broker)
            fetch.retry_at_s = 0.0 if moved else fetch.retry_at_s
        else:
            right = f"READ on topic {fetch.partition.topic}"
            fetch.error = refusal(fetched.error, right, self.connections.cluster)
            fetch.retry_at_s = self._now_s + 1.0

    def _stop_at_gap(
        self, fetch: FetchSide, reason: str, *, epoch: int = -1, next_offset: int = -1
    ) -> None:
        """Stop a partition until `seek`, or `finish`.

        A truncated log is another one from `next_offset` on (KIP-595): what follows there was never
        read. The next fetch names `epoch`, so the leader compares again, for logs that differ in several.
        """
        fetch.retry_at_s = NEVER_S
        fetch.leader_epoch = epoch
        self._post(GapFound(fetch.partition, reason, fetch.offset, next_offset))

    def _on_lost(self, via: Via, lost: list[Requested]) -> None:
        self._schedule.forget_session(via)
        for requested in lost:
            for fetch in requested.values():
                fetch.fetching = False


def keep_backlog(partitions: Iterable[FetchSide], now_s: float) -> None:
    """Keep the backlog of partitions that a full response left out."""
    for fetch in partitions:
        if fetch.offset < fetch.last_stable:
            fetch.backlog_until_s = now_s + BACKLOG_KEPT_S


def fetch_version(connection: BrokerConnection, partitions: Iterable[FetchSide]) -> int:
    """Version that names topics by ids if the broker can and the topics have some: those of clusters
    older than 2.8 do not."""
    newest = connection.newest.get(API_KEY, NAMES)
    return version_for(newest, has_ids=all(fetch.keys.has_id for fetch in partitions))


def charge(
    limits: RouteLimits, partitions: Iterable[Fetched], requested: Requested, now_s: float
) -> None:
    """Count what came against the byte limits, whether it is of use or not."""
    for fetched in partitions:
        fetch = requested.get(fetched.key)
        if fetch is not None and fetched.end > fetched.start:
            limits.take(fetch.partition.topic, fetched.end - fetched.start, now_s)
