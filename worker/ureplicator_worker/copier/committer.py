"""Commits of a route's positions: delivery decides when and which, the ownership thread commits them."""

from __future__ import annotations

from collections.abc import Iterable

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.positions import Producer
from ureplicator_common.model import Partition, Route
from ureplicator_worker.copier.commit_failures import CommitFailures
from ureplicator_worker.copier.delivery import AtLeastOnce
from ureplicator_worker.copier.lane import Lane, PartitionsJoining, Progress
from ureplicator_worker.copier.lifecycle import CopyState, OwnedPartition
from ureplicator_worker.copier.ownership.protocol import (
    Begun,
    Commit,
    CommitFailed,
    Committed,
    FencedOut,
)
from ureplicator_worker.copier.ownership.thread import Ownership
from ureplicator_worker.copier.position_values import Commitment

COMMITTABLE = (CopyState.COPYING, CopyState.DRAINING)
"""Suspended partitions wait for the proof."""


class Committer:
    def __init__(
        self,
        route: Route,
        *,
        delivery: AtLeastOnce,
        lane: Lane,
        ownership: Ownership,
        failures: CommitFailures,
    ) -> None:
        self._route = route
        self._delivery = delivery
        self._lane = lane
        self._ownership = ownership
        self._begun: dict[Partition, Begun] = {}
        self._failures = failures

    def join(self, begun: Begun, now_s: float) -> None:
        beginning = begun.beginning
        found = beginning.committed == beginning.position
        self._begun[begun.partition] = begun
        self._delivery.join(begun.partition, position=beginning.position, found=found, now_s=now_s)

    def leave(self, partition: Partition, now_s: float) -> None:
        del self._begun[partition]
        self._delivery.leave(partition)

    def offset(self, partition: Partition) -> int:
        """Committed offset; -1 for a partition that has not joined."""
        return self._delivery.offset(partition)

    def work(self, owned: Iterable[OwnedPartition], *, drained: bool, now_s: float) -> None:
        if not self._delivery.is_due(now_s, drained=drained):
            return
        progress = self._lane.progress(
            each.partition for each in owned if each.state in COMMITTABLE
        )
        due = self._delivery.seal(progress, now_s)
        if due:
            commitments = {
                partition: commitment(self._begun[partition], due[partition]) for partition in due
            }
            self._ownership.put(Commit(commitments, self._delivery.number))

    def on_committed(self, event: Committed, now_s: float) -> None:
        """Number 0: first positions, which the ownership thread commits before copying begins."""
        self._failures.succeeded()
        if event.number:
            offsets = ((part, item.position) for part, item in event.positions.items())
            self._delivery.committed(event.number, offsets, now_s)

    def on_failed(self, event: CommitFailed, now_s: float) -> None:
        """Retried soon."""
        self._aborted(event.number, now_s)
        self._failures.failed(event.reason, now_s, waited_s=event.waited_s)

    def error(self, now_s: float) -> str:
        """Reason if no commit has succeeded for too long; "" otherwise."""
        return self._failures.error(now_s)

    def on_fenced(self, event: FencedOut, now_s: float) -> None:
        self._aborted(event.number, now_s)

    def _aborted(self, number: int, now_s: float) -> None:
        if number:
            self._delivery.aborted(number, now_s)

    def on_confirmed(self, partition: Partition, stored: Position, now_s: float) -> None:
        """Copying went on meanwhile: data needs no ownership here."""

    def on_begun(self, producer: Producer, now_s: float) -> None:
        """The transactions of the positions begin with each commit."""

    def on_joining(self, event: PartitionsJoining) -> None:
        raise AssertionError(f"{event} without a transaction")

    def abort(self, reason: str, now_s: float) -> None:
        raise AssertionError(f"no transaction to abort: {reason}")


def commitment(begun: Begun, progress: Progress) -> Commitment:
    end = progress.target_end
    return Commitment(
        progress.next_offset,
        progress.leader_epoch,
        begun.grant,
        begun.beginning,
        begun.beginning.target_end if end < 0 else end,
    )
