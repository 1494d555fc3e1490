"""Tally of each topic: how many of its partitions are online, excluded, held, and which differ.

Counts and mismatches of a fleet are drawn from tallies. In a fleet of 100,000 partitions few topics change
between two looks, so `TopicTallies` keeps the others: a tally depends on the topic's intent, its ideal state
and its part of the external view, which are the same objects while they are unchanged, and on the switches
that exclude topics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ureplicator_common.contents import IdealEntry
from ureplicator_common.model import (
    Partition,
    PartitionState,
    Route,
    TopicKey,
    TopicState,
    WorkerId,
)
from ureplicator_controller.core.state.exclusions import exclusion_kind, partition_exclusion
from ureplicator_controller.core.state.external_view import ExternalView, Reported, is_active
from ureplicator_controller.core.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class TopicTally:
    """`states`: whitelisted partitions by the state that their ideal owner reports, OFFLINE without one.
    `excluded`: of the offline ones, by the kind of exclusion. `ideal`, `held`: partitions by worker.
    `differing`: numbers whose external view is not their ideal state, also of partitions that are not
    whitelisted and yet reported; in order."""

    states: Mapping[PartitionState, int]
    excluded: Mapping[str, int]
    ideal: Mapping[WorkerId, int]
    held: Mapping[WorkerId, int]
    differing: tuple[int, ...]

    @property
    def partitions(self) -> int:
        """Whitelisted ones."""
        return sum(self.states.values())


Tallies = Mapping[TopicKey, TopicTally]
Inputs = tuple[Any, Any, Mapping[int, Reported]]
"""Stored intent, stored ideal state and reports of a topic."""
Exclusions = tuple[frozenset[Route], frozenset[TopicKey], frozenset[Route]]
"""Paused routes, blacklisted topics, routes that are not configured."""


class TopicTallies:
    """Tallies of one state of the fleet after the other. Not thread-safe."""

    def __init__(self) -> None:
        self._inputs: dict[TopicKey, Inputs] = {}
        self._tallies: dict[TopicKey, TopicTally] = {}
        self._exclusions: Exclusions | None = None

    def of(self, snapshot: Snapshot, view: ExternalView) -> Tallies:
        """Tallies of all topics that are whitelisted or reported."""
        exclusions = _exclusions(snapshot)
        if exclusions != self._exclusions:
            self._inputs, self._tallies = {}, {}
        inputs, tallies = self._inputs, self._tallies
        self._inputs, self._tallies, self._exclusions = {}, {}, exclusions
        for key in {*snapshot.topics, *view.by_topic}:
            now = snapshot.topics.get(key), snapshot.ideal.get(key), view.topic(key)
            known = inputs.get(key)
            if known and all(one is other for one, other in zip(known, now, strict=True)):
                tally = tallies[key]
            else:
                tally = _tally(snapshot, key, now[2])
            self._inputs[key], self._tallies[key] = now, tally
        return self._tallies


def topic_tallies(snapshot: Snapshot, view: ExternalView) -> Tallies:
    """Tallies of one state of the fleet."""
    return TopicTallies().of(snapshot, view)


def _exclusions(snapshot: Snapshot) -> Exclusions:
    unconfigured = (route for route, each in snapshot.routes.items() if not each.value.configured)
    return snapshot.switches.paused_routes, snapshot.blacklist, frozenset(unconfigured)


def _tally(snapshot: Snapshot, key: TopicKey, topic: Mapping[int, Reported]) -> TopicTally:
    intent, ideal = snapshot.topics.get(key), snapshot.ideal.get(key)
    is_whitelisted = intent is not None and intent.value.state is not TopicState.DELETING
    listed = range(intent.value.partitions if intent is not None and is_whitelisted else 0)
    entries: Mapping[int, IdealEntry] = ideal.value.entries if ideal else {}
    states: Counter[PartitionState] = Counter()
    excluded: Counter[str] = Counter()
    owners: Counter[WorkerId] = Counter()
    for number in listed:
        entry = entries.get(number)
        owner = entry.worker if entry else None
        state = _owner_state(topic.get(number), owner)
        states[state] += 1
        if owner is not None:
            owners[owner] += 1
        if state is PartitionState.OFFLINE:
            why = partition_exclusion(snapshot, Partition(key.route, key.topic, number))
            if why:
                excluded[exclusion_kind(why)] += 1
    held = Counter(worker for reported in topic.values() for worker in reported)
    numbers = (*listed, *sorted(topic.keys() - set(listed)))
    differing = (n for n in numbers if _differs(snapshot, key, n, entries.get(n), topic.get(n)))
    return TopicTally(states, excluded, owners, held, tuple(differing))


def _owner_state(reported: Reported | None, owner: WorkerId | None) -> PartitionState:
    """State that the ideal owner reports; OFFLINE without such a report."""
    if not reported or owner is None or owner not in reported:
        return PartitionState.OFFLINE
    return reported[owner].state


def _differs(
    snapshot: Snapshot,
    key: TopicKey,
    number: int,
    entry: IdealEntry | None,
    reported: Reported | None,
) -> bool:
    owner = entry.worker if entry else None
    if owner is None:
        return bool(reported) or is_active(snapshot, Partition(key.route, key.topic, number))
    if not reported or len(reported) > 1 or owner not in reported:
        return True
    return reported[owner].state is not PartitionState.ONLINE
