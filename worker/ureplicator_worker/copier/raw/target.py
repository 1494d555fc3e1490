"""Producing: up to five requests under way per target broker, one batch a partition in each.

Only partitions with something to send are looked at; each request takes the first batch of each of
them, in turn, so that none waits behind another's backlog.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable

from ureplicator_common.kafka.errors import (
    LEADER_MOVED,
    RETRIABLE_PRODUCE,
    ErrorCode,
    error_name,
)
from ureplicator_worker.copier.raw.batches.header import CorruptBatch
from ureplicator_worker.copier.raw.batches.rebuild import split
from ureplicator_worker.copier.raw.batches.send_window import Batch
from ureplicator_worker.copier.raw.net.buffers import BufferPool, Lease
from ureplicator_worker.copier.raw.net.connection import ConnectionClosed
from ureplicator_worker.copier.raw.net.connections import Connections
from ureplicator_worker.copier.raw.net.metadata import ClusterMetadata
from ureplicator_worker.copier.raw.net.produce_api import Produced, parse, request
from ureplicator_worker.copier.raw.partition import PartitionCopy

IN_FLIGHT = 5
REQUEST_BYTES = 4 << 20
SILENCE_LIMIT_S = 15.0
"""Above what a broker may wait for its followers (`produce.BROKER_TIMEOUT_MS`)."""
RETRY_S = 0.1
DETACH_AFTER_S = 1.0

SEQUENCE_LOST = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
RECORD_FAULTS = TOO_LARGE | {
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
}
"""The fault is in the records, so they may be left out. A lost right to write, say, is in none."""

Sent = dict[tuple[str, int], tuple[PartitionCopy, Batch]]


class Target:
    """`acknowledged(copy, batch)` after each batch; `failed(copy, reason)` for what cannot be sent;
    `skipped(copy, reason)` for a record left out on the operator's word; `need_producer(copy)` when
    the broker no longer knows our sequences."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        *,
        pool: BufferPool,
        acknowledged: Callable[[PartitionCopy, Batch], None],
        failed: Callable[[PartitionCopy, str, bool], None],
        skipped: Callable[[PartitionCopy, str], None],
        need_producer: Callable[[PartitionCopy], None],
    ) -> None:
        self.connections = Connections(
            metadata,
            pool=pool,
            answered=self._answered,
            lost=self._lost,
            silence_limit_s=SILENCE_LIMIT_S,
        )
        self._acknowledged = acknowledged
        self._failed = failed
        self._skipped = skipped
        self._need_producer = need_producer
        self._active: dict[PartitionCopy, None] = {}
        self._now_s = 0.0

    def activate(self, copy: PartitionCopy) -> None:
        """The partition may have something to send."""
        if copy not in self._active:
            copy.moved_at_s = self._now_s
            self._active[copy] = None

    def forget(self, copy: PartitionCopy) -> None:
        self._active.pop(copy, None)

    def work(self, now_s: float) -> None:
        """Send the requests that may go out now."""
        self._now_s = now_s
        by_leader: dict[int, deque[PartitionCopy]] = {}
        for copy in list(self._active):
            if copy.window.empty:
                del self._active[copy]
            elif copy.suspended or copy.needs_producer:
                continue
            elif copy.window.can_send and now_s >= copy.send_after_s:
                node_id = self.connections.leader(*copy.target).node_id
                if copy.window.in_flight == 0 or copy.sent_via == node_id:
                    by_leader.setdefault(node_id, deque()).append(copy)
        for node_id, copies in by_leader.items():
            if node_id < 0:
                self.connections.metadata.refresh()
                self._wait(copies)
            else:
                self._produce(node_id, copies)

    def _wait(self, copies: Iterable[PartitionCopy]) -> None:
        for copy in copies:
            if self.connections.view is not None:
                copy.target_trouble = "no leader"
            copy.send_after_s = self._now_s + RETRY_S

    def _produce(self, node_id: int, copies: deque[PartitionCopy]) -> None:
        connection = self.connections.to(node_id, self._now_s)
        if connection is None:
            self._detach(copies)
            return
        try:
            while connection.in_flight < IN_FLIGHT:
                sent = self._next_round(node_id, copies)
                if not sent:
                    return
                correlation_id = connection.next_correlation_id()
                pieces = request(
                    ((*key, batch.view) for key, (_, batch) in sent.items()),
                    correlation_id=correlation_id,
                )
                connection.send(
                    pieces, correlation_id=correlation_id, context=sent, now_s=self._now_s
                )
        except ConnectionClosed as error:
            self.connections.drop(node_id, str(error), now_s=self._now_s)

    def _next_round(self, node_id: int, copies: deque[PartitionCopy]) -> Sent:
        """One batch of each partition, as far as the size of a request allows.

        Who had a turn goes to the end: what did not fit is first in the next request.
        """
        sent: Sent = {}
        size = 0
        for _ in range(len(copies)):
            if size >= REQUEST_BYTES:
                break
            copy = copies.popleft()
            copies.append(copy)
            batch = copy.window.next()
            if batch is not None:
                self._active[copy] = self._active.pop(copy)
                copy.sent_via = node_id
                sent[copy.target] = (copy, batch)
                size += len(batch.view)
        return sent

    def _detach(self, copies: Iterable[PartitionCopy]) -> None:
        """What must wait for an absent broker shall not keep the buffers that others need."""
        for copy in copies:
            copy.window.detach()

    def detach_stalled(self, now_s: float) -> None:
        """The same for whatever else does not move: a batch holds the whole answer that it lies in,
        and a few that wait long enough would hold all buffers."""
        for copy in self._active:
            if now_s - copy.moved_at_s > DETACH_AFTER_S:
                copy.window.detach()

    def _answered(self, node_id: int, sent: Sent, lease: Lease) -> None:
        try:
            answers = parse(lease.view)
        finally:
            lease.release()
        for produced in answers:
            asked = sent.pop((produced.topic, produced.number), None)
            if asked is not None:
                self._take(*asked, produced)
        if sent:
            self._lost(node_id, [sent])

    def _take(self, copy: PartitionCopy, batch: Batch, produced: Produced) -> None:
        if 0 <= produced.base_offset < copy.target_offset:
            self._went_back(copy, produced)
        elif produced.error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            copy.target_offset = max(copy.target_offset, produced.base_offset)
            copy.window.acknowledged(batch)
            copy.target_trouble = ""
            copy.moved_at_s = self._now_s
            self._acknowledged(copy, batch)
        elif produced.error in RETRIABLE_PRODUCE:
            self._later(copy, batch, produced)
        elif produced.error in SEQUENCE_LOST:
            copy.needs_producer |= copy.window.is_head(batch)
            copy.target_trouble = error_name(produced.error)
            copy.send_after_s = self._now_s + RETRY_S
            copy.window.lost(batch)
        else:
            if copy.window.is_head(batch):
                batch.refusal = produced
            copy.window.lost(batch)
        self.activate(copy)
        self._settle(copy)

    def _went_back(self, copy: PartitionCopy, produced: Produced) -> None:
        """Offsets of a log only grow: this is another log, or it lost records.

        Requests name the topic, so what was under way when the target topic was recreated lies in the
        new one now. Nothing follows it, and its position is not committed.
        """
        self.connections.metadata.refresh()
        reason = f"offset {produced.base_offset} follows {copy.target_offset}"
        self._failed(copy, f"target topic was recreated, or lost records: {reason}", True)

    def _later(self, copy: PartitionCopy, batch: Batch, produced: Produced) -> None:
        copy.target_trouble = error_name(produced.error)
        copy.send_after_s = self._now_s + RETRY_S
        copy.window.lost(batch)
        if produced.error in LEADER_MOVED:
            self.connections.metadata.refresh()

    def _settle(self, copy: PartitionCopy) -> None:
        """When nothing is in flight: deal with a refusal, then with a lost producer."""
        head = copy.window.waiting_head
        if head is not None and head.refusal is not None:
            self._refused(copy, head, head.refusal)
        if copy.needs_producer and copy.window.in_flight == 0:
            self._need_producer(copy)

    def _refused(self, copy: PartitionCopy, head: Batch, refusal: Produced) -> None:
        """A batch that no try will bring in: cut it smaller, leave it out, or give up."""
        faulty = refusal.error in RECORD_FAULTS
        skip = faulty and not copy.grant.settings.abort_on_send_failure
        if head.records > 1 and (skip or refusal.error in TOO_LARGE):
            self._split(copy, head)
            return
        at = head.first_offset + max(0, refusal.record_index)
        detail = f" ({refusal.message})" if refusal.message else ""
        reason = f"target refused offset {at}: {error_name(refusal.error)}{detail}"
        if not skip:
            self._failed(copy, reason, not faulty)
            return
        copy.window.replace_head([], next_offset=head.next_offset)
        copy.counters.skipped += head.records
        self._skipped(copy, reason)

    def _split(self, copy: PartitionCopy, head: Batch) -> None:
        try:
            halves = split(head.view, first_offset=head.first_offset)
        except CorruptBatch as error:
            self._failed(copy, f"corrupt at offset {head.first_offset}: {error}", False)
            return
        pieces = [
            Batch(
                memoryview(half.data),
                lease=None,
                first_offset=half.first_offset,
                next_offset=half.last_offset + 1,
                leader_epoch=head.leader_epoch,
                records=half.records,
                max_timestamp_ms=half.max_timestamp_ms,
            )
            for half in halves
        ]
        pieces[-1].next_offset = head.next_offset
        copy.window.replace_head(pieces, next_offset=head.next_offset)

    def _lost(self, node_id: int, contexts: list[Sent]) -> None:
        for sent in contexts:
            for copy, batch in sent.values():
                copy.window.lost(batch)
                copy.window.detach()
                self.activate(copy)
                self._settle(copy)


def latency_ms(batch: Batch) -> float:
    """From the youngest record of a batch to now; negative clocks are somebody else's."""
    return time.time() * 1_000 - batch.max_timestamp_ms
