"""Producing: up to five requests in flight per connection, one batch per partition in each.

A broker works on the requests of a connection one by one. So partitions with a backlog, whose requests
are large, have another connection than those that are caught up. And a broker waits until the followers
have what a request holds: one partition whose followers hang would hold up all others. So the wait is
short, and partitions that exceed it are sent on a third connection (`aside`) until they are fast again.
What is in flight behind them is sent again on a new connection: the broker has not read it yet.

A partition changes its connection only while nothing of it is in flight: its batches keep their order.

Only partitions with something to send are scanned. Each request takes the first batch of each of them,
in turn, so that none waits behind another's backlog.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from ureplicator_common.kafka.errors import (
    LEADER_MOVED,
    RETRIABLE_PRODUCE,
    ErrorCode,
    error_name,
    refusal,
)
from ureplicator_common.kafka.transactions.producer_memory import PRODUCER_KEPT_S
from ureplicator_worker.batches.header import CorruptBatch, is_intact
from ureplicator_worker.batches.rebuild import split
from ureplicator_worker.copier.latency import Latencies
from ureplicator_worker.copier.messages import (
    ConfirmationNeeded,
    RecordSkipped,
    TransactionFailed,
    WriteControlRecords,
)
from ureplicator_worker.copier.net.buffers import BufferPool, Lease
from ureplicator_worker.copier.net.connection import ConnectionClosed
from ureplicator_worker.copier.net.connections import Connections, Traffic, Via, available
from ureplicator_worker.copier.net.metadata import ClusterMetadata
from ureplicator_worker.copier.raw.batch import Batch
from ureplicator_worker.copier.raw.confirmations import Confirmations
from ureplicator_worker.copier.raw.counting import copied, count
from ureplicator_worker.copier.raw.gap_filling import (
    IN_DOUBT,
    GapFiller,
    Request,
    at_gap,
    becomes_old,
    shifted,
)
from ureplicator_worker.copier.raw.ingest import batch_of
from ureplicator_worker.copier.raw.lane_transaction import LaneTransaction
from ureplicator_worker.copier.raw.partition import SendSide
from ureplicator_worker.copier.raw.produce_rules import (
    PERMANENT_FAULTS,
    RECORD_FAULTS,
    TOO_LARGE,
    far_limit_bytes,
    is_lost,
    leading,
    may_send,
    produce_version,
    request_limit_bytes,
    retry_reason,
)
from ureplicator_worker.copier.raw.producer_id_pool import Producers
from ureplicator_worker.copier.raw.send_window import (
    MAX_IN_FLIGHT_NEW_PRODUCER,
    NEVER_MS,
)
from ureplicator_worker.wire.produce_api import (
    ASIDE_TIMEOUT_MS,
    BROKER_TIMEOUT_MS,
    IDS,
    Produced,
    parse,
    request,
)
from ureplicator_worker.wire.topic_keys import TopicKey

SILENCE_TIMEOUT_S = 15.0
"""A time above what a broker may wait for its followers (`produce_api.ASIDE_TIMEOUT_MS`)."""
RETRY_S = 0.1
FAST_S = BROKER_TIMEOUT_MS / 2_000
OBSERVE_EVERY_S = 0.02
DOUBT_AFTER_S = 3600.0
"""Pause after which a producer counts as unproven: the setting may be shorter than its default."""

PRODUCER_LOST = frozenset({ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH})


@dataclass(slots=True)
class Sent:
    """A request in flight: its version, and the batch of each partition in it."""

    version: int
    batches: dict[TopicKey, tuple[SendSide, Batch]] = field(default_factory=dict)


class Target:
    """`failed(send, reason, temporary)` for a partition that cannot be sent any further.
    `lost(send, reason)`: the target no longer has records that it acknowledged. Posted is that it refuses a
    record, which is left out, and that the open transaction can only be aborted.
    """

    def __init__(
        self,
        metadata: ClusterMetadata,
        *,
        pool: BufferPool,
        producers: Producers,
        latency: Latencies,
        failed: Callable[[SendSide, str, bool], None],
        lost: Callable[[SendSide, str], None],
        transaction: LaneTransaction,
        post: Callable[
            [RecordSkipped | TransactionFailed | ConfirmationNeeded | WriteControlRecords], None
        ],
        wall_s: Callable[[], float],
    ) -> None:
        self.connections = Connections(
            metadata,
            pool=pool,
            on_response=self._on_response,
            on_lost=self._on_lost,
            silence_timeout_s=SILENCE_TIMEOUT_S,
        )
        self.confirmations = Confirmations(self.connections, post)
        self.gap_filler = GapFiller(
            self.connections,
            confirmations=self.confirmations,
            post=post,
            failed=failed,
            activate=self.activate,
            wall_s=wall_s,
        )
        self._producers = producers
        self._latency = latency
        self._failed = failed
        self._lost = lost
        self._post = post
        self.transaction = transaction
        self.active: dict[SendSide, None] = {}
        """Partitions that may have something to send."""
        self._wall_s = wall_s
        self.producer_kept_s = PRODUCER_KEPT_S
        self._expired_ms = NEVER_MS
        self._now_s = 0.0
        self._observe_at_s = 0.0

    def activate(self, send: SendSide) -> None:
        """The partition may have something to send."""
        if send not in self.active:
            if self._now_s - send.moved_at_s > min(DOUBT_AFTER_S, self.producer_kept_s):
                send.window.limit = MAX_IN_FLIGHT_NEW_PRODUCER
            send.moved_at_s = self._now_s
            self.active[send] = None

    def leader(self, send: SendSide) -> int:
        """Node that the partition is sent to."""
        return self.connections.leader(*send.topic_partition).node_id

    def drop(self, send: SendSide) -> None:
        """Discard what is not acknowledged; requests in flight are cut off with their connection."""
        if send.transactional:
            self.transaction.leave(send)
        if send.window.in_flight:
            self.connections.reopen(send.sent_via)
        send.window.discard()
        send.deleting = False  # the response concerns nobody
        self.active.pop(send, None)

    def work(self, now_s: float) -> None:
        """Send the requests that may be sent now."""
        self._now_s = now_s
        self._expired_ms = round((self._wall_s() - self.producer_kept_s) * 1_000)
        if now_s >= self._observe_at_s:
            self._observe_at_s = now_s + OBSERVE_EVERY_S
            for connection in self.connections.open:
                connection.observe(now_s)
        by_via: dict[tuple[Via, bool], deque[SendSide]] = {}
        at_gaps: list[SendSide] = []
        for send in list(self.active):
            if send.window.empty and not send.begins:
                del self.active[send]
            elif send.suspended or send.confirming or not may_send(send, self.transaction):
                continue
            elif send.same is not None and at_gap(send):
                at_gaps.append(send)
            elif send.same is not None and becomes_old(send, self._expired_ms):
                send.old = True
                self.confirmations.need(send)
            elif send.fenced and self._is_in_doubt(send):
                self.need_producer(send)
            elif send.window.can_send(self._expired_ms) and now_s >= send.retry_at_s:
                wanted = Via(self.leader(send), send.traffic(now_s))
                via = available(self.connections, wanted, now_s)
                if send.window.in_flight == 0 or send.sent_via == via:
                    by_via.setdefault((via, send.transactional), deque()).append(send)
        for (via, transactional), partitions in sorted(
            by_via.items(), key=lambda item: item[0][0].traffic
        ):
            if via.node_id >= 0:
                self._produce(via, partitions, self.transaction if transactional else None)
                continue
            self.connections.refresh()
            view = self.connections.view
            for send in partitions:
                send.error = view.absence(send.topic_partition[0]) if view else ""
                send.retry_at_s = now_s + RETRY_S
        if at_gaps:
            self.gap_filler.work(at_gaps, now_s, self._expired_ms)

    def _produce(
        self, via: Via, partitions: deque[SendSide], transaction: LaneTransaction | None
    ) -> None:
        """Send what the partitions have, all of it in the transaction or nothing: a request names its
        transactional id."""
        connection = self.connections.connection_to(via, self._now_s)
        held_until_s = self.connections.health.held_until_s(via.node_id)
        if connection is None or self._now_s < held_until_s:
            return
        aside = via.traffic is Traffic.ASIDE
        partitions = self.confirmations.sendable(partitions, connection)
        try:
            if transaction is not None:
                partitions = transaction.taking_part(
                    partitions, partial(leading, self.connections, via.node_id), self._now_s
                )
            while limit_bytes := request_limit_bytes(connection):
                sent = Sent(produce_version(connection, partitions, transaction))
                self._next_round(sent, via, partitions, limit_bytes, far_limit_bytes(connection))
                if not sent.batches:
                    return
                correlation_id = connection.next_correlation_id()
                pieces = request(
                    ((key, batch.view) for key, (_, batch) in sent.batches.items()),
                    version=sent.version,
                    correlation_id=correlation_id,
                    client_id=self.connections.client_id,
                    timeout_ms=ASIDE_TIMEOUT_MS if aside else BROKER_TIMEOUT_MS,
                    transactional_id=transaction.transactional_id if transaction else "",
                )
                connection.send(
                    pieces, correlation_id=correlation_id, context=sent, now_s=self._now_s
                )
        except ConnectionClosed as error:
            self.connections.drop(via, str(error), now_s=self._now_s)

    def _next_round(
        self, sent: Sent, via: Via, partitions: deque[SendSide], limit_bytes: int, far_bytes: int
    ) -> None:
        """One batch of each partition, as far as the size of a request allows.

        A partition that was served goes to the end: what did not fit is first in the next request.
        """
        size = 0
        for _ in range(len(partitions)):
            if size >= limit_bytes:
                break
            send = partitions.popleft()
            partitions.append(send)
            key = send.keys.key(ids=sent.version >= IDS)
            batch = None if key in sent.batches else send.window.next(self._expired_ms)
            if batch is not None:
                self.active[send] = self.active.pop(send)
                send.sent_via = via
                send.window.far_bytes = far_bytes
                if send.window.in_flight == 1:
                    send.sent_at_s = self._now_s
                sent.batches[key] = (send, batch)
                size += len(batch.view)

    def need_producer(self, send: SendSide) -> None:
        """Send on under a producer id that the partition has not used; no effect in transactions. Exactly
        once without them the partition fails and begins again, so that what was appended is counted."""
        if send.transactional:
            return
        if send.fenced:
            why = f": {send.error}" if send.error else ""
            self._failed(send, f"{IN_DOUBT}{why}", True)
            return
        send.needs_producer = not self._producers.restart(send.topic_partition, send.window)

    def _on_response(self, via: Via, sent: Sent | Request, lease: Lease) -> None:
        if not isinstance(sent, Sent):
            self.gap_filler.on_response(sent, lease, self._now_s)
            return
        try:
            response = parse(lease.view, sent.version)
        finally:
            lease.release()
        self.connections.health.hold(via.node_id, response.throttle_ms / 1_000, self._now_s)
        for produced in response.partitions:
            requested = sent.batches.pop(produced.key, None)
            if requested is not None:
                self._take(*requested, produced)
        if sent.batches:
            self._on_lost(via, [sent])

    def _take(self, send: SendSide, batch: Batch, produced: Produced) -> None:
        if not send.window.is_in_flight(batch):
            return
        if produced.error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            if send.same is not None and produced.base_offset < 0:
                self._failed(send, "it is not known at which offset the target has a batch", True)
                return
            self._acknowledged(send, batch, produced)
        elif send.transactional and is_lost(produced, head=send.window.is_head(batch)):
            self._post(TransactionFailed(f"{send.partition}: {error_name(produced.error)}"))
            self._retry_later(send, batch, produced)
        elif produced.error in RETRIABLE_PRODUCE:
            batch.may_be_there = True
            self._retry_later(send, batch, produced)
            if produced.error == ErrorCode.REQUEST_TIMED_OUT:
                self._set_aside(send)
            if produced.error in LEADER_MOVED and self.connections.learn(
                send.topic_partition, produced.leader, produced.broker
            ):
                send.retry_at_s = 0.0
        elif produced.error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            self._out_of_order(send, batch, produced)
        elif produced.error in PRODUCER_LOST:
            send.needs_producer |= send.window.is_head(batch)
            self._retry_later(send, batch, produced)
        else:
            if send.window.is_head(batch):
                batch.refusal = produced
            send.window.lost(batch)
        self.activate(send)
        self._settle(send)

    def _acknowledged(self, send: SendSide, batch: Batch, produced: Produced) -> None:
        send.error = ""
        send.waits_for_markers = False
        send.aside &= self._now_s - send.sent_at_s > FAST_S
        send.moved_at_s = self._now_s
        count(send, batch, transaction=self.transaction, latency=self._latency)
        if send.same is not None:
            send.same = shifted(send, batch, produced.base_offset)
            send.old &= batch.max_timestamp_ms < self._expired_ms or send.window.in_flight > 1
        gone = send.window.acknowledged(batch, produced.base_offset)
        if gone is not None:
            self.went_back(send, gone)

    def went_back(self, send: SendSide, gone: range) -> None:
        """Offsets of a log only grow: this is another log, or it lost records (unclean election).

        Requests name the topic, so what was in flight when the target topic was recreated lies in the
        new one now. Nothing follows it. The view that is requested here shows a recreated topic.
        """
        self.connections.refresh()
        self._lost(
            send,
            f"target lost offsets {gone.start} to {gone.stop - 1}, or its topic was recreated",
        )

    def _out_of_order(self, send: SendSide, batch: Batch, produced: Produced) -> None:
        """Judge a batch that came out of order. At the head nothing is missing before the batch, unless
        the target's log lost it.

        So nothing is appended behind a hole: the restart compares the log's end with the position's.
        """
        if send.window.is_head(batch):
            reason = f"target's log does not continue before offset {batch.first_offset}"
            self._failed(send, f"{reason}: {error_name(produced.error)}", True)
        else:
            self._retry_later(send, batch, produced)

    def _is_in_doubt(self, send: SendSide) -> bool:
        """Brokers forget the producer of what is sent next, by its time or that of what was sent behind it,
        or by their own where they stamp the records: a try of unknown outcome would be appended again."""
        batch = send.window.head
        if batch is not None and send.shared and batch.max_timestamp_ms < self._expired_ms:
            return True  # the former owner may have sent it, too
        if batch is None or not (batch.may_be_there or send.window.astray):
            return False
        waited_s = self._now_s - send.moved_at_s
        return batch.oldest_ms < self._expired_ms or waited_s > self.producer_kept_s

    def _set_aside(self, send: SendSide) -> None:
        send.aside = True
        if send.window.in_flight and send.sent_via.traffic is not Traffic.ASIDE:
            self.connections.reopen(send.sent_via)

    def _retry_later(self, send: SendSide, batch: Batch, produced: Produced) -> None:
        send.error = retry_reason(produced, leader=send.sent_via.node_id)
        send.retry_at_s = self._now_s + RETRY_S
        send.waits_for_markers = produced.error == ErrorCode.CONCURRENT_TRANSACTIONS
        send.window.lost(batch)

    def _settle(self, send: SendSide) -> None:
        """Handle a refusal, then a lost producer, once nothing is in flight."""
        head = send.window.head if not send.window.in_flight else None
        if head is not None and head.refusal is not None:
            self._refused(send, head, head.refusal)
        if send.needs_producer and send.window.in_flight == 0:
            self.need_producer(send)

    def _refused(self, send: SendSide, head: Batch, refused: Produced) -> None:
        """A batch that no retry will bring in: split it, skip it, or give the partition up."""
        skip = refused.error in RECORD_FAULTS and not send.abort_on_send_failure
        splits = head.records > 1 and (skip or refused.error in TOO_LARGE)
        passes = send.shared and skip and not splits  # the sequence, to what follows
        if passes or (head.may_be_there and (skip or splits)):
            if send.transactional:
                reason = f"{error_name(refused.error)} after a try of unknown outcome"
                self._post(TransactionFailed(f"{send.partition}: {reason}"))
                return
            send.needs_producer = True
            if send.fenced:
                return
        if refused.error in TOO_LARGE:
            send.window.merged_bytes = min(send.window.merged_bytes, len(head.view) // 2)
        if splits:
            self._split(send, head)
            return
        at = head.source_offsets().at(max(0, refused.record_index))
        detail = f" ({refused.message})" if refused.message else ""
        right = f"WRITE on topic {send.topic_partition[0]}"
        name = refusal(refused.error, right, self.connections.cluster)
        reason = f"target refused offset {at}: {name}{detail}"
        if not skip:
            self._failed(send, reason, refused.error not in PERMANENT_FAULTS)
            return
        send.window.replace_head([], next_offset=head.next_offset)
        copied(send, self.transaction).skipped += head.records
        self._post(RecordSkipped(send.partition, reason, at))
        if send.fenced:  # what is counted behind a position follows it without holes
            self.confirmations.need(send)

    def _split(self, send: SendSide, head: Batch) -> None:
        """Halve a batch, if it is intact: brokers look at its size before its checksum, and halves get new
        ones."""
        if not is_intact(head.view):
            reason = f"the batch at offset {head.first_offset} has changed in memory"
            self._failed(send, reason, True)
            return
        try:
            halves = split(head.view, head.source_offsets())
        except CorruptBatch as error:
            self._failed(send, f"corrupt at offset {head.first_offset}: {error}", False)
            return
        assert head.lease is not None
        pieces = [
            batch_of(half, half.last_offset + 1, head.leader_epoch, head.lease) for half in halves
        ]
        pieces[-1].next_offset = head.next_offset
        send.window.replace_head(pieces, next_offset=head.next_offset)

    def _on_lost(self, via: Via, lost: list[Sent | Request]) -> None:
        for sent in lost:
            if not isinstance(sent, Sent):
                self.gap_filler.on_lost(sent)
                continue
            for send, batch in sent.batches.values():
                if not send.window.is_in_flight(batch):
                    continue
                send.waits_for_markers = False
                batch.may_be_there = send.window.astray = True
                send.window.lost(batch)
                self.activate(send)
                self._settle(send)
