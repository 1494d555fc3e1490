"""The leader's own commits: renewal of the positions of partitions without an owner, and deletion of
those of topics deleted with their positions. Runs the real `renew` and `PositionDeleter`.

For a moment the leader acts as an owner: after all owners that were appointed before its proof, and
before all later ones.
"""

from __future__ import annotations

from collections.abc import Mapping

from ureplicator_common.coordination import Conflict, OutcomeUnknown, Unavailable
from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.positions import CommitRefused
from ureplicator_common.kafka.transactions.coordinator_requests import Fenced
from ureplicator_common.model import RENEWER, Partition, Route, transactional_id
from ureplicator_controller.core.positions.orphaned import OrphanedPosition, orphaned_positions
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.engines import position_deletion as position_deletion_module
from ureplicator_controller.engines.leadership import Leadership
from ureplicator_controller.engines.observer import Observer
from ureplicator_controller.engines.position_deletion import PositionDeleter
from ureplicator_controller.engines.position_renewal import RemainsRemover, Renewal, renew
from ureplicator_testkit.simulation.judge import FLEET, PATHS
from ureplicator_testkit.simulation.kafka import Kafka, Positions, Rank, SimulatedCluster
from ureplicator_testkit.simulation.sessions import SessionProcess
from ureplicator_testkit.simulation.waiting import virtual_waiting

RENEW_S = 9.0
DELETE_S = 3.0


class PositionThreads:
    """Both threads of one controller."""

    def __init__(
        self,
        process: SessionProcess,
        kafkas: Mapping[Route, Kafka],
        leadership: Leadership,
        observer: Observer,
    ) -> None:
        self._process = process
        self._leadership = leadership
        self._observer = observer
        self._owners: Mapping[Partition, int] = {}
        self._proven_at = 0
        self._active = False
        self._positions = [self._positions_of(route, kafka) for route, kafka in kafkas.items()]
        self._renewals = {
            route: Renewal(route, positions, SimulatedCluster(kafka, process, kafka.target))
            for (route, kafka), positions in zip(kafkas.items(), self._positions, strict=True)
        }
        self._deleter = PositionDeleter(
            coordination=process.client,
            paths=PATHS,
            renewals=self._renewals,
            seen=lambda: observer.latest if leadership.epoch() is not None else None,
            proof=self._proven,
        )
        self._remains = RemainsRemover(
            coordination=process.client,
            paths=PATHS,
            seen=lambda: observer.latest if leadership.epoch() is not None else None,
            proof=self._proven,
        )
        chance = process.world.chance
        process.world.wake(process.actor("renewer", self._renew), chance.random() * RENEW_S)
        process.world.wake(process.actor("deleter", self._delete), chance.random() * DELETE_S)

    def _positions_of(self, route: Route, kafka: Kafka) -> Positions:
        id = transactional_id(fleet=FLEET, route=route, worker=RENEWER, slot=0)
        positions = Positions(
            kafka, self._process, id, rank=self._rank, owns=lambda _: self._active
        )
        for topic, number in kafka.target.logs:
            positions.partitions[topic, number] = Partition(route, topic, number)
        return positions

    def close(self) -> None:
        """The process ended."""
        for positions in self._positions:
            positions.close()

    def _rank(self, partition: Partition) -> Rank:
        """Rank after the present owner; before it again once that one renews its proof."""
        return (self._owners.get(partition, 0), self._proven_at)

    def _proven(self) -> Snapshot | None:
        """Proven as in the daemon."""
        epoch = self._leadership.epoch()
        if epoch is None:
            return None
        seen = self._observer.fresh()
        self._owners, self._proven_at = dict(self._process.store.latest), self._process.store.zxid
        self._active = True
        return seen if self._leadership.epoch() == epoch == seen.epoch else None

    def _unowned(self, route: Route) -> Mapping[Partition, OrphanedPosition]:
        seen = self._proven()
        return orphaned_positions(seen, route) if seen is not None else {}

    def _renew(self) -> float:
        if self._leadership.epoch() is not None and not self._active:
            try:
                for renewal in self._renewals.values():
                    renew(renewal, self._unowned)
                    self._remains.remove(renewal)
            except (ClusterUnavailable, Conflict, Fenced, OutcomeUnknown, Unavailable) as error:
                self._process.world.note(self._process.name, "not renewed: %s", error)
            finally:
                self._active = False
        return RENEW_S

    def _delete(self) -> float:
        if self._active:
            return DELETE_S
        try:
            with virtual_waiting(self._process, position_deletion_module):
                self._deleter.run_once()
        except (ClusterUnavailable, CommitRefused, Fenced, Unavailable) as error:
            self._process.world.note(self._process.name, "not deleted: %s", error)
        except (Conflict, OutcomeUnknown) as error:
            self._process.world.note(self._process.name, "deleted, intent not updated: %s", error)
        finally:
            self._active = False
        return DELETE_S
