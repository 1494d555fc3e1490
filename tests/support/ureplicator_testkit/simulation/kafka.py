"""Two clusters: logs of numbered records, transactional ids, positions; and who may do what.

L O  a target partition takes each record for the first time in the source's order, none left out
K    a position never passes what the target has taken, and never goes back, unless forgotten
S    once an owner has read a position, nobody who owned the partition before can commit it; and
     nobody does. Owners are ordered by the leader's writes, and of one id by their proofs
D    what is copied again was not committed yet when the copier that repeats it began

A request is made after the point before it (`Process.point`), so it may arrive long after it was
meant; an answer may be lost; and what a process sent in its last moment may arrive after its end.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from ureplicator_common.kafka import (
    ClusterUnavailable,
    Position,
    TopicInfo,
    topic_id_text,
)
from ureplicator_common.kafka.client import EARLIEST, ClusterClient, ClusterView, Leader
from ureplicator_common.kafka.memory import MemoryTopicAdmin
from ureplicator_common.kafka.positions import Fenced, PositionStore, TargetPartition
from ureplicator_common.model import Partition
from ureplicator_testkit.simulation.kernel import Broken, Process, World

LATE_S = 5.0
Rank = tuple[int, int]
"""Of an owner: which change of owner made it one, and when it proved that it still is."""


@dataclass(slots=True)
class Log:
    """One partition on both sides. `taken` records of the source are on the target, in order."""

    end: int = 0
    taken: int = 0
    repeats: int = 0
    position: Position = field(default_factory=lambda: Position(-1))
    reader: Rank = (0, 0)
    reader_name: str = ""


@dataclass(eq=False)
class Access:
    """One copier's right, as the judge sees it. `begun`: partition -> where it began to copy."""

    name: str
    id: str
    rank: Callable[[Partition], Rank]
    owns: Callable[[Partition], bool]
    """Whether it believes that it may commit."""
    epoch: int | None = None
    begun: dict[Partition, int] = field(default_factory=dict)


class Kafka:
    def __init__(self, world: World, topics: Mapping[str, int]) -> None:
        self.world = world
        self.topics = dict(topics)
        self.logs: dict[TargetPartition, Log] = {
            (topic, number): Log() for topic, count in topics.items() for number in range(count)
        }
        self.epochs: dict[str, int] = {}
        self.accesses: list[Access] = []
        self.commits = 0

    def initialise(self, id: str) -> int:
        self.epochs[id] = self.epochs.get(id, -1) + 1
        return self.epochs[id]

    def can_commit(self, access: Access, partition: Partition) -> bool:
        return access.owns(partition) and self.epochs.get(access.id) == access.epoch

    def read(self, access: Access, partition: Partition) -> Position:
        """Step (4) of taking a partition over; one that was fenced before it only looks."""
        log, rank = self.logs[partition.topic, partition.number], access.rank(partition)
        if rank < log.reader or self.epochs.get(access.id) != access.epoch:
            return log.position
        log.reader, log.reader_name = rank, access.name
        for other in self.accesses:
            if other is access or not self.can_commit(other, partition):
                continue
            if other.rank(partition) <= rank:
                raise Broken(
                    "S",
                    f"{access.name} read the position of {partition}, which {other.name} can commit",
                )
        return log.position

    def commit(self, access: Access, epoch: int, positions: Mapping[Partition, Position]) -> None:
        if self.epochs.get(access.id) != epoch:
            raise Fenced(access.id)
        self.commits += 1
        for partition, position in positions.items():
            log = self.logs[partition.topic, partition.number]
            if access.rank(partition) < log.reader:
                raise Broken(
                    "S", f"{access.name} committed {partition} after {log.reader_name} read it"
                )
            if position.offset > log.taken:
                raise Broken("K", f"{partition} committed at {position.offset} of {log.taken}")
            if -1 < position.offset < log.position.offset:
                raise Broken("K", f"{partition} fell back from {log.position.offset}")
            log.position = position

    def append(self, access: Access, partition: Partition, offset: int, count: int) -> None:
        """Records of the source, from `offset` on; the target takes them from anybody."""
        log = self.logs[partition.topic, partition.number]
        if offset > log.taken:
            raise Broken("L", f"{partition}: {access.name} left out {log.taken} to {offset}")
        if offset < access.begun[partition]:
            raise Broken("D", f"{partition}: {access.name} repeats what was committed")
        log.repeats += max(0, min(log.taken, offset + count) - offset)
        log.taken = max(log.taken, offset + count)

    def unanswered(self) -> bool:
        likely = self.world.chances.kafka
        return likely > 0 and self.world.chance.random() < likely


class Positions(PositionStore):
    """A copier's access to the positions, as `PositionStore` gives it."""

    def __init__(self, kafka: Kafka, process: Process, access: Access) -> None:
        self._kafka = kafka
        self._process = process
        self._access = access
        self.partitions: dict[TargetPartition, Partition] = {}
        """Partitions of the target -> of the source."""

    def initialise(self) -> None:
        def effect() -> None:
            self._access.epoch = self._kafka.initialise(self._access.id)

        self._access.epoch = None
        self._request("initialise", effect)

    def fence(self, transactional_ids: Sequence[str]) -> None:
        for each in transactional_ids:
            self._request("fence", partial(self._kafka.initialise, each))

    def read(self, wanted: Mapping[str, Sequence[int]]) -> dict[TargetPartition, Position]:
        found: dict[TargetPartition, Position] = {}

        def effect() -> None:
            for topic, numbers in wanted.items():
                for number in numbers:
                    key = (topic, number)
                    found[key] = self._kafka.read(self._access, self.partitions[key])

        self._request("read positions", effect)
        return found

    def commit(self, positions: Mapping[TargetPartition, Position]) -> None:
        epoch = self._access.epoch
        assert epoch is not None, "commit before the order was gone through"
        wanted = {self.partitions[key]: position for key, position in positions.items()}

        def effect() -> None:
            self._kafka.commit(self._access, epoch, wanted)

        self._request("commit", effect)

    def _request(self, what: str, effect: Callable[[], object]) -> None:
        self._process.point(what)
        lost = self._kafka.unanswered()
        world = self._kafka.world
        if not lost:
            effect()
            return
        world.faults += 1
        kind = world.chance.random()
        world.note(self._process.name, "%s without an answer", what)
        if kind < 0.3:
            effect()
        raise ClusterUnavailable(f"{what}: no answer", delay_s=0.2)


def topic_id(cluster: str, topic: str) -> uuid.UUID:
    """Always the same: no topic is recreated here."""
    return uuid.uuid5(uuid.NAMESPACE_OID, f"{cluster}/{topic}")


def simulated_admin(cluster: str, topics: Mapping[str, int]) -> MemoryTopicAdmin:
    """What REST asks about the topics."""
    admin = MemoryTopicAdmin(topics)
    for topic, partitions in topics.items():
        id = topic_id_text(topic_id(cluster, topic))
        admin._topics[topic] = TopicInfo(partitions=partitions, topic_id=id)
    return admin


class SimulatedCluster(ClusterClient):
    """Metadata of one side."""

    def __init__(self, kafka: Kafka, process: Process, name: str) -> None:
        super().__init__("nowhere:1")
        self._kafka = kafka
        self._process = process
        self._name = name

    def view(self, topics: Sequence[str]) -> ClusterView:
        self._process.point("metadata")
        if self._kafka.unanswered():
            raise ClusterUnavailable(f"{self._name} does not answer", delay_s=0.2)
        known = [topic for topic in topics if topic in self._kafka.topics]
        return ClusterView(
            cluster_id=self._name,
            brokers={},
            leaders={
                (topic, number): Leader(1, 0)
                for topic in known
                for number in range(self._kafka.topics[topic])
            },
            topic_ids={topic: str(topic_id(self._name, topic)) for topic in known},
        )

    def offset_at(self, topic: str, partition: int, *, timestamp_ms: int) -> int:
        assert timestamp_ms == EARLIEST
        return 0

    def close(self) -> None:
        """There is no socket."""
