"""Raw lane: record batches as they are, from Fetch responses into Produce requests.

    metadata threads --> Connections --> Source --> FetchSide | SendWindow | SendSide --> Target

Batches are neither decoded nor compressed again, except where they must be (`batches.header`). The lane
wires both ends together. Topics with a handler are its own, too: between the same source and target their
records go through the user's code (`copier.record`), in place of the SendWindow.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from ureplicator_common.kafka.provenance import UNCOUNTED, SameOffsets
from ureplicator_common.model import Partition, PartitionState, RouteSettings
from ureplicator_common.offset_map.segments import MapSegment
from ureplicator_worker.copier.handler_counters import HandlerCounters
from ureplicator_worker.copier.lane import Progress
from ureplicator_worker.copier.lanes.raw_transactions import RawTransactions
from ureplicator_worker.copier.lanes.relief import relieve
from ureplicator_worker.copier.lanes.topics import Topics
from ureplicator_worker.copier.latency import Latencies
from ureplicator_worker.copier.loop.mailbox import Mailbox
from ureplicator_worker.copier.messages import GapFound, LaneEvent
from ureplicator_worker.copier.net.buffers import BufferPool
from ureplicator_worker.copier.net.connections import Connections
from ureplicator_worker.copier.net.metadata import ClusterMetadata, MetadataEvent
from ureplicator_worker.copier.position_values import StartPosition
from ureplicator_worker.copier.raw.byte_limits import RouteLimits, unlimited
from ureplicator_worker.copier.raw.gap_filling import filling_text
from ureplicator_worker.copier.raw.lane_transaction import LaneTransaction, unsettled
from ureplicator_worker.copier.raw.partition import FetchSide, SendSide, same_offsets
from ureplicator_worker.copier.raw.producer_id_pool import Producers
from ureplicator_worker.copier.raw.send_window import at_beginning
from ureplicator_worker.copier.raw.source import Source
from ureplicator_worker.copier.raw.target import Target
from ureplicator_worker.copier.record.handler_scheduler import Handlers, StartProcess
from ureplicator_worker.copier.record.partition import (
    LanePartition,
    RecordPartition,
    begin,
    change_settings,
)
from ureplicator_worker.copier.record.process import HandlerProcess
from ureplicator_worker.lifeline.measures import Segment
from ureplicator_worker.lifeline.messages import Failed, Grant, PartitionReport

NOT_SAME = SameOffsets(since=-1)
CHECK_EVERY_S = 0.5
"""Silent connections and stalled partitions are not worth a scan at every turn."""


class RawLane:
    """See `copier.lane.Lane`. The mailboxes hold what the threads of the metadata post."""

    def __init__(
        self,
        *,
        source: ClusterMetadata,
        source_events: Mailbox[MetadataEvent],
        target: ClusterMetadata,
        target_events: Mailbox[MetadataEvent],
        pool: BufferPool,
        limits: RouteLimits | None = None,
        transactional_id: str = "",
        start_handler: StartProcess = HandlerProcess,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self.latency = Latencies()
        self.handled = HandlerCounters()
        self._partitions: dict[Partition, LanePartition] = {}
        self._events: deque[LaneEvent] = deque()
        self._producers = Producers(self._events.append)
        transaction = LaneTransaction(transactional_id)
        self._target = Target(
            target,
            pool=pool,
            producers=self._producers,
            latency=self.latency,
            failed=partial(self._stop, discard=True),
            lost=self._target_lost,
            transaction=transaction,
            post=self._events.append,
            wall_s=wall_s,
        )
        self._source = Source(
            source,
            pool=pool,
            limits=limits or unlimited(),
            failed=self._stop,
            filled=lambda fetch: filled(
                self._partitions[fetch.partition], self._target, self._handlers
            ),
            target_node=partial(target_node, self._partitions, self._target),
            post=self._events.append,
        )
        self.transactions = RawTransactions(
            transaction,
            partitions=self._partitions,
            source=self._source,
            target=self._target,
            events=self._events,
            latency=self.latency,
        )
        self._metadata = (source, target)
        self._connections = self._source.connections, self._target.connections
        self._mail = tuple(zip((source_events, target_events), self._connections, strict=True))
        self._topics = Topics(
            self._partitions, source=self._source, target=self._target, stop=self._stop
        )
        self._handlers = Handlers(
            target=self._target,
            pool=pool,
            failed=self._stop,
            topics_changed=self._topics.change,
            start=start_handler,
            counters=self.handled,
        )
        self._now_s = self._check_at_s = 0.0

    def begin(self, partition: Partition, grant: Grant, beginning: StartPosition) -> None:
        raw = self._partitions[partition] = begin(partition, grant, beginning)
        self._topics.change()
        if raw.send.fenced:
            self._target.producer_kept_s = beginning.producer_kept_s
            self._target.confirmations.begin(raw.send, beginning.at_s, now_s=self._now_s)
        else:
            self._target.need_producer(raw.send)
        if isinstance(raw, RecordPartition):
            self._handlers.add(raw)
        if raw.send.same is not None:
            self._target.activate(raw.send)
        self._source.add(raw.fetch)

    def suspend(self, partition: Partition) -> None:
        raw = self._partitions[partition]
        self._source.suspend(raw.fetch, suspended=True)
        for send in raw.sends:
            send.suspended = True

    def resume(self, partition: Partition) -> None:
        raw = self._partitions[partition]
        self._source.suspend(raw.fetch, suspended=False)
        for send in raw.sends:
            send.suspended = False

    def change_settings(self, partition: Partition, settings: RouteSettings) -> None:
        change_settings(self._partitions[partition], settings)

    def confirmed(self, partition: Partition) -> None:
        raw = self._partitions[partition]
        self._target.confirmations.confirmed(raw.send)
        self._target.activate(raw.send)

    def seek(self, partition: Partition, offset: int) -> bool:
        raw = self._partitions[partition]
        if raw.send.transactional and raw.fetch.may_rewind:
            return False
        if raw.send.fenced and not (raw.window.empty or at_beginning(raw.send.window)):
            self._stop(raw, "begins again before a gap", temporary=True)
            return False
        for send in raw.sends:
            send.window.missing = 0
        self._source.seek(raw.fetch, offset)
        if raw.send.same is not None and (gap := raw.send.window.last_gap) is not None:
            gap.lossy = True
            self._target.activate(raw.send)
        elif raw.send.fenced:
            self._target.confirmations.need(raw.send)
        return True

    def finish(self, partition: Partition) -> None:
        raw = self._partitions[partition]
        self._source.finish(raw.fetch)
        if raw.send.begins:  # the next owner goes on filling
            raw.send.suspended = True
            raw.window.discard()
        raw.finish()

    def drop(self, partition: Partition) -> None:
        raw = self._partitions[partition]
        self._source.finish(raw.fetch)
        for send in raw.sends:
            self._target.drop(send)
        raw.window.discard()
        self._handlers.remove(raw)
        del self._partitions[partition]
        self._topics.change()

    def progress(self, partitions: Iterable[Partition]) -> dict[Partition, Progress]:
        progress: dict[Partition, Progress] = {}
        for partition in partitions:
            raw = self._partitions[partition]
            window, own = raw.window, raw.send.window
            progress[partition] = Progress(
                window.position,
                window.leader_epoch,
                window.empty,
                target_end=own.sure_end + own.missing,
                markers=self.transactions.markers(raw.send),
                sequence=UNCOUNTED if raw.send.filling else own.acknowledged_sequence,
                closed=is_closed(raw),
                same=same_offsets(raw.send),
            )
        return progress

    def producer(self, id: int, epoch: int) -> None:
        self._producers.ready(id, epoch)
        for raw in self._partitions.values():
            for send in raw.sends:
                if send.needs_producer and send.window.in_flight == 0:
                    self._target.need_producer(send)

    def take_events(self) -> Iterator[LaneEvent]:
        while self._events:
            yield self._events.popleft()

    def status(self, partition: Partition) -> PartitionReport:
        raw = self._partitions[partition]
        error = error_of(raw, self._source.connections, self._target.connections, now_s=self._now_s)
        state, reason = (PartitionState.ERROR, error) if error else begun_state(raw)
        same = raw.send.same or NOT_SAME
        return PartitionReport(
            state,
            reason,
            position=raw.window.position,
            records=sum(send.copied.records for send in raw.sends),
            bytes=sum(send.copied.bytes for send in raw.sends),
            lag=raw.fetch.lag,
            skipped=sum(send.copied.skipped for send in raw.sends),
            gaps=raw.fetch.gaps,
            gap_offsets=raw.fetch.gap_offsets,
            shift=same.shift,
            shift_since=same.since,
            shift_reason=same.why,
        )

    def segments(self, partition: Partition) -> tuple[Segment, ...]:
        return self._partitions[partition].send.window.offsets.segments()

    def map_segments(self, partition: Partition, *, since: int) -> tuple[MapSegment, ...]:
        return self._partitions[partition].send.window.offsets.segments_from(since)

    def sockets(self) -> tuple[Connections, Connections, Handlers]:
        return (*self._connections, self._handlers)

    def work(self, now_s: float) -> None:
        """Batches that are there are sent before others are requested."""
        self._now_s = now_s
        if self._topics.changed:
            self._topics.cover(self._handlers.topics)
        for mailbox, connections in self._mail:
            for event in mailbox.take():
                if connections.on_metadata(event, now_s):
                    self._topics.check()
        self._target.work(now_s)
        self._handlers.work(now_s)
        self._source.work(now_s)
        self.transactions.request_joining()
        if now_s >= self._check_at_s:
            self._check_at_s = now_s + CHECK_EVERY_S
            for connections in self._connections:
                connections.drop_silent(now_s)
            if self._source.out_of_room:
                relieve(self._partitions, source=self._source, target=self._target, now_s=now_s)

    def _stop(
        self,
        part: LanePartition | FetchSide | SendSide,
        reason: str,
        temporary: bool = False,
        discard: bool = False,
        local: bool = False,
    ) -> None:
        """Fetch no more, and have the holder give the partition up; discard what is not acknowledged,
        or send it. A partition that is finished already just has less to send."""
        raw = self._partitions[part.partition] if isinstance(part, (FetchSide, SendSide)) else part
        if discard and raw.send.transactional and any(unsettled(send.window) for send in raw.sends):
            self.transactions.fail(f"{raw.partition} was given up: {reason}")
        if not raw.fetch.finished:
            self._source.finish(raw.fetch)
            raw.finish()
            self._events.append(Failed(raw.partition, reason, temporary, local))
        if discard:
            raw.window.discard()

    def _target_lost(self, send: SendSide, reason: str) -> None:
        """Hold the partition until the policy for gaps has decided (`seek` or `finish`).

        In a transaction what was acknowledged is not committed yet: the next start finds the loss.
        """
        raw = self._partitions[send.partition]
        if send.transactional or send.fenced:
            if send.transactional:
                self.transactions.fail(f"{raw.partition}: {reason}")
            self._stop(raw, reason, temporary=True, discard=True)
            return
        self._source.hold(raw.fetch)
        raw.window.discard()
        for side in raw.sends:
            self._target.need_producer(side)
        position = raw.window.position
        self._events.append(GapFound(raw.partition, reason, position, next_offset=position))

    def close(self) -> None:
        self._handlers.close()
        for connections in self._connections:
            connections.close()
        for metadata in self._metadata:
            metadata.close()
        for raw in self._partitions.values():
            raw.window.discard()


def filled(raw: LanePartition, target: Target, handlers: Handlers) -> None:
    """Something was fetched of the partition."""
    if isinstance(raw, RecordPartition):
        handlers.activate(raw)
    else:
        target.activate(raw.send)


def target_node(
    partitions: Mapping[Partition, LanePartition], target: Target, fetch: FetchSide
) -> int:
    """Broker of the target that the partition's batches are sent to."""
    return target.leader(partitions[fetch.partition].send)


def is_closed(raw: LanePartition) -> bool:
    """Nothing is sent any more, and all that was sent is acknowledged. A former owner that shares the
    producer may still send."""
    if raw.send.shared:
        return False
    window = raw.send.window
    return raw.fetch.finished and raw.window.empty and not window.uncertain


def begun_state(raw: LanePartition) -> tuple[PartitionState, str]:
    """State of a partition without an error, with the reason."""
    if raw.send.filling:
        return PartitionState.OFFLINE, filling_text(raw.send)
    if raw.fetch.fetching:
        return PartitionState.ONLINE, ""
    return PartitionState.OFFLINE, "starting: waiting for the first response"


def error_of(raw: LanePartition, source: Connections, target: Connections, *, now_s: float) -> str:
    """Error of a partition, with the end that it concerns; "" if none is known.

    With nothing to send a connection to the target proves nothing: brokers close idle ones, and no
    response would clear the error. Then the metadata count, which are read every few seconds, unless
    the leader responds to requests for other partitions.
    """
    source_error = source.error(*raw.fetch.topic_partition) or raw.fetch.error
    if source_error:
        return f"source: {source_error}"
    if raw.window.empty:
        leader = target.leader(*raw.send.topic_partition).node_id
        target_error = "" if target.health.is_well(leader, now_s) else target.cluster_error
        return f"target: {target_error}" if target_error else ""
    errors = (
        target.error(*send.topic_partition) or send.error
        for send in raw.sends
        if not send.window.empty
    )
    return next((f"target: {error}" for error in errors if error), "")
