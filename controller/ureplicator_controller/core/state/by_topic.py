"""Entries of workers by partition, merged by topic; and results by topic that are kept while it is unchanged.

Assignments and current states are stored by worker, and decisions are made by topic. In a fleet of 100,000
partitions few topics change between two looks. So a merge copies only topics that differ, and a topic that
does not is the same object as before: `TopicMemo` finds by identity what has to be computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from ureplicator_common.model import Partition, TopicKey, WorkerId

E = TypeVar("E")
T = TypeVar("T")

ByWorker = Mapping[WorkerId, E]
"""Entries of one partition, by name."""
TopicEntries = Mapping[int, ByWorker[E]]
"""Entries of one topic by the number of the partition, in no order; none is empty."""
ByTopic = Mapping[TopicKey, TopicEntries[E]]
Inputs = tuple[Any, ...]


def are_same(one: Inputs, other: Inputs) -> bool:
    """True if both have the same objects."""
    return all(each is its_twin for each, its_twin in zip(one, other, strict=True))


class Merge(Generic[E]):
    """A merge in the making: topics are copied before their first change, so `before` keeps its own."""

    def __init__(self, before: ByTopic[E]) -> None:
        self._topics = dict(before)
        self._own: dict[TopicKey, dict[int, ByWorker[E]]] = {}

    def replace(
        self, worker: WorkerId, old: Mapping[Partition, E], new: Mapping[Partition, E]
    ) -> None:
        """Replace the entries of a worker."""
        for partition in old.keys() - new.keys():
            topic = self._topic(partition.key)
            others = {
                each: entry for each, entry in topic[partition.number].items() if each != worker
            }
            if others:
                topic[partition.number] = others
            else:
                del topic[partition.number]
        for partition, entry in new.items():
            before = old.get(partition)
            if before is not entry and before != entry:
                topic = self._topic(partition.key)
                kept = topic.get(partition.number)
                both = {**kept, worker: entry} if kept else {worker: entry}
                topic[partition.number] = dict(sorted(both.items())) if kept else both

    def _topic(self, key: TopicKey) -> dict[int, ByWorker[E]]:
        own = self._own.get(key)
        if own is None:
            own = self._topics[key] = self._own[key] = dict(self._topics.get(key, {}))
        return own

    def merged(self) -> ByTopic[E]:
        for key, topic in self._own.items():
            if not topic:
                del self._topics[key]
        return self._topics


class TopicMemo(Generic[T]):
    """Results by topic, each computed again only if one of its inputs is another object. Not thread-safe."""

    def __init__(self) -> None:
        self._inputs: dict[TopicKey, Inputs] = {}
        self.results: dict[TopicKey, T] = {}

    def clear(self) -> None:
        """Compute all of them again the next time: what they depend on besides their inputs has changed."""
        self._inputs, self.results = {}, {}

    def update(
        self, inputs: Iterable[tuple[TopicKey, Inputs]], compute: Callable[[TopicKey, Inputs], T]
    ) -> Mapping[TopicKey, T]:
        """The results for all topics that have inputs now; also in `results`."""
        before, results = self._inputs, self.results
        self._inputs, self.results = {}, {}
        for key, now in inputs:
            known = before.get(key)
            if known is not None and are_same(known, now):
                self._inputs[key], self.results[key] = known, results[key]
            else:
                self._inputs[key], self.results[key] = now, compute(key, now)
        return self.results
