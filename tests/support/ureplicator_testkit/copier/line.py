"""One route's copier between two clusters in memory, turn by turn; the test advances the clock.

`wall_s` is the copier's wall clock. It stands at 0 unless a test sets it: no record is old.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.client import Broker
from ureplicator_common.kafka.transactions.producers import Producer
from ureplicator_common.model import OwnerEpoch, Partition, Route, RouteSettings
from ureplicator_testkit.copier.handler_process import MemoryHandlerProcess
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_testkit.records.batches import ZSTD, Record, batch, decode, field, incompressible
from ureplicator_worker.copier.lane import SocketGroup
from ureplicator_worker.copier.lanes.raw_lane import RawLane
from ureplicator_worker.copier.loop.mailbox import Mailbox
from ureplicator_worker.copier.messages import (
    Begun,
    Command,
    Commit,
    Committed,
    Forget,
    Forgotten,
    Locate,
    Located,
    NewProducer,
    OwnershipEvent,
    ProducerReady,
)
from ureplicator_worker.copier.net.buffers import BufferPool
from ureplicator_worker.copier.net.metadata import (
    ClusterMetadata,
    Connected,
    ConnectFailed,
    MetadataEvent,
    ViewChanged,
)
from ureplicator_worker.copier.ownership.thread import Ownership
from ureplicator_worker.copier.position_values import StartPosition
from ureplicator_worker.copier.raw.byte_limits import ByteLimits, RouteLimits
from ureplicator_worker.copier.route_copier import RouteCopier
from ureplicator_worker.copier.source_offsets import SourceOffsetPublisher
from ureplicator_worker.lifeline.messages import Add, Failed, Grant, Message, PartitionReport

ROUTE = Route("a", "b")
TURNS = 5_000


class MemoryMetadata(ClusterMetadata):
    """Posts at once; a node that is down refuses connections. `silent`: no response to Metadata."""

    client_id = "test"

    def __init__(self, kafka: MemoryKafka) -> None:
        self.kafka = kafka
        self.events: Mailbox[MetadataEvent] = Mailbox(lambda: None)
        self.published: list[Mapping[tuple[str, int], Position]] = []
        self.topics: frozenset[str] = frozenset()
        self.closed = self.silent = False
        self._failed: list[Callable[[str], None]] = []

    @property
    def cluster(self) -> str:
        return f"cluster {self.kafka.cluster_id}"

    def cover(self, topics: frozenset[str]) -> None:
        if topics != self.topics:
            self.topics = topics
            self.refresh()

    def refresh(self) -> None:
        if self.silent:
            return
        self.events.post(ViewChanged(self.kafka.view(self.topics), frozenset(self.topics)))

    def connect(self, broker: Broker) -> None:
        if broker.node_id in self.kafka.down:
            self.events.post(ConnectFailed(broker.node_id, "refused"))
        elif self.kafka.is_full(broker.node_id):
            self.events.post(ConnectFailed(broker.node_id, "too many connections"))
        else:
            connection = self.kafka.connect(broker.node_id)
            self.events.post(Connected(broker.node_id, connection, self.kafka.newest))

    def publish(
        self,
        group: str,
        positions: Mapping[tuple[str, int], Position],
        *,
        failed: Callable[[str], None],
    ) -> bool:
        self.published.append(positions)
        self._failed.append(failed)
        return True

    def fail_publication(self, reason: str) -> None:
        """The last publication did not reach the cluster."""
        self._failed[-1](reason)

    def close(self) -> None:
        self.closed = True
        for event in self.events.take():
            if isinstance(event, Connected):
                event.connection.close()


class MemoryOwnership(Ownership):
    """Grants everything at once, except the kinds of commands that wait (`hold`)."""

    def __init__(self, source: MemoryKafka, target: MemoryKafka, settings: RouteSettings) -> None:
        self.source, self.target = source, target
        self.settings = settings
        self.events: Mailbox[OwnershipEvent] = Mailbox(lambda: None)
        self.hold: set[type[Any]] = set()
        self.held_back: deque[Command] = deque()
        self.stored: dict[Partition, int] = {}
        self.ends: dict[Partition, int] = {}
        self.epochs: dict[Partition, int] = {}
        self.producers = self.commits = 0
        self.located = 0
        self.closed = False

    def put(self, command: Command) -> None:
        if type(command) in self.hold:
            self.held_back.append(command)
        else:
            self._respond(command)

    def let_pass(self) -> None:
        self.hold.clear()
        while self.held_back:
            self._respond(self.held_back.popleft())

    def _respond(self, command: Command) -> None:
        match command:
            case Add(partitions):
                for partition, epoch in partitions.items():
                    self.events.post(self.begun(partition, epoch))
            case Commit(positions, number):
                self.commits += 1
                self.stored |= {part: item.position for part, item in positions.items()}
                self.ends |= {part: item.target_end for part, item in positions.items()}
                self.epochs |= {part: item.leader_epoch for part, item in positions.items()}
                self.events.post(Committed(positions, number))
            case Forget(partition):
                self.events.post(Forgotten(partition))
            case NewProducer():
                self.producers += 1
                self.events.post(ProducerReady(Producer(self.producers, 0)))
            case Locate():
                self.events.post(Located(command, self.located))

    def begun(self, partition: Partition, epoch: OwnerEpoch) -> Begun:
        position = self.stored.setdefault(partition, 0)
        beginning = StartPosition(
            position=position,
            leader_epoch=self.epochs.get(partition, -1),
            committed=position,
            source_cluster=self.source.cluster_id,
            source_topic_id=self.source.topic_ids[partition.topic],
            target_topic_id=self.target.topic_ids[partition.topic],
            target_end=self.ends.get(partition, -1),
        )
        return Begun(partition, Grant(epoch, partition.topic, settings=self.settings), beginning)

    def close(self) -> None:
        self.closed = True


MakeLine = Callable[..., "Line"]


class CopierLine:
    """A copier between two clusters. `ownership` posts its events to `events`.

    `target_first`: sockets to the target are read before those to the source.
    """

    def __init__(
        self,
        source: MemoryKafka,
        target: MemoryKafka,
        *,
        ownership: Ownership,
        events: Mailbox[OwnershipEvent],
        buffer_bytes: int = 64 << 20,
        commit_interval_s: float = 0.0,
    ) -> None:
        self.source, self.target = source, target
        self.pool = BufferPool(limit_bytes=buffer_bytes)
        self.source_metadata = MemoryMetadata(source)
        self.target_metadata = MemoryMetadata(target)
        self.sent: list[Message] = []
        self._now_s = 1_000.0
        self.wall_s = 0.0
        self.target_first = False
        self.limits = ByteLimits()
        self.lane = RawLane(
            source=self.source_metadata,
            source_events=self.source_metadata.events,
            target=self.target_metadata,
            target_events=self.target_metadata.events,
            pool=self.pool,
            limits=RouteLimits(self.limits, ROUTE),
            transactional_id="line",
            start_handler=MemoryHandlerProcess.of(target),
            wall_s=lambda: self.wall_s,
        )
        self.copier = RouteCopier(
            ROUTE,
            lane=self.lane,
            ownership=ownership,
            events=events,
            publisher=SourceOffsetPublisher(
                self.source_metadata, group="g", failures=Mailbox(lambda: None)
            ),
            commit_interval_s=commit_interval_s,
            transaction_interval_s=commit_interval_s,
            send=self.sent.append,
        )

    @property
    def now_s(self) -> float:
        return self._now_s

    def add(self, *numbers: int, topic: str = "t", epoch: int = 1) -> list[Partition]:
        partitions = [Partition(ROUTE, topic, number) for number in numbers]
        self.copier.holder.add(dict.fromkeys(partitions, OwnerEpoch(epoch)))
        return partitions

    def turn(self, *, skip_s: float = 0.03) -> None:
        """One turn of the loop, and of everything around it; `skip_s` pass meanwhile."""
        self.source.pump()
        self.target.pump()
        self.work(skip_s=skip_s)

    def work(self, *, skip_s: float) -> None:
        """The copier's part of a turn."""
        self._now_s += skip_s
        groups = self.lane.sockets()
        for group in reversed(groups) if self.target_first else groups:
            self._ready(group)
        self.copier.work(self.now_s)

    def _ready(self, group: SocketGroup) -> None:
        for socket in list(group.open):
            group.on_readable(socket, self.now_s)
            if socket.wants_write:
                group.on_writable(socket, self.now_s)

    def run(self, until: Callable[[], bool], *, skip_s: float = 0.03) -> None:
        for _ in range(TURNS):
            if until():
                return
            self.turn(skip_s=skip_s)
        raise AssertionError(f"not in {TURNS} turns: {self.copier.report()}")

    def turns(self, count: int, *, skip_s: float = 0.03) -> None:
        for _ in range(count):
            self.turn(skip_s=skip_s)

    def report(self, partition: Partition) -> PartitionReport:
        return self.copier.report()[partition]

    def copied(self, partition: Partition) -> bool:
        """Everything of the source is acknowledged and committed."""
        key = (partition.topic, partition.number)
        report = self.copier.report().get(partition)
        return report is not None and report.committed == self.source.logs[key].end

    def close(self) -> None:
        self.copier.close()
        assert self.source_metadata.closed
        assert self.pool.used_bytes == self.pool.reserved_bytes == 0


class Line(CopierLine):
    """The only copier between its clusters; it is granted everything."""

    def __init__(
        self,
        source: MemoryKafka,
        target: MemoryKafka,
        *,
        settings: RouteSettings | None = None,
        **more: Any,
    ) -> None:
        self.ownership = MemoryOwnership(source, target, settings or RouteSettings())
        super().__init__(
            source, target, ownership=self.ownership, events=self.ownership.events, **more
        )

    def close(self) -> None:
        super().close()
        self.source.close()
        self.target.close()
        assert self.ownership.closed


def failure(line: Line) -> Failed:
    """Run until the copier gives up its only partition."""
    line.run(lambda: bool(line.sent))
    (sent,) = line.sent
    assert isinstance(sent, Failed)
    return sent


def records(kafka: MemoryKafka, key: tuple[str, int]) -> list[Record]:
    """Records of the log as a consumer reads them."""
    found: list[Record] = []
    for stored in kafka.logs[key].taken:
        if field(stored, "records") > 0:
            found += decode(stored)
    return found


def values(kafka: MemoryKafka, key: tuple[str, int]) -> list[bytes | None]:
    return [record.value for record in records(kafka, key)]


def fill(line: Line, key: tuple[str, int], batches: int, *, size: int = 20_000) -> None:
    """Batches of four records each, compressed and too large to be merged."""
    line.source.logs[key].put(*(_filling(number, size) for number in range(batches)))


@lru_cache(1_000)
def _filling(number: int, size: int) -> bytes:
    names = [b"%d-%d" % (number, n) for n in range(4)]
    values = [name + incompressible(name, len(name) * (size // 20 - 1)) for name in names]
    return batch([(number, b"%d" % number, value, ()) for value in values], codec=ZSTD)


def seen(found: list[Record]) -> list[tuple[object, ...]]:
    """Records without their offsets."""
    return [(r.timestamp_ms, r.key, r.value, tuple(r.headers)) for r in found]


def assert_same(line: Line, key: tuple[str, int]) -> None:
    assert seen(records(line.target, key)) == seen(records(line.source, key))
