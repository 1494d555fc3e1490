"""Fetching: one request under way per source broker, for all partitions there that have room.

The next request goes out before what the last one brought is produced, so source and target work at the
same time. A partition takes part while its window has room; the pool bounds all of them together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ureplicator_common.kafka.errors import LEADER_MOVED, ErrorCode, error_name
from ureplicator_worker.copier.raw.batches.header import CorruptBatch
from ureplicator_worker.copier.raw.ingest import ingest
from ureplicator_worker.copier.raw.net.buffers import BufferPool, Lease
from ureplicator_worker.copier.raw.net.connection import Connection, ConnectionClosed
from ureplicator_worker.copier.raw.net.connections import Connections
from ureplicator_worker.copier.raw.net.fetch_api import (
    API_KEY,
    IDS,
    NAMES,
    Fetched,
    FetchSession,
    TopicKey,
    Wanted,
    parse,
)
from ureplicator_worker.copier.raw.net.metadata import ClusterMetadata
from ureplicator_worker.copier.raw.partition import PartitionCopy, Phase

MAX_WAIT_MS = 100
"""How long a broker may hold a request for which it has nothing. An added partition waits so long."""
ANSWER_BYTES = 8 << 20
PARTITION_BYTES = 1 << 20
LEAST_PARTITION_BYTES = 256 << 10
LEAST_ROOM_BYTES = 64 << 10
"""What waits for an absent target outlives the buffers it came in (`SendWindow.detach`). So a partition
may wait with its part of half of the buffers and one fetch more: 64 MiB of 100 partitions, but never
less than 64 KiB and a fetch of 256 KiB, so 320 MiB of 1,000."""
SILENCE_LIMIT_S = 5.0
RETRY_S = 0.1
BUSY_PAUSE_S = 0.02
IDLE_PAUSE_S = 0.002
CORRUPT_TRIES = 3
"""Bytes may be garbled on the way; after so many the log itself is."""

SESSION_LOST = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)

Asked = dict[TopicKey, PartitionCopy]


class Source:
    """`failed(copy, reason, temporary)` gives a partition up; `out_of_range(copy)` asks the policy."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        *,
        pool: BufferPool,
        failed: Callable[[PartitionCopy, str, bool], None],
        out_of_range: Callable[[PartitionCopy, str], None],
        filled: Callable[[PartitionCopy], None],
    ) -> None:
        self.connections = Connections(
            metadata,
            pool=pool,
            answered=self._answered,
            lost=self._lost,
            silence_limit_s=SILENCE_LIMIT_S,
        )
        self._pool = pool
        self._answer_bytes = min(ANSWER_BYTES, pool.limit_bytes // 4)
        self._failed = failed
        self._out_of_range = out_of_range
        self._filled = filled
        self._sessions: dict[int, FetchSession] = {}
        self._hold_until_s: dict[int, float] = {}
        self._now_s = 0.0
        self._looked_s = 0.0
        self._pause_s = 0.0
        self._room = 0
        self._used: list[Connection] = []

    def work(self, copies: Iterable[PartitionCopy], now_s: float) -> None:
        """Send the fetches that may go out now.

        Called at every turn of the loop; looking at every partition each time would cost more than the
        copying where they are many, so it is done only when a connection is idle, and not too often.
        """
        self._now_s = now_s
        busy = bool(self._used) and all(connection.in_flight for connection in self._used)
        pause_s = BUSY_PAUSE_S if busy else self._pause_s
        if now_s - self._looked_s < pause_s or not self._pool.has_room(self._answer_bytes):
            return
        self._looked_s = now_s
        self._used.clear()
        sent = self._look(copies)
        self._pause_s = 0.0 if sent else IDLE_PAUSE_S

    def _look(self, copies: Iterable[PartitionCopy]) -> bool:
        """Whether anything was asked for."""
        now_s = self._now_s
        by_leader: dict[int, list[PartitionCopy]] = {}
        copies = list(copies)
        for copy in copies:
            if copy.phase is not Phase.COPYING or copy.suspended:
                continue
            if now_s >= copy.fetch_after_s:
                leader = self.connections.leader(*copy.source)
                by_leader.setdefault(leader.node_id, []).append(copy)
        self._room = max(LEAST_ROOM_BYTES, self._pool.limit_bytes // (2 * max(1, len(copies))))
        sent = False
        for node_id, led in by_leader.items():
            if node_id < 0:
                self._wait(led)
            else:
                sent |= self._fetch(node_id, led)
        return sent

    def _wait(self, copies: Iterable[PartitionCopy]) -> None:
        """Of a topic that was not asked for yet nothing is known, so nothing is wrong with it."""
        for copy in copies:
            if copy.partition.topic in self.connections.asked:
                self.connections.metadata.refresh()
                copy.source_trouble = "no leader"
                copy.fetch_after_s = self._now_s + RETRY_S
            else:
                copy.fetch_after_s = self._now_s + BUSY_PAUSE_S

    def _fetch(self, node_id: int, copies: list[PartitionCopy]) -> bool:
        """Whether a request went out."""
        connection = self.connections.to(node_id, self._now_s)
        if connection is None:
            return False
        self._used.append(connection)
        held = self._now_s < self._hold_until_s.get(node_id, 0.0)
        if connection.in_flight or held or not self._pool.has_room(self._answer_bytes):
            return False
        version = spoken(connection, copies)
        asked: Asked = {
            copy.keys[version]: copy for copy in copies if copy.window.queued_bytes < self._room
        }
        if not asked:
            return False
        session = self._session(node_id, version)
        correlation_id = connection.next_correlation_id()
        request = session.request(
            {key: self._wanted(copy) for key, copy in asked.items()},
            correlation_id=correlation_id,
            max_wait_ms=MAX_WAIT_MS,
            max_bytes=self._answer_bytes,
        )
        try:
            connection.send(
                [request], correlation_id=correlation_id, context=asked, now_s=self._now_s
            )
        except ConnectionClosed as error:
            self.connections.drop(node_id, str(error), now_s=self._now_s)
            return False
        return True

    def _session(self, node_id: int, version: int) -> FetchSession:
        session = self._sessions.get(node_id)
        if session is None or session.version != version:
            session = self._sessions[node_id] = FetchSession(version)
        return session

    def _wanted(self, copy: PartitionCopy) -> Wanted:
        return Wanted(
            offset=copy.fetch_offset,
            leader_epoch=self.connections.leader(*copy.source).epoch,
            last_fetched_epoch=copy.fetched_epoch,
            max_bytes=min(PARTITION_BYTES, max(LEAST_PARTITION_BYTES, self._room)),
        )

    def _answered(self, node_id: int, asked: Asked, lease: Lease) -> None:
        try:
            session = self._sessions[node_id]
            answer = parse(lease.view, session.version)
            offsets = {key: want.offset for key, want in session.known.items()}
            session.answered(answer)
            self._hold_until_s[node_id] = self._now_s + answer.throttle_ms / 1_000
            if answer.error:
                self._refused_all(node_id, asked, answer.error)
                return
            for copy in asked.values():  # in a session, what is well and has no news is left out
                copy.answered = True
                copy.source_trouble = ""
            for fetched in answer.partitions:
                self._take_current(asked.get(fetched.key), fetched, lease, offsets)
        finally:
            lease.release()

    def _take_current(
        self,
        copy: PartitionCopy | None,
        fetched: Fetched,
        lease: Lease,
        offsets: dict[TopicKey, int],
    ) -> None:
        """Unless the partition was let go, or went elsewhere, since it was asked for."""
        if copy is None or copy.phase is not Phase.COPYING:
            return
        if offsets[fetched.key] == copy.fetch_offset:
            copy.read_by_name |= fetched.key == copy.keys[NAMES]
            self._take(copy, fetched, lease)

    def _refused_all(self, node_id: int, asked: Asked, error: int) -> None:
        """Nothing of the request was done; a session that the broker has dropped is recreated."""
        if error in SESSION_LOST:
            return
        self._hold_until_s[node_id] = self._now_s + RETRY_S
        for copy in asked.values():
            copy.answered = False
            copy.source_trouble = error_name(error)

    def _take(self, copy: PartitionCopy, fetched: Fetched, lease: Lease) -> None:
        if fetched.error or fetched.diverging:
            self._refused(copy, fetched)
            return
        copy.high_watermark = fetched.high_watermark
        if fetched.start == fetched.end:
            return
        try:
            ingest(copy, fetched, lease)
            copy.suspicious = 0
        except CorruptBatch as error:
            self._corrupt(copy, error)
        if not copy.window.empty:
            self._filled(copy)

    def _corrupt(self, copy: PartitionCopy, error: CorruptBatch) -> None:
        copy.suspicious += 1
        copy.fetch_after_s = self._now_s + RETRY_S
        if copy.suspicious >= CORRUPT_TRIES:
            self._failed(copy, f"corrupt at offset {copy.fetch_offset}: {error}", False)

    def _refused(self, copy: PartitionCopy, fetched: Fetched) -> None:
        copy.answered = False
        copy.fetch_after_s = self._now_s + RETRY_S
        if fetched.diverging:
            epoch, end_offset = fetched.diverging
            self._out_of_range(
                copy,
                f"source log was truncated: epoch {epoch} ends at {end_offset}, "
                f"position is {copy.fetch_offset}",
            )
        elif fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(copy, f"offset {copy.fetch_offset} is out of range at the source")
        elif fetched.error in LEADER_MOVED:
            copy.source_trouble = f"{error_name(fetched.error)}"
            self.connections.metadata.refresh()
        else:
            copy.source_trouble = f"{error_name(fetched.error)}"
            copy.fetch_after_s = self._now_s + 1.0

    def _lost(self, node_id: int, asked: list[Asked]) -> None:
        self._sessions.pop(node_id, None)
        for copies in asked:
            for copy in copies.values():
                copy.answered = False


def spoken(connection: Connection, copies: Iterable[PartitionCopy]) -> int:
    """By ids if the broker can and the topics have some: those of clusters older than 2.8 do not."""
    ids = connection.newest.get(API_KEY, NAMES) >= IDS and all(copy.has_id for copy in copies)
    return IDS if ids else NAMES
