"""Clusters that live in this process and can fail: the twins of `admin`, `positions`, `logs`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from ureplicator_common.kafka import (
    BatchTime,
    ClusterUnavailable,
    Extent,
    Lifetime,
    PartitionUnavailable,
    Position,
    TopicAlreadyExists,
    TopicInfo,
    TopicRefused,
)


class _Mortal:
    """Something that is there until told otherwise."""

    def __init__(self) -> None:
        self._failure: Exception | None = None

    @contextmanager
    def failing(self, error: Exception | None = None) -> Iterator[None]:
        """Every call raises `error` meanwhile (default: nobody answers)."""
        self._failure = error or ClusterUnavailable("no broker answers")
        try:
            yield
        finally:
            self._failure = None

    def _breathe(self) -> None:
        if self._failure is not None:
            raise self._failure


class MemoryTopicAdmin(_Mortal):
    """`TopicAdmin` over a dict.

    `before` is called with the name of each changing call and its topic before the change: a test
    makes somebody else be faster there, or raises what a cluster would.
    """

    def __init__(self, topics: Mapping[str, int] | None = None) -> None:
        super().__init__()
        self._topics: dict[str, TopicInfo] = {}
        self._configs: dict[str, dict[str, str]] = {}
        self._made = 0
        self.unlisted: set[str] = set()
        """There, but missing in lists: the broker that answers has not heard of them."""
        self.troubled: set[str] = set()
        """There, but the broker that answers cannot tell anything about them."""
        self.before: Callable[[str, str], None] = lambda call, topic: None
        for topic, partitions in (topics or {}).items():
            self.put(topic, partitions)

    def put(self, topic: str, partitions: int, *, configs: Mapping[str, str] | None = None) -> None:
        """Somebody makes the topic (again: with a new id)."""
        self._made += 1
        self._topics[topic] = TopicInfo(partitions=partitions, topic_id=f"id-{self._made}")
        self._configs[topic] = dict(configs or {})

    def remove(self, topic: str) -> None:
        del self._topics[topic], self._configs[topic]

    def topics(self) -> Mapping[str, TopicInfo]:
        return self.find([topic for topic in self._topics if topic not in self.unlisted])

    def find(self, topics: Sequence[str]) -> Mapping[str, TopicInfo]:
        self._breathe()
        found = {topic: self._topics[topic] for topic in topics if topic in self._topics}
        return {
            topic: TopicInfo(0, trouble="not now") if topic in self.troubled else info
            for topic, info in found.items()
        }

    def configs(self, topic: str) -> Mapping[str, str]:
        self._breathe()
        return dict(self._configs.get(topic, {}))

    def create_topic(self, topic: str, *, partitions: int, configs: Mapping[str, str]) -> None:
        self._breathe()
        self.before("create_topic", topic)
        if topic in self._topics:
            raise TopicAlreadyExists(f"{topic} exists already")
        if partitions < 1:
            raise TopicRefused("the number of partitions must be above 0")
        self.put(topic, partitions, configs=configs)

    def grow_topic(self, topic: str, *, partitions: int) -> None:
        self._breathe()
        self.before("grow_topic", topic)
        info = self._topics.get(topic)
        if info is None:
            raise TopicRefused(f"{topic} does not exist")
        if partitions <= info.partitions:
            raise TopicRefused(f"{topic} already has {info.partitions} partitions")
        self._topics[topic] = TopicInfo(partitions=partitions, topic_id=info.topic_id)

    def close(self) -> None:
        pass


class MemoryPositionReader(_Mortal):
    """`PositionReader` over a dict of (group, target topic, partition)."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: dict[tuple[str, str, int], Position] = {}
        self.reads = 0

    def read(
        self, group: str, wanted: Mapping[str, Sequence[int]]
    ) -> Mapping[tuple[str, int], Position]:
        self.reads += 1
        self._breathe()
        return {
            (topic, number): self.stored.get((group, topic, number), Position(offset=-1))
            for topic, numbers in wanted.items()
            for number in numbers
        }

    def close(self) -> None:
        pass


class MemoryLogReader(_Mortal):
    """`LogReader` over what a test says that the logs hold; `requests` counts the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[tuple[str, int], Extent] = {}
        self.batches: dict[tuple[str, int], list[BatchTime]] = {}
        self.lives: dict[str, Lifetime] = {}
        self.requests = {"extents": 0, "batch_times": 0, "lifetimes": 0}

    def extents(
        self, wanted: Mapping[str, Sequence[int]]
    ) -> Mapping[tuple[str, int], Extent | PartitionUnavailable]:
        self._count("extents")
        return {
            (topic, number): self.held.get((topic, number))
            or PartitionUnavailable(f"{topic}/{number} has no leader, or does not exist")
            for topic, numbers in wanted.items()
            for number in numbers
        }

    def batch_times(
        self, offsets: Mapping[tuple[str, int], int]
    ) -> Mapping[tuple[str, int], BatchTime]:
        self._count("batch_times")
        found = {
            key: next((time for time in self.batches.get(key, ()) if time.last >= offset), None)
            for key, offset in offsets.items()
        }
        return {key: time for key, time in found.items() if time is not None}

    def lifetimes(self, topics: Sequence[str]) -> Mapping[str, Lifetime]:
        self._count("lifetimes")
        return {topic: self.lives[topic] for topic in topics if topic in self.lives}

    def close(self) -> None:
        pass

    def _count(self, call: str) -> None:
        self.requests[call] += 1
        self._breathe()
