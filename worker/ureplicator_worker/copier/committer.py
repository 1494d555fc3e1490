"""Commits of a route's positions: delivery decides when and which, the ownership thread commits them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from ureplicator_common.clock import SystemClock
from ureplicator_common.model import Partition, Route
from ureplicator_worker.copier.delivery import AtLeastOnce
from ureplicator_worker.copier.lane import Lane, Progress
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

COMMITS_WAIT_S = 30.0
"""Partitions are copied while commits wait for a coordinator that moves, for some seconds on a healthy
cluster. Beyond this time, too much would be copied again after a failure: operators must know."""

CLOCK = SystemClock()

COMMITTABLE = (CopyState.COPYING, CopyState.DRAINING)
"""Suspended partitions wait for the proof."""

logger = logging.getLogger(__name__)


class Committer:
    """`wall_ms`: the time of day, shown to operators."""

    def __init__(
        self,
        route: Route,
        *,
        delivery: AtLeastOnce,
        lane: Lane,
        ownership: Ownership,
        wall_ms: Callable[[], int] = CLOCK.wall_ms,
    ) -> None:
        self._route = route
        self._delivery = delivery
        self._lane = lane
        self._ownership = ownership
        self._begun: dict[Partition, Begun] = {}
        self._wall_ms = wall_ms
        self._failing_since_s: float | None = None
        self._error = ""

    def join(self, begun: Begun, now_s: float) -> None:
        beginning = begun.beginning
        found = beginning.committed == beginning.position
        self._begun[begun.partition] = begun
        self._delivery.join(begun.partition, position=beginning.position, found=found, now_s=now_s)

    def leave(self, partition: Partition) -> None:
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
                partition: self._commitment(partition, due[partition]) for partition in due
            }
            self._ownership.put(Commit(commitments, self._delivery.number))

    def _commitment(self, partition: Partition, progress: Progress) -> Commitment:
        begun = self._begun[partition]
        end = progress.target_end
        return Commitment(
            progress.next_offset,
            progress.leader_epoch,
            begun.grant,
            begun.beginning,
            begun.beginning.target_end if end < 0 else end,
        )

    def on_committed(self, event: Committed, now_s: float) -> None:
        """Number 0: first positions, which the ownership thread commits before copying begins."""
        self._failing_since_s = None
        if event.number:
            offsets = ((part, item.position) for part, item in event.positions.items())
            self._delivery.committed(event.number, offsets, now_s)

    def on_failed(self, event: CommitFailed, now_s: float) -> None:
        """Retried soon; logged once per disturbance."""
        self._aborted(event.number, now_s)
        if self._failing_since_s is None:
            self._failing_since_s = now_s
            since = time.strftime("%H:%M:%S", time.gmtime(self._wall_ms() / 1_000))
            reason = event.reason.removeprefix("target: ")
            self._error = f"target: commits wait for the coordinator since {since} UTC: {reason}"
            logger.warning("%s: positions not committed: %s", self._route, event.reason)

    def error(self, now_s: float) -> str:
        """Reason if no commit has succeeded for too long; "" otherwise."""
        since_s = self._failing_since_s
        return self._error if since_s is not None and now_s - since_s > COMMITS_WAIT_S else ""

    def on_fenced(self, event: FencedOut, now_s: float) -> None:
        self._aborted(event.number, now_s)

    def _aborted(self, number: int, now_s: float) -> None:
        if number:
            self._delivery.aborted(number, now_s)
