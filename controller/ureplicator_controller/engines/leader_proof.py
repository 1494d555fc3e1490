"""Proof of leadership for engines that act outside the control loop, on Kafka.

A write to ZooKeeper is fenced by the leader's epoch; a commit to Kafka is not. So an engine reads the
fleet again, after a `sync`, and relies on it only if this process led with the same epoch before and
after the read.
"""

from __future__ import annotations

from collections.abc import Mapping

from ureplicator_common.model import Partition, Route
from ureplicator_controller.core.positions.orphaned import OrphanedPosition, orphaned_positions
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.engines.leadership import Leadership
from ureplicator_controller.engines.observer import Observer


class LeaderProof:
    """Leadership of this process, and the fleet as proven while it lasts. For any thread."""

    def __init__(self, *, leadership: Leadership, observer: Observer) -> None:
        self._leadership = leadership
        self._observer = observer

    def leads(self) -> bool:
        return self._leadership.epoch() is not None

    def latest(self) -> Snapshot | None:
        """The last snapshot of the control loop, without proof; None if this process does not lead."""
        return self._observer.latest if self.leads() else None

    def latest_of_epoch(self) -> tuple[int, Snapshot] | None:
        """The epoch, and the last snapshot made in it; None if this process does not lead."""
        epoch, seen = self._leadership.epoch(), self._observer.latest
        if epoch is None or seen is None or seen.epoch != epoch:
            return None
        return epoch, seen

    def proven(self) -> Snapshot | None:
        """The fleet, read after a `sync` while this process led; None otherwise. Raises Unavailable."""
        epoch = self._leadership.epoch()
        if epoch is None:
            return None
        seen = self._observer.fresh()
        return seen if self._leadership.epoch() == epoch == seen.epoch else None

    def orphaned(self, route: Route) -> Mapping[Partition, OrphanedPosition]:
        """Proven partitions without an owner; empty without proof. Raises Unavailable."""
        seen = self.proven()
        return orphaned_positions(seen, route) if seen is not None else {}
