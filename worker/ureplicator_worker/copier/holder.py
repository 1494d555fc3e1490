"""Holder: the partitions of a route that this copier owns, and their states.

    driver                 holder                              ownership thread
    Add       ------->  STARTING  -- Add ------------------->  order (1) to (4) of `kafka.positions`
                        COPYING   <- Begun ------------------
    Report    <-------     |  every interval: Commit ------->  one transaction
    Remove    ------->  DRAINING: lane.finish, then a last Commit
                        RELEASING: lane.drop, Forget ------->
    Released  <-------             <- Forgotten -------------

A failing partition goes the same way, with Failed in place of Released: it never disturbs the others.
The states and their transitions are `lifecycle`'s. The holder is their only writer. It requests the
proof from the driver, hands partitions to the lane and takes them back; it knows no batch and no socket.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, assert_never

from ureplicator_common.model import (
    GapPolicy,
    OwnerEpoch,
    Partition,
    Route,
    RouteSettings,
)
from ureplicator_worker.copier.commits import Commits
from ureplicator_worker.copier.committer import COMMITTABLE
from ureplicator_worker.copier.gaps import Gaps
from ureplicator_worker.copier.lane import Lane
from ureplicator_worker.copier.lifecycle import (
    CONFIRMED,
    DRAINED,
    FENCED,
    IN_LANE,
    CopyState,
    OwnedPartition,
    invalid,
    move,
)
from ureplicator_worker.copier.messages import (
    TARGET,
    Begun,
    ClusterError,
    CommitFailed,
    Committed,
    ConfirmationNeeded,
    ControlRecordsWritten,
    FencedOut,
    Forget,
    Forgotten,
    GapFound,
    Join,
    Joined,
    LaneEvent,
    Located,
    NewProducer,
    OwnershipConfirmed,
    OwnershipCrashed,
    OwnershipEvent,
    ProducerForgotten,
    ProducerReady,
    RecordSkipped,
    TransactionBegun,
    TransactionFailed,
    WriteControlRecords,
)
from ureplicator_worker.copier.ownership.thread import Ownership
from ureplicator_worker.copier.reporting import every, partition_reports
from ureplicator_worker.lifeline.messages import (
    Add,
    Failed,
    Grant,
    Message,
    PartitionReport,
    ProofRequest,
    PublishedSettings,
    Released,
)

DRAIN_S = 10.0
"""Time for sending and committing the rest of a removed partition. After that it is released as it is, once
the ownership thread has finished its current commands: a commit and two more at most, `COMMAND_S` each."""

PRODUCER_FORGOTTEN = "target: its coordinator has forgotten the producer, which is replaced"

logger = logging.getLogger(__name__)


class Holder:
    """`send` delivers a message to the driver. `now_s`: set with each turn, before its first event."""

    def __init__(
        self,
        route: Route,
        *,
        lane: Lane,
        commits: Commits,
        ownership: Ownership,
        send: Callable[[Message], None],
        gaps: Gaps,
    ) -> None:
        self.owned: dict[Partition, OwnedPartition] = {}
        self._route = route
        self._lane = lane
        self.commits = commits
        self._ownership = ownership
        self._send = send
        self._gaps = gaps
        self._draining: dict[Partition, None] = {}
        self._cluster_errors: dict[str, str] = {}
        self._settings: PublishedSettings | None = None
        self.now_s = 0.0

    def add(self, partitions: Mapping[Partition, OwnerEpoch]) -> None:
        new = {part: epoch for part, epoch in partitions.items() if part not in self.owned}
        for partition in partitions:
            owned = self.owned.setdefault(partition, OwnedPartition(partition))
            if owned.state is CopyState.RELEASING:
                raise invalid(owned, "added before it was released")
        if new:
            self._ownership.put(Add(new))

    def remove(self, partition: Partition) -> None:
        owned = self.owned.get(partition)
        if owned is None:
            self.owned[partition] = OwnedPartition(partition, CopyState.RELEASING)
            self._ownership.put(Forget(partition))
            return
        self.owned[partition] = replace(owned, failure=None)
        if owned.state is CopyState.STARTING:
            self._release(partition, "removed")
        elif owned.state in DRAINED:
            self._drain(partition, "removed")

    def change_settings(self, changed: PublishedSettings) -> None:
        """Settings of the route, for the partitions that run and for those whose grant is older.

        A partition whose delivery or handler changes is drained and begins again.
        """
        if self._settings is not None and changed.version <= self._settings.version:
            return
        self._settings = changed
        for partition, owned in self.owned.items():
            if owned.grant is not None:
                former, grant = owned.grant, with_newest(owned.grant, changed)
                self.owned[partition] = replace(owned, grant=grant)
                if owned.state in IN_LANE:
                    self._lane.change_settings(partition, grant.settings)
                change = restart_reason(former.settings, grant.settings, partition.topic)
                if change:
                    self._fail(Failed(partition, change, temporary=True))
        logger.info("%s: settings of version %d apply", self._route, changed.version)

    def give_up(self) -> None:
        """Drop everything without a last commit: the driver waits no longer."""
        for partition, owned in self.owned.items():
            if owned.state in IN_LANE:
                self.commits.leave(partition, self.now_s)
                self._lane.drop(partition)
        self.owned.clear()
        self._draining.clear()

    def work(self) -> None:
        """End a turn: release what is drained, commit what is due."""
        self._gaps.work(self.now_s)
        waiting = bool(self._draining) and self._release_drained()
        self.commits.work(self.owned.values(), drained=waiting, now_s=self.now_s)

    def report(
        self, is_due: Callable[[Partition], bool] = every
    ) -> dict[Partition, PartitionReport]:
        return partition_reports(
            [owned for partition, owned in self.owned.items() if is_due(partition)],
            lane=self._lane,
            committed=self.commits.offset,
            cluster_error=next(iter(self._cluster_errors.values()), ""),
            commit_error=self.commits.error(self.now_s),
        )

    def on_lane(self, event: LaneEvent) -> None:
        match event:
            case Failed():
                self._fail(event)
            case GapFound():
                self._gap(event)
            case RecordSkipped():
                self._gaps.skipped(event, self.now_s)
            case NewProducer() | WriteControlRecords() | Join():
                self._ownership.put(event)
            case ConfirmationNeeded(partition):
                self.commits.confirm(partition)
            case TransactionFailed(reason):
                self.commits.abort(reason, self.now_s)
            case _:
                assert_never(event)

    def on_ownership(self, event: OwnershipEvent) -> None:
        match event:
            case ProofRequest():
                self._send(event)
            case Begun():
                self._begin(event)
            case OwnershipConfirmed(partition, stored):
                self._cluster_errors.pop(TARGET, None)
                self.commits.on_confirmed(partition, stored, self.now_s)
                self._resume(partition, "proof granted")
            case Failed():
                self._lose(event)
            case Forgotten(partition):
                self._forgotten(partition)
            case Located(job, offset):
                if state_of(self.owned, job.partition) in DRAINED:
                    self._gaps.located(job.partition, offset)
            case ProducerReady(producer):
                self._cluster_errors.pop(TARGET, None)
                self._lane.producer(producer.id, producer.epoch)
            case ControlRecordsWritten():
                self._lane.transactions.wrote_control_records(event, self.now_s)
            case ProducerForgotten(partition):
                self._fail(Failed(partition, PRODUCER_FORGOTTEN, temporary=True))
            case Committed():
                self._cluster_errors.pop(TARGET, None)
                self.commits.on_committed(event, self.now_s)
                for partition in on_trial(self.owned, event.positions):
                    self._resume(partition, "position taken")
            case Joined():
                self._lane.transactions.joined(event, self.now_s)
            case TransactionBegun(producer):
                self.commits.on_begun(producer, self.now_s)
            case CommitFailed():
                self.commits.on_failed(event, self.now_s)
            case FencedOut():
                self._suspend(self.commits.on_fenced(event, self.now_s))
            case ClusterError(reason, end):
                self._cluster_errors[end] = reason
            case OwnershipCrashed(error):
                raise RuntimeError(f"{self._route}: the ownership thread crashed") from error
            case _:
                assert_never(event)

    def _begin(self, begun: Begun) -> None:
        """Hand the partition to the lane unless it was removed, or began in a delivery that has changed."""
        self._cluster_errors.clear()
        partition = begun.partition
        if state_of(self.owned, partition) is not CopyState.STARTING:
            return
        grant = with_newest(begun.grant, self._settings)
        change = delivery_change(begun.grant.settings, grant.settings, partition.topic)
        if change:
            changed = Failed(partition, change, temporary=True)
            self._release(partition, changed.reason, failure=changed)
            return
        self._lane.begin(partition, grant, begun.beginning)
        self.commits.join(begun, self.now_s)
        position = f"from {begun.beginning.position}"
        self._move(partition, CopyState.COPYING, position, grant=grant)
        self._gaps.begin(partition, begun.beginning)
        if begun.trial:
            self._lane.suspend(partition)
            self._move(partition, CopyState.SUSPENDED, begun.trial, trial=begun.trial)
            return
        logger.info("%s: copying %s", partition, position)

    def _resume(self, partition: Partition, why: str) -> None:
        """A suspended partition goes on, from memory where data needs no ownership."""
        state = state_of(self.owned, partition)
        if state is not None and state in CONFIRMED:
            self._lane.resume(partition)
            self._move(partition, CONFIRMED[state], why, trial="")

    def _suspend(self, why: str) -> None:
        logger.warning("%s: %s; waiting for the proof of ownership", self._route, why)
        for partition, owned in self.owned.items():
            if owned.state in FENCED:
                self._lane.suspend(partition)
                self._move(partition, FENCED[owned.state], "fenced")

    def _lose(self, failure: Failed) -> None:
        """The ownership thread has forgotten it already. What was removed is Released, not Failed."""
        partition = failure.partition
        logger.warning("%s: %s", partition, failure.reason)
        state = state_of(self.owned, partition)
        if state is CopyState.STARTING or state in DRAINED:
            self._release(partition, failure.reason, failure=failure)
        elif state in IN_LANE:
            self._release(partition, failure.reason)

    def _gap(self, gap: GapFound) -> None:
        """The policy decides where copying goes on after a gap, or that it does not."""
        partition, reason = gap.partition, gap.reason
        owned = self.owned.get(partition)
        if owned is None or owned.grant is None or owned.state not in DRAINED:
            return
        policy = owned.grant.settings.on_gap
        if policy is GapPolicy.STOP:
            self._fail(Failed(partition, f"{reason} (on_gap: stop)", temporary=False))
            return
        self._gaps.pass_over(gap, owned.grant)

    def _fail(self, failure: Failed) -> None:
        """Give a partition up after a last commit; one that is being removed just ends."""
        partition, reason = failure.partition, failure.reason
        if state_of(self.owned, partition) in DRAINED:
            logger.warning("%s: failed: %s", partition, reason)
            self._drain(partition, reason, failure=failure)

    def _drain(self, partition: Partition, reason: str, **change: Any) -> None:
        self._lane.finish(partition)
        self._draining[partition] = None
        to, until_s = DRAINED[self.owned[partition].state], self.now_s + DRAIN_S
        self._move(partition, to, reason, drain_until_s=until_s, **change)

    def _release_drained(self) -> bool:
        """Release what is drained. True if a partition waits for nothing but a commit."""
        waiting = False
        for partition, progress in self._lane.progress(self._draining).items():
            if progress.exact and self.commits.is_stored(partition, progress):
                self._release(partition, "drained and committed")
            elif self.now_s > self.owned[partition].drain_until_s:
                logger.warning("%s: released before all was committed", partition)
                self._release(partition, f"not drained in {DRAIN_S:.0f} s")
            else:
                committable = self.owned[partition].state in COMMITTABLE
                waiting |= progress.exact and committable
        return waiting

    def _release(self, partition: Partition, reason: str, **change: Any) -> None:
        if self.owned[partition].state in IN_LANE:
            self.commits.leave(partition, self.now_s)
            self._lane.drop(partition)
            self._gaps.leave(partition)
            self._draining.pop(partition, None)
        self._move(partition, CopyState.RELEASING, reason, **change)
        self._ownership.put(Forget(partition))

    def _forgotten(self, partition: Partition) -> None:
        """The last message about the partition, once the ownership thread has forgotten it, too."""
        owned = self.owned.pop(partition, None)
        if owned is not None:
            self._send(owned.failure or Released((partition,)))

    def _move(self, partition: Partition, to: CopyState, reason: str, **change: Any) -> None:
        owned = self.owned[partition]
        self.owned[partition] = move(owned, to, reason, now_s=self.now_s, **change)


def state_of(owned: Mapping[Partition, OwnedPartition], partition: Partition) -> CopyState | None:
    found = owned.get(partition)
    return None if found is None else found.state


def on_trial(
    owned: Mapping[Partition, OwnedPartition], partitions: Iterable[Partition]
) -> list[Partition]:
    return [part for part in partitions if part in owned and owned[part].trial]


def restart_reason(former: RouteSettings, settings: RouteSettings, topic: str) -> str:
    """Reason for which a partition of the topic begins again under the new settings; "" for none."""
    change = delivery_change(former, settings, topic)
    if change:
        return change
    if settings.offset_map is not former.offset_map:
        return f"the offset map is switched {'on' if settings.offset_map else 'off'}"
    if settings.transform(topic) != former.transform(topic):
        return handler_change(settings, topic)
    return ""


def delivery_change(former: RouteSettings, settings: RouteSettings, topic: str) -> str:
    """Reason for which a partition of the topic begins again where its position is committed in another
    way; "" for none."""
    if settings.delivery is not former.delivery:
        return f"delivery changes to {settings.delivery}"
    if settings.is_transactional(topic) is not former.is_transactional(topic):
        return handler_change(settings, topic)
    return ""


def handler_change(settings: RouteSettings, topic: str) -> str:
    transform = settings.transform(topic)
    return f"handler changes to {transform.name if transform else 'none'}"


def with_newest(grant: Grant, published: PublishedSettings | None) -> Grant:
    """The grant with the newer settings of both."""
    if published is None or published.version <= grant.settings_version:
        return grant
    return replace(grant, settings=published.settings, settings_version=published.version)
