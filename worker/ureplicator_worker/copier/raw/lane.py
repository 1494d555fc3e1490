"""Raw lane: record batches as they are, from Fetch responses into Produce requests.

    metadata threads --> Connections --> Source --> FetchSide | SendWindow | SendSide --> Target

Batches are neither decoded nor compressed again, except where they must be (`batches.header`). The lane
wires both ends together and keeps the topics' identity: a recreated topic is another topic, and the two
are never mixed. Batches that were fetched by the former topic's id are of the former and may still be
sent; batches that were fetched by name may be of either.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from ureplicator_common.model import Partition, RouteSettings
from ureplicator_worker.copier.lane import (
    GapFound,
    LaneEvent,
    LaneStatus,
    PartitionFailed,
    ProducerNeeded,
    Progress,
)
from ureplicator_worker.copier.latency import LatencyHistogram
from ureplicator_worker.copier.loop.mailbox import Mailbox
from ureplicator_worker.copier.position_values import StartPosition
from ureplicator_worker.copier.raw.net.buffers import BufferPool
from ureplicator_worker.copier.raw.net.connections import Connections, topic_change
from ureplicator_worker.copier.raw.net.metadata import (
    ClusterMetadata,
    Connected,
    ConnectFailed,
    MetadataEvent,
)
from ureplicator_worker.copier.raw.partition import FetchSide, RawPartition, SendSide
from ureplicator_worker.copier.raw.producers import Producers
from ureplicator_worker.copier.raw.relief import relieve
from ureplicator_worker.copier.raw.source import Source
from ureplicator_worker.copier.raw.target import Target
from ureplicator_worker.copier.raw.transaction import unsettled
from ureplicator_worker.copier.raw.transactions import RawTransactions
from ureplicator_worker.lifeline.messages import Grant

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
        transactional_id: str = "",
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self.latency = LatencyHistogram()
        self._partitions: dict[Partition, RawPartition] = {}
        self._events: deque[LaneEvent] = deque()
        self._producers = Producers(lambda: self._events.append(ProducerNeeded()))
        self._target = Target(
            target,
            pool=pool,
            producers=self._producers,
            latency=self.latency,
            failed=lambda send, reason, temporary: self._stop(
                self._partitions[send.partition], reason, temporary, discard=True
            ),
            lost=self._target_lost,
            transaction_failed=lambda reason: self.transactions.fail(reason),
            wall_s=wall_s,
        )
        self._source = Source(
            source,
            pool=pool,
            failed=self._fetch_failed,
            gap=lambda fetch, reason, next_offset: self._events.append(
                GapFound(fetch.partition, reason, fetch.offset, next_offset)
            ),
            filled=lambda fetch: self._target.activate(self._partitions[fetch.partition].send),
            target_node=lambda fetch: self._target.leader(self._partitions[fetch.partition].send),
        )
        self.transactions = RawTransactions(
            transactional_id,
            partitions=self._partitions,
            source=self._source,
            target=self._target,
            events=self._events,
            latency=self.latency,
        )
        self._metadata = (source, target)
        self._mail = (
            (source_events, (self._source.connections,)),
            (target_events, (self._target.connections, self._target.aside)),
        )
        self._now_s = 0.0
        self._check_at_s = 0.0
        self._topics_changed = False

    def begin(self, partition: Partition, grant: Grant, beginning: StartPosition) -> None:
        raw = self._partitions[partition] = RawPartition.begin(partition, grant, beginning)
        self._topics_changed = True
        self._target.need_producer(raw.send)
        self._source.add(raw.fetch)

    def _cover_topics(self) -> None:
        """Once a turn: a thousand partitions may begin in one."""
        self._topics_changed = False
        partitions = self._partitions.values()
        self._source.connections.cover(frozenset(raw.partition.topic for raw in partitions))
        self._target.connections.cover(frozenset(raw.send.topic_partition[0] for raw in partitions))

    def suspend(self, partition: Partition) -> None:
        raw = self._partitions[partition]
        self._source.suspend(raw.fetch, suspended=True)
        self._target.suspend(raw.send, suspended=True)

    def resume(self, partition: Partition) -> None:
        raw = self._partitions[partition]
        self._source.suspend(raw.fetch, suspended=False)
        self._target.suspend(raw.send, suspended=False)

    def change_settings(self, partition: Partition, settings: RouteSettings) -> None:
        self._partitions[partition].change_settings(settings)

    def seek(self, partition: Partition, offset: int) -> None:
        raw = self._partitions[partition]
        if self.transactions.used and raw.fetch.may_rewind:
            return  # it was rewound since, and finds the gap again
        raw.window.missing = 0
        self._source.seek(raw.fetch, offset)

    def finish(self, partition: Partition) -> None:
        self._source.finish(self._partitions[partition].fetch)

    def drop(self, partition: Partition) -> None:
        raw = self._partitions[partition]
        self._source.finish(raw.fetch)
        self._target.drop(raw.send)
        del self._partitions[partition]
        self._topics_changed = True

    def progress(self, partitions: Iterable[Partition]) -> dict[Partition, Progress]:
        progress: dict[Partition, Progress] = {}
        for partition in partitions:
            window = self._partitions[partition].window
            progress[partition] = Progress(
                window.position,
                window.leader_epoch,
                window.empty,
                target_end=window.target_end + window.missing,
            )
        return progress

    def producer(self, id: int, epoch: int) -> None:
        self._producers.ready(id, epoch)
        for raw in self._partitions.values():
            if raw.send.needs_producer and raw.window.in_flight == 0:
                self._target.need_producer(raw.send)

    def take_events(self) -> Iterator[LaneEvent]:
        while self._events:
            yield self._events.popleft()

    def status(self, partition: Partition) -> LaneStatus:
        raw = self._partitions[partition]
        error = error_of(raw, self._source.connections, self._target.connections, now_s=self._now_s)
        return LaneStatus(
            error=error,
            fetching=raw.fetch.fetching,
            position=raw.window.position,
            records=raw.send.copied.records,
            bytes=raw.send.copied.bytes,
            lag=raw.fetch.lag,
            skipped=raw.send.copied.skipped,
            gaps=raw.fetch.gaps,
        )

    def sockets(self) -> tuple[Connections, Connections, Connections]:
        return self._source.connections, self._target.connections, self._target.aside

    def work(self, now_s: float) -> None:
        """Fetches first: the source works while we produce."""
        self._now_s = now_s
        if self._topics_changed:
            self._cover_topics()
        for mailbox, groups in self._mail:
            for event in mailbox.take():
                if deliver(event, groups, now_s):
                    self._check_topics()
        self._source.work(now_s)
        self._target.work(now_s)
        self.transactions.request_joining()
        if now_s >= self._check_at_s:
            self._check_at_s = now_s + CHECK_EVERY_S
            for connections in self.sockets():
                connections.drop_silent(now_s)
            if self._source.out_of_room:
                relieve(self._partitions, source=self._source, target=self._target, now_s=now_s)

    def _check_topics(self) -> None:
        """Stop what belongs to a topic that was deleted or recreated."""
        source, target = self._source.connections.view, self._target.connections.view
        for raw in self._partitions.values():
            known = raw.beginning
            gone = topic_change(source, raw.partition.topic, known.source_topic_id)
            other = topic_change(target, raw.send.topic_partition[0], known.target_topic_id)
            if gone:
                rest_is_former = not raw.fetch.read_by_name and not other
                self._stop(raw, f"source {gone[0]}", gone[1], discard=not rest_is_former)
            elif other:
                self._stop(raw, f"target {other[0]}", other[1], discard=True)

    def _stop(self, raw: RawPartition, reason: str, temporary: bool, *, discard: bool) -> None:
        """Fetch no more, and have the holder give the partition up; discard what is not acknowledged,
        or send it. A partition that is finished already just has less to send."""
        if discard and self.transactions.used and unsettled(raw.window):
            self.transactions.fail(f"{raw.partition} was given up: {reason}")
        if not raw.fetch.finished:
            self._source.finish(raw.fetch)
            self._events.append(PartitionFailed(raw.partition, reason, temporary))
        if discard:
            raw.window.discard()

    def _fetch_failed(self, fetch: FetchSide, reason: str) -> None:
        self._stop(self._partitions[fetch.partition], reason, temporary=False, discard=False)

    def _target_lost(self, send: SendSide, reason: str) -> None:
        """Hold the partition until the policy for gaps has decided (`seek` or `finish`).

        In a transaction what was acknowledged is not committed yet: the next start finds the loss.
        """
        raw = self._partitions[send.partition]
        if self.transactions.used:
            self.transactions.fail(f"{raw.partition}: {reason}")
            self._stop(raw, reason, temporary=True, discard=True)
            return
        self._source.hold(raw.fetch)
        raw.window.discard()
        self._target.need_producer(send)
        position = raw.window.position
        self._events.append(GapFound(raw.partition, reason, position, next_offset=position))

    def close(self) -> None:
        for connections in self.sockets():
            connections.close()
        for metadata in self._metadata:
            metadata.close()
        for raw in self._partitions.values():
            raw.window.discard()


def deliver(event: MetadataEvent, groups: Sequence[Connections], now_s: float) -> bool:
    """Hand an event over: a connection to the first that waits for it, all else to each.

    True for a new view of the cluster.
    """
    expecting = [connections for connections in groups if connections.expects(event)]
    if isinstance(event, Connected | ConnectFailed):
        expecting = expecting[:1]
    return any([connections.on_metadata(event, now_s) for connections in expecting])


def error_of(raw: RawPartition, source: Connections, target: Connections, *, now_s: float) -> str:
    """Error of a partition, with the end that it concerns; "" if none is known.

    With nothing to send a connection to the target proves nothing: brokers close idle ones, and no
    response would clear the error. Then the metadata count, which are read every few seconds, unless
    the leader responds to requests for other partitions.
    """
    fetch, send = raw.fetch, raw.send
    source_error = source.error(*fetch.topic_partition) or fetch.error
    if source_error:
        return f"source: {source_error}"
    if raw.window.empty:
        leader = target.leader(*send.topic_partition).node_id
        target_error = "" if target.health.is_well(leader, now_s) else target.cluster_error
    else:
        target_error = target.error(*send.topic_partition) or send.error
    return f"target: {target_error}" if target_error else ""
