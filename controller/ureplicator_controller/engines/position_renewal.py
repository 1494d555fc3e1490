"""Renewal of positions: keeps the committed offsets of orphaned partitions from expiring.

Brokers delete the offsets of a group that commits nothing for `offsets.retention.minutes`. So the leader
commits the stored positions of partitions without an owner once more, unchanged, under a transactional
id of its own. It follows the same order as a copier (`ureplicator_common.kafka.positions`), since it is
an owner for a moment: initialise the id, then prove that it still leads and that the partition has no
owner, fence every id that could still commit it, then read, then commit. Every copier fences this id
when it starts (`ureplicator_worker.engines.ownership_proof`), so a leader that freezes in between and
resumes when the partition has an owner cannot commit.

At the same times it fences the holders that deleted topics have left behind, where all of them are gone, and
removes these lists (`core.positions.remains`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from ureplicator_common.coordination import (
    Conflict,
    Coordination,
    Delete,
    OutcomeUnknown,
    Unavailable,
)
from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.positions import CommitRefused, PositionStore, TargetPartition
from ureplicator_common.kafka.transactions.coordinator_requests import Fenced
from ureplicator_common.kafka.transactions.position_rows import readable, unreadable
from ureplicator_common.model import RENEWER, Partition, Route, position_group, transactional_id
from ureplicator_common.znodes.paths import Paths
from ureplicator_controller.core.positions.orphaned import OrphanedPosition
from ureplicator_controller.core.positions.remains import removable_remains
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.engines.fenced_writer import fenced
from ureplicator_controller.engines.periodic_thread import PeriodicThread

RETRY_INTERVAL_S = 3_600.0
INTERVAL_S = 12 * 3_600.0
STOP_TIMEOUT_S = 20.0

log = logging.getLogger(__name__)

ProveOrphaned = Callable[[Route], Mapping[Partition, OrphanedPosition]]
"""Partitions without an owner, read after a `sync` while this process leads; empty if it does not lead
any more. Raises Unavailable."""


@dataclass(frozen=True, slots=True)
class Renewal:
    """The position store of one route, as the leader uses it."""

    route: Route
    store: PositionStore
    client: ClusterClient


def open_renewal(*, fleet: str, route: Route, client: ClusterClient) -> Renewal:
    store = PositionStore(
        client,
        group=position_group(fleet=fleet, route=route),
        transactional_id=transactional_id(fleet=fleet, route=route, worker=RENEWER, slot=0),
    )
    return Renewal(route, store, client)


def renew(renewal: Renewal, orphaned: ProveOrphaned) -> int:
    """Commit the positions of a route again; returns their number.

    Raises ClusterUnavailable, Fenced, and Unavailable from the proof.
    """
    refused: set[TargetPartition] = set()
    while orphaned(renewal.route):
        renewal.store.initialise()
        found = orphaned(renewal.route)
        wanted = _by_target(found, without=refused)
        if not wanted:
            return 0
        renewal.store.fence(sorted({id for orphan in found.values() for id in orphan.fence}))
        shown = renewal.store.read(wanted)
        hidden = {target: str(error) for target, error in unreadable(shown).items()}
        if hidden:
            log.warning("%s: positions not shown, not renewed: %s", renewal.route, hidden)
        stored = readable(shown)
        kept = {target: position for target, position in stored.items() if position.offset >= 0}
        try:
            if kept:
                renewal.store.commit(kept)
            return len(kept)
        except CommitRefused as error:
            log.warning(
                "%s: positions refused, not renewed: %s", renewal.route, dict(error.refused)
            )
            refused |= error.refused.keys()
    return 0


def _by_target(
    partitions: Mapping[Partition, OrphanedPosition], *, without: Collection[TargetPartition]
) -> dict[str, list[int]]:
    """Target topic -> partitions, without those that the target refused: they must not block others."""
    wanted: dict[str, list[int]] = {}
    for partition, orphaned in partitions.items():
        if (orphaned.target_topic, partition.number) not in without:
            wanted.setdefault(orphaned.target_topic, []).append(partition.number)
    return wanted


class RemainsRemover:
    """Removes the remains of deleted topics, once their holders are fenced.

    `seen`: the last snapshot of the leader, to find out without a proof that there are none.
    """

    def __init__(
        self,
        *,
        coordination: Coordination,
        paths: Paths,
        seen: Callable[[], Snapshot | None],
        proof: Callable[[], Snapshot | None],
    ) -> None:
        self._coordination = coordination
        self._paths = paths
        self._seen = seen
        self._proof = proof

    def remove(self, renewal: Renewal) -> int:
        """Number of topics. Raises ClusterUnavailable, Unavailable, Conflict, OutcomeUnknown."""
        seen = self._seen()
        if seen is None or not removable_remains(seen, renewal.route):
            return 0
        proven = self._proof()
        found = removable_remains(proven, renewal.route) if proven is not None else {}
        if proven is None or not found:
            return 0
        renewal.store.fence(sorted({id for remains in found.values() for id in remains.fence}))
        for key, remains in found.items():
            removed = Delete(self._paths.ideal_topic(key), remains.version)
            self._coordination.transact(fenced([removed], paths=self._paths, epoch=proven.epoch))
        return len(found)


class PositionRenewer:
    """Thread that renews the positions of every route twice a day while this process leads."""

    def __init__(
        self,
        *,
        renewals: Mapping[Route, Renewal],
        orphaned: ProveOrphaned,
        remains: RemainsRemover,
        leads: Callable[[], bool],
    ) -> None:
        self._renewals = renewals
        self._orphaned = orphaned
        self._remains = remains
        self._leads = leads
        self._thread = PeriodicThread(
            self.run_once, name="position renewal", first_after_s=RETRY_INTERVAL_S
        )

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._thread.stop(STOP_TIMEOUT_S)
        for renewal in self._renewals.values():
            renewal.client.close()

    def run_once(self) -> float:
        """Renew every route if this process leads; returns the wait until the next run. A failure is
        retried after an hour: positions expire after days."""
        renewed = [self._renew(renewal) for renewal in self._renewals.values() if self._leads()]
        return INTERVAL_S if all(renewed) else RETRY_INTERVAL_S

    def _renew(self, renewal: Renewal) -> bool:
        try:
            count = renew(renewal, self._orphaned)
            removed = self._remains.remove(renewal)
        except (ClusterUnavailable, Fenced, Unavailable) as error:
            log.warning("%s: positions not renewed: %s", renewal.route, error)
            return False
        except (Conflict, OutcomeUnknown) as error:
            log.info("%s: remains of topics not removed yet: %s", renewal.route, error)
            return False
        except Exception:  # without this thread positions would expire unnoticed
            log.exception("%s: renewing positions failed", renewal.route)
            return False
        if count:
            log.info("%s: %d positions of orphaned partitions renewed", renewal.route, count)
        if removed:
            log.info("%s: former holders of %d deleted topics fenced", renewal.route, removed)
        return True
