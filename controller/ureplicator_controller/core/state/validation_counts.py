"""Counts of online, offline, failed and excluded partitions, as uReplicator's /validation gives them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ureplicator_common.contents import IdealEntry
from ureplicator_common.model import Partition, PartitionState, Route, TopicKey, WorkerId
from ureplicator_controller.core.state.exclusions import exclusion_kind, partition_exclusion
from ureplicator_controller.core.state.external_view import (
    ExternalView,
    ideal_entry,
    whitelisted_partitions,
)
from ureplicator_controller.core.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class ValidationCounts:
    """Counts in the format of uReplicator's /validation.

    Each whitelisted partition is counted once, by the state that its ideal owner reports: online,
    offline (also if it has no owner, or only another worker reports it) or in error. `error_topics`
    have at least one partition in error. `excluded` counts the offline ones that are paused,
    blacklisted or stopped.
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
        """uReplicator's field names, and three more for partitions that it counted as offline."""
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


def validation_counts(
    snapshot: Snapshot, view: ExternalView, route: Route | None = None
) -> ValidationCounts:
    """Count the partitions of one route or of all."""
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
    """State that the ideal owner reports; OFFLINE without such a report."""
    reported = view.get(partition, {})
    if entry is None or entry.worker is None or entry.worker not in reported:
        return PartitionState.OFFLINE
    return reported[entry.worker].state


def _count_view(
    snapshot: Snapshot, view: ExternalView, route: Route | None
) -> Mapping[WorkerId, int]:
    """Number of partitions that each live worker reports."""
    counts: dict[WorkerId, int] = dict.fromkeys(snapshot.sessions, 0)
    for partition, reported in view.items():
        if route in (None, partition.route):
            for worker in reported:
                counts[worker] += 1
    return counts
