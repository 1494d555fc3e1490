"""A Kafka cluster's topics and logs in memory.

A topic has an id, a number of partitions, and per partition a leader and a log. A topic that is
deleted and created again has another id and empty logs, as on a real cluster. Every twin of a
cluster shows this model: the blocking client, the topic admin and the log reader (`clients`), the
brokers that speak the protocol (`memory_kafka`), and the clusters of the simulation.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, TypeVar

from ureplicator_common.kafka import BatchTime
from ureplicator_common.kafka.client import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    Broker,
    ClusterView,
    Leader,
)
from ureplicator_common.kafka.errors import ErrorCode, refusal

TopicPartition = tuple[str, int]
NO_LEADER = -1


@dataclass
class Log:
    """One partition: offsets `start` to before `end`. `epoch`: of its leader. `times`: its batches,
    where their times matter. `open_from`: first offset of a transaction that is open. `lagging`: high
    watermark of a new leader that does not know yet what its followers have (KIP-207)."""

    start: int = 0
    end: int = 0
    epoch: int = 0
    times: list[BatchTime] = field(default_factory=list)
    open_from: int | None = None
    lagging: int | None = None

    @property
    def high_watermark(self) -> int:
        return self.end if self.lagging is None else min(self.end, self.lagging)

    @property
    def stable_end(self) -> int:
        """The last stable offset: end of what is read as committed."""
        end = self.high_watermark
        return end if self.open_from is None else min(end, self.open_from)

    def offset_at(self, timestamp_ms: int, *, isolation: int) -> int:
        """The offset as ListOffsets finds it; -1 for a time after the last batch that this isolation
        shows."""
        end = self.stable_end if isolation == READ_COMMITTED else self.end
        if timestamp_ms == EARLIEST:
            return self.start
        if timestamp_ms == LATEST:
            return end
        later = (batch.first for batch in self.times if batch.timestamp_ms >= timestamp_ms)
        found = next(later, end)
        return found if found < end else -1


L = TypeVar("L", bound=Log)
NewId = Callable[[str], str]


def random_id(topic: str) -> str:
    return str(uuid.uuid4())


def numbered_ids() -> NewId:
    """id-1, id-2, ... in the order of creation."""
    numbers = count(1)
    return lambda topic: f"id-{next(numbers)}"


class ClusterModel(Generic[L]):
    """`down`: nodes that no connection reaches; their partitions have no leader."""

    def __init__(
        self,
        cluster_id: str,
        topics: Mapping[str, int],
        *,
        log: Callable[[], L],
        nodes: int = 1,
        new_id: NewId = random_id,
    ) -> None:
        self.passed: Callable[[], None] = lambda: None
        """Called while a client waits."""
        self.cluster_id = cluster_id
        self.nodes = {n: Broker(n, f"{cluster_id}{n}", 9092) for n in range(1, nodes + 1)}
        self.partitions: dict[str, int] = {}
        self.topic_ids: dict[str, str] = {}
        self.logs: dict[TopicPartition, L] = {}
        self.leaders: dict[TopicPartition, int] = {}
        self.down: set[int] = set()
        self.hidden: set[str] = set()
        """Topics that the principal may not describe: brokers do not list them, and answer with the error."""
        self.producer_ids = count(1)
        self._log = log
        self._new_id = new_id
        for topic, partitions in topics.items():
            self.create(topic, partitions)

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic under a new id, with empty logs; the nodes lead its partitions in turn."""
        self.delete(topic)
        self.topic_ids[topic] = self._new_id(topic)
        self.partitions[topic] = 0
        self.grow(topic, partitions)

    def grow(self, topic: str, partitions: int) -> None:
        for number in range(self.partitions[topic], partitions):
            self.logs[topic, number] = self._log()
            self.leaders[topic, number] = 1 + number % len(self.nodes)
        self.partitions[topic] = partitions

    def delete(self, topic: str) -> None:
        """Delete a topic with its logs, if it exists."""
        for number in range(self.partitions.pop(topic, 0)):
            del self.logs[topic, number], self.leaders[topic, number]
        self.topic_ids.pop(topic, None)

    def move(self, key: TopicPartition, node: int) -> None:
        """Another leader, in a new leader epoch."""
        self.leaders[key] = node
        self.logs[key].epoch += 1

    def hold(self, *, start: int, end: int) -> None:
        """Every log holds these offsets."""
        for log in self.logs.values():
            log.start, log.end = start, end

    def view(self, topics: Iterable[str]) -> ClusterView:
        """A Metadata response."""
        wanted = frozenset(topics)
        known = (wanted & self.topic_ids.keys()) - self.hidden
        return ClusterView(
            cluster_id=self.cluster_id,
            brokers={n: broker for n, broker in self.nodes.items() if n not in self.down},
            leaders={
                (topic, number): self._leader((topic, number))
                for topic in sorted(known)
                for number in range(self.partitions[topic])
            },
            topic_ids={topic: self.topic_ids[topic] for topic in sorted(known)},
            missing=wanted - known - self.hidden,
            refused={topic: self.denial(topic) for topic in sorted(wanted & self.hidden)},
        )

    def denial(self, topic: str) -> str:
        """Reason why a topic is not described."""
        code, right = ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"DESCRIBE on topic {topic}"
        return refusal(code, right, f"cluster {self.cluster_id}")

    def _leader(self, key: TopicPartition) -> Leader:
        node = self.leaders[key]
        return Leader(NO_LEADER if node in self.down else node, self.logs[key].epoch)


def cluster_model(
    cluster_id: str, topics: Mapping[str, int], *, new_id: NewId | None = None
) -> ClusterModel[Log]:
    """One node, and logs without content. Topic ids that tests can spell: cluster-topic."""

    def named(topic: str) -> str:
        return f"{cluster_id}-{topic}"

    return ClusterModel(cluster_id, topics, log=Log, new_id=new_id or named)
