"""Commits of a route's positions: delivery decides when and which, the ownership thread commits them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.transactions.producers import Producer
from ureplicator_common.model import Partition, Route
from ureplicator_common.offset_map.segments import MapSegment
from ureplicator_worker.copier.at_least_once import AtLeastOnce
from ureplicator_worker.copier.commit_failures import CommitFailures
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
        self._maps = MappedSegments(lane)
        self._failures = failures

    def join(self, begun: Begun, now_s: float) -> None:
        beginning = begun.beginning
        found = beginning.committed == beginning.position
        self._begun[begun.partition] = begun
        self._delivery.join(begun.partition, position=beginning.position, found=found, now_s=now_s)

    def leave(self, partition: Partition, now_s: float) -> None:
        del self._begun[partition]
        self._maps.leave(partition)
        self._delivery.leave(partition)

    def offset(self, partition: Partition) -> int:
        """Committed offset; -1 for a partition that has not joined."""
        return self._delivery.offset(partition)

    def work(self, owned: Iterable[OwnedPartition], *, drained: bool, now_s: float) -> None:
        if not self._delivery.is_due(now_s, drained=drained):
            return
        progress = self._lane.progress(
            held.partition for held in owned if held.state in COMMITTABLE
        )
        due = self._delivery.seal(progress, now_s)
        if due:
            commitments = {
                partition: commitment(self._begun[partition], due[partition], self._maps)
                for partition in due
            }
            self._ownership.put(Commit(commitments, self._delivery.number))

    def on_committed(self, event: Committed, now_s: float) -> None:
        """Number 0: first positions, which the ownership thread commits before copying begins."""
        self._failures.succeeded()
        if event.number:
            self._maps.committed(event.positions)
            offsets = ((part, item.position) for part, item in event.positions.items())
            self._delivery.committed(event.number, offsets, now_s)
            self._delivery.complete_map(unmapped(event.positions), now_s)

    def on_failed(self, event: CommitFailed, now_s: float) -> None:
        """The commit is retried soon."""
        self._aborted(event.number, now_s)
        self._failures.failed(event.reason, now_s, waited_s=event.waited_s)

    def error(self, now_s: float) -> str:
        """Reason if no commit has succeeded for too long; "" otherwise."""
        return self._failures.error(now_s)

    def on_fenced(self, event: FencedOut, now_s: float) -> str:
        """Text of what happened, for the log."""
        self._aborted(event.number, now_s)
        return f"fenced ({event.reason})"

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


class MappedSegments:
    """Segments for the offset map, from the last one of each partition that was committed."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._from: dict[Partition, int] = {}

    def leave(self, partition: Partition) -> None:
        self._from.pop(partition, None)

    def committed(self, positions: Mapping[Partition, Commitment]) -> None:
        for partition, item in positions.items():
            if item.segments:
                self._from[partition] = item.segments[-1].target

    def newest(self, begun: Begun) -> tuple[MapSegment, ...]:
        """None for a route without a map."""
        if not begun.grant.settings.offset_map:
            return ()
        return self._lane.map_segments(begun.partition, since=self._from.get(begun.partition, 0))


def unmapped(positions: Mapping[Partition, Commitment]) -> list[Partition]:
    """Partitions of whose positions the offset map lacks a part."""
    return [partition for partition, item in positions.items() if item.unmapped]


def commitment(begun: Begun, progress: Progress, maps: MappedSegments) -> Commitment:
    end, markers = progress.target_end, progress.markers
    if end < 0:
        end, markers = begun.beginning.target_end, begun.beginning.markers
    return Commitment(
        progress.next_offset,
        progress.leader_epoch,
        begun.grant,
        begun.beginning,
        end,
        maps.newest(begun),
        markers,
    )
