"""Counts of online, offline, failed and excluded partitions, as uReplicator's /validation gives them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ureplicator_common.model import PartitionState, Route, WorkerId
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.state.topic_tallies import Tallies


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
            "numReversedTopicPartitions": self.excluded.get("reversed", 0),
            "numBlacklistedTopicPartitions": self.excluded.get("blacklisted", 0),
            "numStoppedTopicPartitions": self.excluded.get("stopped", 0),
            "IdealState": dict(sorted(self.ideal_state.items())),
            "ExternalView": dict(sorted(self.external_view.items())),
        }


def validation_counts(
    snapshot: Snapshot, tallies: Tallies, route: Route | None = None
) -> ValidationCounts:
    """Count the partitions of one route or of all."""
    chosen = [totals for name, totals in tallies.totals.items() if route in (None, name)]
    states: Counter[PartitionState] = Counter()
    excluded: Counter[str] = Counter()
    ideal: Counter[WorkerId] = Counter(dict.fromkeys(snapshot.sessions, 0))
    held: Counter[WorkerId] = Counter(dict.fromkeys(snapshot.sessions, 0))
    for totals in chosen:
        states.update(totals.states)
        excluded.update(totals.excluded)
        ideal.update(totals.ideal)
        held.update(totals.held)
    return ValidationCounts(
        topics=sum(totals.topics for totals in chosen),
        topic_partitions=states.total(),
        online=states[PartitionState.ONLINE],
        offline=states[PartitionState.OFFLINE],
        error=states[PartitionState.ERROR],
        error_topics=sum(totals.error_topics for totals in chosen),
        ideal_state=ideal,
        external_view=held,
        excluded=excluded,
        differing=sum(totals.differing for totals in chosen),
    )


def counts_by_route(
    snapshot: Snapshot, tallies: Tallies, routes: Iterable[Route]
) -> dict[Route, ValidationCounts]:
    """Counts of these routes, and of all others that have topics."""
    every = dict.fromkeys((*routes, *sorted(tallies.totals)))
    return {route: validation_counts(snapshot, tallies, route) for route in every}
