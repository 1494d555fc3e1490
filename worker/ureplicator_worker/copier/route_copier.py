"""All that a copier does for one route: partitions come, are copied, are let go.

    driver                 data loop (here)                     threads
    Add       ------->  STARTING  -- Start ----------------->  ownership: order (1) to (4)
                        COPYING   <- Begun ------------------
    Report    <-------     |  every interval: Commit ------->  ownership: one transaction
    Remove    ------->  DRAINING: fetch no more, send the rest, commit, Forget
    Released  <-------  gone      <- Forgotten --------------

A failing partition goes the same way, with Failed in place of Released: it never disturbs the others.
Everything here runs in the copier's loop, turn by turn; nothing blocks.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Mapping

from ureplicator_common.model import GapPolicy, OwnerEpoch, Partition, PartitionState, Route
from ureplicator_worker.copier.beginning import Commitment
from ureplicator_worker.copier.ownership import Ownership
from ureplicator_worker.copier.ownership_protocol import (
    Begun,
    ClusterError,
    Commit,
    CommitFailed,
    Committed,
    FencedOut,
    Forget,
    Forgotten,
    Locate,
    Located,
    NewProducer,
    OwnershipConfirmed,
    OwnershipCrashed,
    OwnershipEvent,
    OwnershipRefused,
    ProducerReady,
    ProofRequested,
    Start,
    StartFailed,
)
from ureplicator_worker.copier.raw.batches.send_window import Batch
from ureplicator_worker.copier.raw.net.buffers import BufferPool
from ureplicator_worker.copier.raw.net.connections import Connections
from ureplicator_worker.copier.raw.net.metadata import (
    ClusterMetadata,
    ClusterUnreachable,
    Connected,
    ConnectFailed,
    MetadataCrashed,
    MetadataEvent,
    PublishFailed,
    ViewChanged,
)
from ureplicator_worker.copier.raw.partition import PartitionCopy, Phase
from ureplicator_worker.copier.raw.source import Source
from ureplicator_worker.copier.raw.target import Target, latency_ms
from ureplicator_worker.copier.source_offsets import Publisher
from ureplicator_worker.lifeline.messages import (
    LATENCY_BOUNDS_MS,
    Failed,
    Message,
    PartitionReport,
    ProofRequest,
    ProofResponse,
    Released,
)

DRAIN_S = 10.0
"""How long a partition that is let go may take to send and commit the rest; then it goes as it is, after
what the ownership thread has under way: a commit and two more commands at most, `COMMAND_S` each."""
RENEW_S = 12 * 3600.0
"""Positions fade on the target after `offsets.retention.minutes` (7 days by default)."""
STALLED_CHECK_S = 0.5
COMMIT_RETRY_S = 0.2

logger = logging.getLogger(__name__)


class RouteCopier:
    def __init__(
        self,
        route: Route,
        *,
        source: ClusterMetadata,
        target: ClusterMetadata,
        ownership: Ownership,
        pool: BufferPool,
        group: str,
        commit_interval_s: float,
        say: Callable[[Message], None],
    ) -> None:
        self.route = route
        self.latency_counts = [0] * (len(LATENCY_BOUNDS_MS) + 1)
        self.latency_sum_ms = 0.0
        self._ownership = ownership
        self._commit_interval_s = commit_interval_s
        self._say = say
        self._starting: dict[Partition, OwnerEpoch] = {}
        self._unwanted: dict[Partition, Message] = {}
        self._copies: dict[Partition, PartitionCopy] = {}
        self._draining: dict[Partition, PartitionCopy] = {}
        self._trouble = ""
        self._uncommitted = ""
        self._committing = False
        self._commit_at_s = 0.0
        self._again_at_s = 0.0
        self._check_at_s = 0.0
        self._now_s = 0.0
        self._producer: tuple[int, int] | None = None
        self._producer_asked = False
        self._producer_used: set[tuple[str, int]] = set()
        self._publisher = Publisher(source, group=group)
        self.source = Source(
            source,
            pool=pool,
            failed=self._finish,
            out_of_range=self._out_of_range,
            filled=lambda copy: self.target.activate(copy),
        )
        self.target = Target(
            target,
            pool=pool,
            acknowledged=self._acknowledged,
            failed=self._fail,
            skipped=self._skipped,
            need_producer=self._need_producer,
        )

    @property
    def idle(self) -> bool:
        """Nothing is held any more."""
        return not self._starting and not self._copies and not self._unwanted

    def add(self, partitions: Mapping[Partition, OwnerEpoch]) -> None:
        new = {part: epoch for part, epoch in partitions.items() if part not in self._copies}
        self._starting.update(new)
        if new:
            self._ownership.put(Start(new))

    def remove(self, partition: Partition) -> None:
        copy = self._copies.get(partition)
        if copy is None:
            self._starting.pop(partition, None)
            self._forget(partition, Released((partition,)))
        elif copy.phase is Phase.COPYING:
            self._drain(copy)
        else:
            copy.failure = None

    def remove_all(self) -> None:
        for partition in [*self._starting, *self._copies]:
            self.remove(partition)

    def give_up(self) -> None:
        """Let everything go as it is: nobody will wait for us any longer."""
        for copy in self._copies.values():
            copy.phase = Phase.GONE
            copy.window.discard()
        self._copies.clear()
        self._draining.clear()
        self._starting.clear()
        self._unwanted.clear()

    def work(self, now_s: float) -> None:
        """Whatever can be sent now, fetches first: the source works while we produce."""
        self._now_s = now_s
        self.source.work(self._copies.values(), now_s)
        self.target.work(now_s)
        drained = self._drained_uncommitted() and now_s >= self._again_at_s
        if now_s >= self._commit_at_s or drained:
            self._commit()
        if now_s >= self._check_at_s:
            self._check_at_s = now_s + STALLED_CHECK_S
            self._check()

    def _check(self) -> None:
        """What is not worth looking at every turn."""
        self.source.connections.drop_silent(self._now_s)
        self.target.connections.drop_silent(self._now_s)
        self.target.detach_stalled(self._now_s)
        self._publisher.work(self._copies.values(), self._now_s)
        for copy in list(self._draining.values()):
            if self._now_s > copy.drain_until_s:
                logger.warning("%s: let go before all was committed", copy.partition)
                self._let_go(copy)

    def report(self) -> dict[Partition, PartitionReport]:
        reports = {
            partition: PartitionReport(
                PartitionState.ERROR if self._trouble else PartitionState.OFFLINE,
                self._trouble or "starting",
            )
            for partition in self._starting
        }
        for partition, copy in self._copies.items():
            state, reason = self._state(copy)
            reports[partition] = PartitionReport(
                state=state,
                reason=reason,
                position=copy.window.position,
                committed=copy.committed,
                records=copy.counters.records,
                bytes=copy.counters.bytes,
                lag=copy.lag,
                skipped=copy.counters.skipped,
                gaps=copy.counters.gaps,
            )
        return reports

    def _state(self, copy: PartitionCopy) -> tuple[PartitionState, str]:
        if copy.phase is Phase.DRAINING:
            return PartitionState.OFFLINE, "stopping"
        for end, trouble in (
            ("source", self.source.connections.trouble(*copy.source) or copy.source_trouble),
            ("target", self._target_trouble(copy)),
        ):
            if trouble:
                return PartitionState.ERROR, f"{end}: {trouble}"
        if self._trouble:  # it says which end
            return PartitionState.ERROR, self._trouble
        if copy.suspended:
            return PartitionState.ERROR, "fenced: waiting for the proof of ownership"
        if copy.answered:
            return PartitionState.ONLINE, ""
        return PartitionState.OFFLINE, "starting: waiting for the first answer"

    def _target_trouble(self, copy: PartitionCopy) -> str:
        """With nothing to send a connection proves nothing (brokers close idle ones, and no answer
        would ever clear its trouble): then the metadata, asked for every few seconds, tell."""
        if copy.window.empty:
            return self.target.connections.cluster_trouble
        return self.target.connections.trouble(*copy.target) or copy.target_trouble

    def on_source(self, event: MetadataEvent) -> None:
        self._on_metadata(self.source.connections, event)

    def on_target(self, event: MetadataEvent) -> None:
        self._on_metadata(self.target.connections, event)

    def _on_metadata(self, connections: Connections, event: MetadataEvent) -> None:
        match event:
            case ViewChanged():
                connections.on_view(event)
                self._check_topics()
            case ClusterUnreachable():
                connections.on_cluster_unreachable(event)
            case Connected():
                connections.on_connected(event)
            case ConnectFailed():
                connections.on_connect_failed(event, self._now_s)
            case PublishFailed():
                self._publisher.failed(event.reason)
            case MetadataCrashed(error):
                raise RuntimeError(f"{self.route}: a metadata thread crashed") from error

    def _check_topics(self) -> None:
        """A recreated topic is another topic: never mix the two.

        What was fetched by the former's id is of the former and may still be sent; what was fetched
        by name may be of either.
        """
        for copy in list(self._copies.values()):
            known, source, target = copy.beginning, self.source.connections, self.target.connections
            gone = source.doubt(copy.partition.topic, known.source_topic_id)
            other = target.doubt(copy.grant.target_topic, known.target_topic_id)
            if gone and not copy.read_by_name and not other:
                self._finish(copy, f"source {gone[0]}", gone[1])
            elif gone:
                self._fail(copy, f"source {gone[0]}", gone[1])
            elif other:
                self._fail(copy, f"target {other[0]}", other[1])

    def on_go(self, go: ProofResponse) -> None:
        self._ownership.put(go)

    def on_ownership(self, event: OwnershipEvent) -> None:
        match event:
            case ProofRequested(request, partitions):
                self._say(ProofRequest(request, partitions))
            case Begun():
                self._begin(event)
            case OwnershipConfirmed(partition):
                self._resume(partition)
            case OwnershipRefused(partition, reason):
                self._end(partition, f"let go: {reason}", temporary=True)
            case StartFailed(partition, reason, temporary):
                self._end(partition, reason, temporary)
            case Forgotten(partition):
                self._forgotten(partition)
            case Committed(positions):
                self._committed(positions)
            case CommitFailed(reason):
                self._commit_failed(reason)
            case FencedOut():
                self._suspend()
            case ClusterError(reason):
                self._trouble = reason
            case OwnershipCrashed(error):
                raise RuntimeError(f"{self.route}: the ownership thread crashed") from error
            case ProducerReady(producer):
                self._trouble = ""
                self._producer_ready((producer.id, producer.epoch))
            case Located(partition, offset):
                self._located(partition, offset)

    def _begin(self, event: Begun) -> None:
        self._trouble = ""
        if self._starting.pop(event.partition, None) is None:
            return
        copy = PartitionCopy.begin(event.partition, event.grant, event.beginning)
        taken_over = event.beginning.committed == event.beginning.position
        # Nobody knows how old a position is that was found: it is renewed with the next commit.
        copy.committed_at_s = -RENEW_S if taken_over else self._now_s
        self._copies[event.partition] = copy
        self._publisher.changed()
        self._follow()
        self._need_producer(copy)
        logger.info("%s: copying from %d", event.partition, copy.window.position)

    def _follow(self) -> None:
        copies = self._copies.values()
        self.source.connections.metadata.follow(frozenset(copy.partition.topic for copy in copies))
        self.target.connections.metadata.follow(
            frozenset(copy.grant.target_topic for copy in copies)
        )

    def _resume(self, partition: Partition) -> None:
        self._trouble = ""
        copy = self._copies.get(partition)
        if copy is not None:
            copy.suspended = False
            self.target.activate(copy)

    def _suspend(self) -> None:
        self._committing = False
        logger.warning("%s: fenced; waiting for the proof of ownership", self.route)
        for copy in self._copies.values():
            copy.suspended = True

    def _end(self, partition: Partition, reason: str, temporary: bool) -> None:
        """Ownership has let go already. What the driver asked back is Released, not Failed."""
        logger.warning("%s: %s", partition, reason)
        copy = self._copies.get(partition)
        if copy is not None:
            if copy.phase is Phase.COPYING:
                copy.failure = (reason, temporary)
            self._let_go(copy)
        elif self._starting.pop(partition, None) is not None:
            self._forget(partition, Failed(partition, reason, temporary))

    def _forget(self, partition: Partition, word: Message) -> None:
        """Say `word` to the driver once the ownership thread has let go, too: one word, the last."""
        if partition not in self._unwanted:
            self._ownership.put(Forget(partition))
        self._unwanted[partition] = word

    def _forgotten(self, partition: Partition) -> None:
        word = self._unwanted.pop(partition, None)
        if word is not None:
            self._say(word)

    def _fail(self, copy: PartitionCopy, reason: str, temporary: bool) -> None:
        """Give a partition up, after a last commit of what was acknowledged."""
        self._finish(copy, reason, temporary)
        copy.window.discard()

    def _finish(self, copy: PartitionCopy, reason: str, temporary: bool) -> None:
        """Give a partition up for what the source has next: what was fetched before is still sent.

        One that is let go anyway just has nothing more to fetch.
        """
        if copy.phase is Phase.COPYING:
            logger.warning("%s: failed: %s", copy.partition, reason)
            copy.failure = (reason, temporary)
            self._drain(copy)

    def _skipped(self, copy: PartitionCopy, reason: str) -> None:
        logger.error(
            "%s: record left out (abort_on_send_failure: false): %s", copy.partition, reason
        )

    def _drain(self, copy: PartitionCopy) -> None:
        copy.phase = Phase.DRAINING
        self._draining[copy.partition] = copy
        copy.drain_until_s = self._now_s + DRAIN_S

    def _drained_uncommitted(self) -> bool:
        """Whether a commit is all that a partition waits for; those that wait for nothing go."""
        waiting = False
        for copy in list(self._draining.values()):
            if copy.window.empty:
                if copy.committed == copy.window.position:
                    self._let_go(copy)
                else:
                    waiting = True
        return waiting

    def _let_go(self, copy: PartitionCopy) -> None:
        partition = copy.partition
        if copy.window.in_flight and copy.sent_via >= 0:
            self.target.connections.drop_if_open(
                copy.sent_via, "a partition was let go", now_s=self._now_s
            )
        copy.phase = Phase.GONE
        copy.window.discard()
        self.target.forget(copy)
        del self._copies[partition]
        self._draining.pop(partition, None)
        self._follow()
        failure = copy.failure
        self._forget(partition, Failed(partition, *failure) if failure else Released((partition,)))

    def _out_of_range(self, copy: PartitionCopy, reason: str) -> None:
        policy = copy.grant.settings.on_gap
        if policy is GapPolicy.STOP:
            self._finish(copy, f"{reason} (on_gap: stop)", False)
            return
        logger.error("%s: %s; going on at the %s", copy.partition, reason, policy)
        copy.fetch_after_s = float("inf")
        self._ownership.put(Locate(copy.partition, copy.grant))

    def _located(self, partition: Partition, offset: int) -> None:
        copy = self._copies.get(partition)
        if copy is not None and copy.phase is Phase.COPYING:
            copy.jump(offset)
            copy.fetch_after_s = 0.0

    def _acknowledged(self, copy: PartitionCopy, batch: Batch) -> None:
        copy.counters.records += batch.records
        copy.counters.bytes += len(batch.view)
        latency = max(0.0, latency_ms(batch))
        self.latency_counts[bisect_left(LATENCY_BOUNDS_MS, latency)] += 1
        self.latency_sum_ms += latency

    def _need_producer(self, copy: PartitionCopy) -> None:
        """A producer whose sequences this partition has not used; a new one if there is none."""
        copy.needs_producer = True
        if self._producer is not None and copy.target not in self._producer_used:
            self._producer_used.add(copy.target)
            copy.window.restart(*self._producer)
            copy.needs_producer = False
        elif not self._producer_asked:
            self._producer_asked = True
            self._ownership.put(NewProducer())

    def _producer_ready(self, producer: tuple[int, int]) -> None:
        self._producer_asked = False
        self._producer = producer
        self._producer_used.clear()
        for copy in self._copies.values():
            if copy.needs_producer and copy.window.in_flight == 0:
                self._need_producer(copy)

    def _commit(self) -> None:
        self._commit_at_s = self._now_s + self._commit_interval_s
        if self._committing:
            return
        due = {
            copy.partition: Commitment(
                copy.window.position, copy.window.leader_epoch, copy.grant, copy.beginning
            )
            for copy in self._copies.values()
            if not copy.suspended
            and (
                copy.window.position != copy.committed
                or self._now_s - copy.committed_at_s >= RENEW_S
            )
        }
        if due:
            self._committing = True
            self._ownership.put(Commit(due))

    def _commit_failed(self, reason: str) -> None:
        """Tried again soon; said once for each disturbance."""
        self._committing = False
        self._again_at_s = self._now_s + COMMIT_RETRY_S
        if not self._uncommitted:
            self._uncommitted = reason
            logger.warning("%s: positions not committed: %s", self.route, reason)

    def _committed(self, positions: Mapping[Partition, Commitment]) -> None:
        self._trouble = self._uncommitted = ""
        self._committing = False
        for partition, item in positions.items():
            copy = self._copies.get(partition)
            if copy is not None:
                copy.committed = item.position
                copy.committed_at_s = self._now_s
        if positions:
            self._publisher.changed()

    def close(self) -> None:
        for connections in (self.source.connections, self.target.connections):
            connections.close()
            connections.metadata.close()
        self._ownership.close()
