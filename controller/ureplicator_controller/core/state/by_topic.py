"""Entries of workers by partition, merged by topic; and results by topic that are kept while it is unchanged.

Assignments and current states are stored by worker, and decisions are made by topic. In a fleet of 100,000
partitions few topics change between two looks. So a merge copies only topics that differ, and a topic that
does not is the same object as before: `TopicMemo` finds by identity what has to be computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Generic, TypeVar

from ureplicator_common.model import Partition, TopicKey, WorkerId

E = TypeVar("E")
T = TypeVar("T")

ByWorker = Mapping[WorkerId, E]
"""Entries of one partition, by name."""
TopicEntries = Mapping[int, ByWorker[E]]
"""Entries of one topic by the number of the partition, in no order; none is empty."""
ByTopic = Mapping[TopicKey, TopicEntries[E]]


def are_same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """True if both have the same objects."""
    return all(item is its_twin for item, its_twin in zip(one, other, strict=True))


class Merge(Generic[E]):
    """A merge in the making: topics are copied before their first change, so `before` keeps its own."""

    def __init__(self, before: ByTopic[E]) -> None:
        self._before = before
        self._topics = dict(before)
        self._own: dict[TopicKey, dict[int, ByWorker[E]]] = {}

    def replace(
        self, worker: WorkerId, old: Mapping[Partition, E], new: Mapping[Partition, E]
    ) -> None:
        """Replace the entries of a worker."""
        for partition in old.keys() - new.keys():
            topic = self._topic(partition.key)
            others = {
                other: entry for other, entry in topic[partition.number].items() if other != worker
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
        """`before` itself if nothing was replaced."""
        if not self._own:
            return self._before
        for key, topic in self._own.items():
            if not topic:
                del self._topics[key]
        return self._topics


class TopicMemo(Generic[T]):
    """Results by topic, each computed again only if one of its inputs is another object. Not thread-safe.

    Inputs are mappings by topic. A mapping that is the same object as before is not looked through.
    """

    def __init__(self) -> None:
        self._inputs: Sequence[Mapping[TopicKey, Any]] = ()
        self.results: dict[TopicKey, T] = {}
        """Results; those of an earlier update stay as they are."""
        self.changed: Set[TopicKey] = frozenset()
        """Topics whose inputs differed in the last update."""

    def clear(self) -> None:
        """Compute all of them again the next time: what they depend on besides their inputs has changed."""
        self._inputs, self.results = (), {}

    def update(
        self,
        inputs: Sequence[Mapping[TopicKey, Any]],
        compute: Callable[[TopicKey], T],
        *,
        topics: Sequence[Mapping[TopicKey, Any]],
    ) -> Mapping[TopicKey, T]:
        """The results for all topics of `topics`, which are some of the inputs; also in `results`. If
        `compute` raises, all is as before."""
        before = self._inputs or ({},) * len(inputs)
        pairs = zip(before, inputs, strict=True)
        changed = frozenset().union(*(_changed(old, new) for old, new in pairs))
        results = dict(self.results) if changed else self.results
        for key in changed:
            if any(key in known for known in topics):
                results[key] = compute(key)
            else:
                results.pop(key, None)
        self._inputs, self.results, self.changed = inputs, results, changed
        return results


def _changed(before: Mapping[TopicKey, Any], now: Mapping[TopicKey, Any]) -> Set[TopicKey]:
    """Topics that have another object now."""
    if before is now:
        return frozenset()
    found = {key for key, value in now.items() if before.get(key) is not value}
    return found | (before.keys() - now.keys())
