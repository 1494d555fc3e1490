"""The two Kafka clusters of a route, with a judge at every read, commit and append.

L O  a target partition takes each record for the first time in the source's order, none left out
K    a position never passes what the target has taken, and never goes back, unless deleted
S    after an owner has read a position, no earlier owner of the partition can commit it, and none
     does. Owners are ordered by the leader's writes; those of one id by their proofs
D    what is copied again was not committed when the copier that repeats it began

A request is sent after the point before it (`Process.point`), so it may arrive long after the
decision to send it; a response may be lost; and a request sent in a process's last moment may
arrive after its end.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from ureplicator_common.kafka import ClusterUnavailable, Position, PositionOrError, topic_id_text
from ureplicator_common.kafka.positions import TargetPartition
from ureplicator_common.model import Partition, Route
from ureplicator_testkit.kafka.clients import MemoryCluster, MemoryTopicAdmin
from ureplicator_testkit.kafka.cluster import ClusterModel, Log, cluster_model
from ureplicator_testkit.kafka.ledger import Ledger, MemoryPositions
from ureplicator_testkit.simulation.kernel import Process, SimulationFailure, World

Rank = tuple[int, int]
"""Rank of an owner: number of the change of owner that made it one, and time of its last proof."""


@dataclass(frozen=True, slots=True)
class Reader:
    """The latest owner that read a position."""

    rank: Rank = (0, 0)
    name: str = ""


class Kafka:
    """Records are numbers: the target's log ends where the copied records of the source end."""

    def __init__(self, world: World, route: Route, topics: Mapping[str, int]) -> None:
        self.world = world
        self.source = _cluster(route.source, topics)
        self.target = _cluster(route.target, topics)
        self.ledger = Ledger()
        self.accesses: list[Positions] = []
        """Accesses of all processes that may commit."""
        self.commits = self.repeats = 0
        self._readers: dict[TargetPartition, Reader] = {}

    def judge_read(self, access: Positions, partition: Partition) -> None:
        """A fenced reader, and one of an earlier rank, change nothing."""
        key, rank = (partition.topic, partition.number), access.rank(partition)
        if rank < self._reader(key).rank or not access.can_commit:
            return
        self._readers[key] = Reader(rank, access.name)
        for other in self.accesses:
            if other is access or not other.may_commit(partition):
                continue
            if other.rank(partition) <= rank:
                raise SimulationFailure(
                    "S",
                    f"{access.name} read the position of {partition}, which {other.name} can commit",
                )

    def judge_commit(
        self, access: Positions, partition: Partition, before: Position, after: Position
    ) -> None:
        key = partition.topic, partition.number
        reader, taken = self._reader(key), self.target.logs[key].end
        if access.rank(partition) < reader.rank:
            raise SimulationFailure(
                "S", f"{access.name} committed {partition} after {reader.name} read it"
            )
        if after.offset > taken:
            raise SimulationFailure("K", f"{partition} committed at {after.offset} of {taken}")
        if -1 < after.offset < before.offset:
            raise SimulationFailure("K", f"{partition} fell back from {before.offset}")

    def append(self, access: Positions, partition: Partition, offset: int, count: int) -> None:
        """Records of the source, from `offset` on; the target accepts them from any process."""
        log = self.target.logs[partition.topic, partition.number]
        if offset > log.end:
            raise SimulationFailure(
                "L", f"{partition}: {access.name} left out {log.end} to {offset}"
            )
        if offset < access.begun[partition]:
            raise SimulationFailure("D", f"{partition}: {access.name} repeats what was committed")
        self.repeats += max(0, min(log.end, offset + count) - offset)
        log.end = max(log.end, offset + count)

    def response_is_lost(self) -> bool:
        likely = self.world.chances.kafka
        return likely > 0 and self.world.chance.random() < likely

    def _reader(self, key: TargetPartition) -> Reader:
        return self._readers.get(key, Reader())


class Positions(MemoryPositions):
    """One process's access to the positions, as the judge sees it."""

    def __init__(
        self,
        kafka: Kafka,
        process: Process,
        transactional_id: str,
        *,
        rank: Callable[[Partition], Rank],
        owns: Callable[[Partition], bool],
    ) -> None:
        super().__init__(kafka.ledger, transactional_id)
        self.name = process.name
        self.rank = rank
        self.begun: dict[Partition, int] = {}
        """Position at which the process began to copy."""
        self.partitions: dict[TargetPartition, Partition] = {}
        """Partitions of the target -> of the source."""
        self._kafka = kafka
        self._process = process
        self._owns = owns
        kafka.accesses.append(self)

    def may_commit(self, partition: Partition) -> bool:
        """True if it believes that it owns the partition, and is not fenced."""
        return self._owns(partition) and self.can_commit

    def close(self) -> None:
        """The process ended: no request of it is under way."""
        self._kafka.accesses.remove(self)

    def fence(self, transactional_ids: Sequence[str]) -> None:
        for transactional_id in transactional_ids:
            super().fence((transactional_id,))

    def _read_one(self, partition: TargetPartition) -> PositionOrError:
        self._kafka.judge_read(self, self.partitions[partition])
        return super()._read_one(partition)

    def _commit(
        self,
        epoch: int,
        positions: Mapping[TargetPartition, Position],
        optional: Collection[TargetPartition],
    ) -> dict[TargetPartition, str]:
        before = {key: self.ledger.read(key) for key in positions}
        refused = super()._commit(epoch, positions, optional)
        self._kafka.commits += 1
        for key, position in positions.items():
            if key not in refused:
                self._kafka.judge_commit(self, self.partitions[key], before[key], position)
        return refused

    def _request(self, name: str, *details: object, effect: Callable[[], None]) -> None:
        self._process.point(name)
        if not self._kafka.response_is_lost():
            effect()
            return
        world = self._kafka.world
        world.faults += 1
        arrives = world.chance.random() < 0.3
        world.note(self._process.name, "%s without a response", name)
        if arrives:
            effect()
        raise ClusterUnavailable(f"{name}: no response", delay_s=0.2)


class SimulatedCluster(MemoryCluster):
    """A process's client of one cluster."""

    def __init__(self, kafka: Kafka, process: Process, model: ClusterModel[Log]) -> None:
        super().__init__(model)
        self._kafka = kafka
        self._process = process

    def _request(self, name: str) -> None:
        self._process.point(name)
        if self._kafka.response_is_lost():
            raise ClusterUnavailable(f"{self.model.cluster_id} does not respond", delay_s=0.2)


class SimulatedAdmin(MemoryTopicAdmin):
    """Topic ids in the form in which an admin client reports them."""

    def _admin_id(self, topic: str) -> str:
        return topic_id_text(uuid.UUID(self.model.topic_ids[topic]))


def _cluster(name: str, topics: Mapping[str, int]) -> ClusterModel[Log]:
    """Topic ids depend on the names only: a history depends on its seed alone."""
    return cluster_model(
        name, topics, new_id=lambda topic: str(uuid.uuid5(uuid.NAMESPACE_OID, f"{name}/{topic}"))
    )
