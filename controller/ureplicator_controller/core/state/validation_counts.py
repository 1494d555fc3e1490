"""Counts of online, offline, failed and excluded partitions, as uReplicator's /validation gives them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from ureplicator_common.model import PartitionState, Route, TopicKey, WorkerId
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.state.topic_tallies import Tallies, TopicTally

K = TypeVar("K")


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
    differing: int
    """Mismatches, also of partitions that are not whitelisted."""

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
    snapshot: Snapshot, tallies: Tallies, route: Route | None = None
) -> ValidationCounts:
    """Count the partitions of one route or of all."""
    states: dict[PartitionState, int] = dict.fromkeys(PartitionState, 0)
    excluded: dict[str, int] = {}
    ideal: dict[WorkerId, int] = dict.fromkeys(snapshot.sessions, 0)
    held: dict[WorkerId, int] = dict.fromkeys(snapshot.sessions, 0)
    topics = error_topics = differing = 0
    for key, tally in tallies.items():
        if route not in (None, key.route):
            continue
        topics += tally.partitions > 0
        differing += len(tally.differing)
        error_topics += tally.states.get(PartitionState.ERROR, 0) > 0
        _add(states, tally.states)
        _add(excluded, tally.excluded)
        _add(ideal, tally.ideal)
        _add(held, tally.held)
    return ValidationCounts(
        topics=topics,
        topic_partitions=sum(states.values()),
        online=states[PartitionState.ONLINE],
        offline=states[PartitionState.OFFLINE],
        error=states[PartitionState.ERROR],
        error_topics=error_topics,
        ideal_state=ideal,
        external_view=held,
        excluded=excluded,
        differing=differing,
    )


def counts_by_route(
    snapshot: Snapshot, tallies: Tallies, routes: Iterable[Route]
) -> dict[Route, ValidationCounts]:
    """Counts of these routes, and of all others that have topics."""
    divided: dict[Route, dict[TopicKey, TopicTally]] = {route: {} for route in routes}
    for key, tally in tallies.items():
        divided.setdefault(key.route, {})[key] = tally
    return {route: validation_counts(snapshot, of_route) for route, of_route in divided.items()}


def _add(total: dict[K, int], more: Mapping[K, int]) -> None:
    """As `Counter.update`, several times as fast for a few keys."""
    for key, number in more.items():
        total[key] = total.get(key, 0) + number
