"""What the fleet really does beside what it should: external view, mismatches, validation counts.

Everything is computed by owner, from one snapshot, without side effects: a partition that is
online on another worker than its ideal one is a mismatch, not a success. (uReplicator compared
only counts, so that a partition online in the wrong place passed for healthy.)

The external view merges the current states of the workers that live. A current state whose session
is not its worker's live session is somebody's past and is not shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ureplicator_common.model import (
    CurrentEntry,
    IdealEntry,
    Partition,
    PartitionState,
    Route,
    TopicKey,
    TopicState,
    WorkerId,
)
from ureplicator_common.znodes import MAX_ASSIGNED
from ureplicator_controller.core.state.exclusions import exclusion_kind, partition_exclusion
from ureplicator_controller.core.state.snapshot import Snapshot

ExternalView = Mapping[Partition, Mapping[WorkerId, CurrentEntry]]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A partition that is not where, or not what, it should be.

    `ideal` and `actual` are worker -> state, as in the external view. `since_ms` is the last
    change of the ideal state (wall clock): the mismatch is not older than that.
    """

    partition: Partition
    ideal: Mapping[WorkerId, PartitionState]
    actual: Mapping[WorkerId, PartitionState]
    reason: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class ValidationCounts:
    """Counts as uReplicator's /validation gives them.

    Each wanted partition is counted once, by what its ideal owner says of it: online, offline
    (also nobody, or somebody else) or in error. `error_topics` have at least one partition in
    error. `excluded` tells of the offline ones how many are paused, blacklisted and stopped.
    """

    topics: int
    topic_partitions: int
    online: int
    offline: int
    error: int
    error_topics: int
    ideal_state: Mapping[WorkerId, int]
    external_view: Mapping[WorkerId, int]
    excluded: Mapping[str, int]

    def as_json(self) -> dict[str, object]:
        """uReplicator's names, and three for what it counted as offline."""
        return {
            "numTopics": self.topics,
            "numTopicPartitions": self.topic_partitions,
            "numOnlineTopicPartitions": self.online,
            "numOfflineTopicPartitions": self.offline,
            "numErrorTopicPartitions": self.error,
            "numErrorTopics": self.error_topics,
            "numPausedTopicPartitions": self.excluded.get("paused", 0),
            "numBlacklistedTopicPartitions": self.excluded.get("blacklisted", 0),
            "numStoppedTopicPartitions": self.excluded.get("stopped", 0),
            "IdealState": dict(sorted(self.ideal_state.items())),
            "ExternalView": dict(sorted(self.external_view.items())),
        }


def external_view(snapshot: Snapshot) -> ExternalView:
    """Partition -> worker -> what that worker says, for all workers that live."""
    view: dict[Partition, dict[WorkerId, CurrentEntry]] = {}
    for worker in sorted(snapshot.current):
        stored = snapshot.current[worker]
        if stored.owner != snapshot.sessions.get(worker):
            continue
        for partition, entry in stored.value.entries.items():
            view.setdefault(partition, {})[worker] = entry
    return view


def whitelisted_partitions(snapshot: Snapshot, route: Route | None = None) -> Iterable[Partition]:
    """Every partition of the topics that stay, in order; of one route or of all."""
    for key in sorted(snapshot.topics):
        intent = snapshot.topics[key].value
        if intent.state is TopicState.DELETING or route not in (None, key.route):
            continue
        for number in range(intent.partitions):
            yield Partition(key.route, key.topic, number)


def ideal_entry(snapshot: Snapshot, partition: Partition) -> IdealEntry | None:
    """What the leader decided about a partition, None if nothing yet."""
    stored = snapshot.ideal.get(partition.key)
    return stored.value.entries.get(partition.number) if stored else None


def is_active(snapshot: Snapshot, partition: Partition) -> bool:
    """Whether it is to be copied now: neither paused nor blacklisted nor being deleted.

    A topic that was stopped is wanted, and not copied: that is a mismatch.
    """
    stored = snapshot.topics.get(partition.key)
    return (
        stored is not None
        and stored.value.state is TopicState.ACTIVE
        and partition.key not in snapshot.blacklist
        and partition.number < stored.value.partitions
        and partition.number not in stored.value.blacklisted
    )


def mismatches(snapshot: Snapshot, view: ExternalView) -> list[Mismatch]:
    """All partitions whose external view is not their ideal state, in order."""
    partitions = dict.fromkeys(whitelisted_partitions(snapshot))
    stray = (partition for partition in view if partition not in partitions)
    found = (mismatch(snapshot, view, partition) for partition in (*partitions, *sorted(stray)))
    return [item for item in found if item is not None]


def topic_mismatches(snapshot: Snapshot, view: ExternalView, key: TopicKey) -> list[Mismatch]:
    """The same for one topic."""
    stored = snapshot.topics.get(key)
    numbers = set(range(stored.value.partitions if stored else 0))
    numbers |= {partition.number for partition in view if partition.key == key}
    found = (
        mismatch(snapshot, view, Partition(key.route, key.topic, number))
        for number in sorted(numbers)
    )
    return [item for item in found if item is not None]


def mismatch(snapshot: Snapshot, view: ExternalView, partition: Partition) -> Mismatch | None:
    """Why the external view of one partition is not its ideal state; None if it is."""
    entry = ideal_entry(snapshot, partition)
    actual = view.get(partition, {})
    states = {worker: said.state for worker, said in actual.items()}
    owner = entry.worker if entry else None
    ideal = {} if owner is None else {owner: PartitionState.ONLINE}
    if states == ideal and (owner is not None or not is_active(snapshot, partition)):
        return None
    since_ms = entry.since_ms if entry else 0
    return Mismatch(partition, ideal, states, _why(snapshot, partition, entry, actual), since_ms)


def _why(
    snapshot: Snapshot,
    partition: Partition,
    entry: IdealEntry | None,
    actual: Mapping[WorkerId, CurrentEntry],
) -> str:
    """The one sentence that tells people what is being waited for."""
    unclear = _unclear(snapshot, partition, entry)
    if unclear:
        return unclear
    owner = entry.worker if entry else None
    others = ", ".join(sorted(worker for worker in actual if worker != owner))
    if owner is None:
        if others:
            return f"waiting for {others} to let go"
        return entry.reason if entry else "not placed yet"
    if owner not in snapshot.sessions and owner in snapshot.live:
        return f"worker {owner} was evicted and has not answered since"
    if owner not in snapshot.sessions:
        return f"worker {owner} is gone; it keeps the partition until the rebalance delay ends"
    if others:
        return f"waiting for {others} to let go"
    return _why_owner(snapshot, partition, owner, actual)


def _why_owner(
    snapshot: Snapshot,
    partition: Partition,
    owner: WorkerId,
    actual: Mapping[WorkerId, CurrentEntry],
) -> str:
    """The owner lives and nobody else says that it holds the partition."""
    said = actual.get(owner)
    if said is not None:
        return said.reason or f"worker {owner} says {said.state}"
    assignment = snapshot.assignments.get(owner)
    told = assignment.value.entries if assignment else {}
    if partition not in told:
        if len(told) >= MAX_ASSIGNED:
            return (
                f"worker {owner} cannot be told of more than {MAX_ASSIGNED} partitions: add workers"
            )
        return f"not given to worker {owner} yet"
    return f"worker {owner} has not answered its assignment yet"


def _unclear(snapshot: Snapshot, partition: Partition, entry: IdealEntry | None) -> str:
    """Not empty if the partition is left alone because a node cannot be read."""
    if partition.key in snapshot.unreadable_topics:
        return "left alone: a node of the topic cannot be read"
    involved = {entry.worker, *entry.holders} if entry else set()
    for worker in sorted(snapshot.unreadable_workers & involved):
        return f"left alone: a node of worker {worker} cannot be read"
    return ""


def validation_counts(
    snapshot: Snapshot, view: ExternalView, route: Route | None = None
) -> ValidationCounts:
    """Counts of one route or of all."""
    states: dict[PartitionState, int] = dict.fromkeys(PartitionState, 0)
    ideal: dict[WorkerId, int] = dict.fromkeys(snapshot.sessions, 0)
    keys: set[TopicKey] = set()
    error_topics: set[TopicKey] = set()
    excluded: Counter[str] = Counter()
    for partition in whitelisted_partitions(snapshot, route):
        entry = ideal_entry(snapshot, partition)
        state = _owner_state(view, partition, entry)
        states[state] += 1
        keys.add(partition.key)
        if state is PartitionState.ERROR:
            error_topics.add(partition.key)
        if state is PartitionState.OFFLINE and (why := partition_exclusion(snapshot, partition)):
            excluded[exclusion_kind(why)] += 1
        if entry and entry.worker is not None:
            ideal[entry.worker] = ideal.get(entry.worker, 0) + 1
    return ValidationCounts(
        topics=len(keys),
        topic_partitions=sum(states.values()),
        online=states[PartitionState.ONLINE],
        offline=states[PartitionState.OFFLINE],
        error=states[PartitionState.ERROR],
        error_topics=len(error_topics),
        ideal_state=ideal,
        external_view=_count_view(snapshot, view, route),
        excluded=excluded,
    )


def _owner_state(
    view: ExternalView, partition: Partition, entry: IdealEntry | None
) -> PartitionState:
    said = view.get(partition, {})
    if entry is None or entry.worker is None or entry.worker not in said:
        return PartitionState.OFFLINE
    return said[entry.worker].state


def _count_view(
    snapshot: Snapshot, view: ExternalView, route: Route | None
) -> Mapping[WorkerId, int]:
    counts: dict[WorkerId, int] = dict.fromkeys(snapshot.sessions, 0)
    for partition, said in view.items():
        if route in (None, partition.route):
            for worker in said:
                counts[worker] += 1
    return counts
