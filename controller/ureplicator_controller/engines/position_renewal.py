"""The leader keeps the positions of partitions that nobody owns from fading.

It commits what is stored once more, unchanged, under a transactional id of its own, and goes
through the same order as a copier (`ureplicator_common.kafka.positions`), since it is an owner for
a moment: initialise the id, then prove that it still leads and that nobody owns the partition,
fence who could still commit it, then read, then commit. Every copier fences this id when it starts
(`ureplicator_worker.engines.ownership_proof`), so a leader that freezes in between and thaws when the
partition has an owner cannot commit.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from ureplicator_common.coordination import Unavailable
from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.positions import CommitRefused, Fenced, PositionStore, TargetPartition
from ureplicator_common.model import (
    RENEWER,
    Partition,
    Route,
    position_group,
    transactional_id,
)
from ureplicator_controller.core.positions.orphaned import OrphanedPosition

FIRST_AFTER_S = 3_600.0
EVERY_S = 12 * 3_600.0

logger = logging.getLogger(__name__)

Proof = Callable[[Route], Mapping[Partition, OrphanedPosition]]
"""Partitions without owner, read after a `sync` while this process leads; empty if it does not lead
any more. Raises Unavailable."""


@dataclass(frozen=True, slots=True)
class Renewal:
    """One route's store, as the leader uses it."""

    route: Route
    store: PositionStore
    client: ClusterClient


def open_renewal(*, fleet: str, route: Route, bootstrap: str) -> Renewal:
    client = ClusterClient(bootstrap)
    store = PositionStore(
        client,
        group=position_group(fleet=fleet, route=route),
        transactional_id=transactional_id(fleet=fleet, route=route, worker=RENEWER, slot=0),
    )
    return Renewal(route, store, client)


def renew(renewal: Renewal, unowned: Proof) -> int:
    """How many positions were committed again.

    Raises ClusterUnavailable, Fenced, and Unavailable from the proof.
    """
    refused: set[TargetPartition] = set()
    while unowned(renewal.route):
        renewal.store.initialise()
        found = unowned(renewal.route)
        wanted = _by_target(found, without=refused)
        if not wanted:
            return 0
        renewal.store.fence(sorted({id for each in found.values() for id in each.fence}))
        stored = renewal.store.read(wanted)
        kept = {target: position for target, position in stored.items() if position.offset >= 0}
        try:
            if kept:
                renewal.store.commit(kept)
            return len(kept)
        except CommitRefused as error:
            logger.warning("%s: not renewed: %s", renewal.route, dict(error.refused))
            refused |= error.refused.keys()
    return 0


def _by_target(
    partitions: Mapping[Partition, OrphanedPosition], *, without: Collection[TargetPartition]
) -> dict[str, list[int]]:
    """Target topic -> partitions. One that the target refuses must not let the others fade."""
    wanted: dict[str, list[int]] = {}
    for partition, found in partitions.items():
        if (found.target_topic, partition.number) not in without:
            wanted.setdefault(found.target_topic, []).append(partition.number)
    return wanted


class PositionRenewer:
    """A thread that renews every route twice a day, while this process leads."""

    def __init__(
        self,
        *,
        renewals: Mapping[Route, Renewal],
        unowned: Proof,
        leads: Callable[[], bool],
    ) -> None:
        self._renewals = renewals
        self._unowned = unowned
        self._leads = leads
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="position-renewer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(timeout=20)
        for renewal in self._renewals.values():
            renewal.client.close()

    def _run(self) -> None:
        wait_s = FIRST_AFTER_S
        while not self._stopping.wait(wait_s):
            wait_s = self.look()

    def look(self) -> float:
        """Renew every route if we lead; when to do so next. A failure is tried again in an hour: the
        positions last for days."""
        well = [self._renew(renewal) for renewal in self._renewals.values() if self._leads()]
        return EVERY_S if all(well) else FIRST_AFTER_S

    def _renew(self, renewal: Renewal) -> bool:
        try:
            count = renew(renewal, self._unowned)
        except (ClusterUnavailable, Fenced, Unavailable) as error:
            logger.warning("%s: positions not renewed: %s", renewal.route, error)
            return False
        except Exception:  # without this thread they would fade, and nobody would know
            logger.exception("%s: renewing positions failed", renewal.route)
            return False
        if count:
            logger.info("%s: %d positions without an owner renewed", renewal.route, count)
        return True
