"""Tally of each topic: how many of its partitions are online, excluded, held, and which differ.

Counts and mismatches of a fleet are drawn from tallies. In a fleet of 100,000 partitions few topics change
between two looks, so `TopicTallies` keeps the others: a tally depends on the topic's intent, its ideal state,
its part of the external view and the harm that its target topic does, which are the same objects while they
are unchanged, and on the switches that exclude topics. The totals of a route are those before, with what
changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from ureplicator_common.model import (
    Partition,
    PartitionState,
    Route,
    TopicKey,
    TopicState,
    WorkerId,
)
from ureplicator_common.znode_contents import IdealEntry
from ureplicator_controller.core.state.by_topic import TopicMemo
from ureplicator_controller.core.state.exclusions import (
    Exclusions,
    exclusion_kind,
    exclusions_of_topics,
    partition_exclusion,
)
from ureplicator_controller.core.state.external_view import (
    ExternalView,
    Reported,
    harm_to,
    is_active,
)
from ureplicator_controller.core.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class TopicTally:
    """`states`: whitelisted partitions by the state that their ideal owner reports, OFFLINE without one.
    `excluded`: of the offline ones, by the kind of exclusion. `ideal`, `held`: partitions by worker.
    `differing`: numbers whose external view is not their ideal state, or whose target topic does harm; also
    of partitions that are not whitelisted and yet reported; in order."""

    states: Mapping[PartitionState, int]
    excluded: Mapping[str, int]
    ideal: Mapping[WorkerId, int]
    held: Mapping[WorkerId, int]
    differing: tuple[int, ...]

    @property
    def partitions(self) -> int:
        """Whitelisted ones."""
        return sum(self.states.values())


@dataclass(slots=True)
class RouteTotals:
    """Sums over the topics of a route; see `TopicTally`. `topics`: with whitelisted partitions."""

    topics: int = 0
    error_topics: int = 0
    differing: int = 0
    states: Counter[PartitionState] = field(default_factory=Counter)
    excluded: Counter[str] = field(default_factory=Counter)
    ideal: Counter[WorkerId] = field(default_factory=Counter)
    held: Counter[WorkerId] = field(default_factory=Counter)

    def add(self, tally: TopicTally) -> None:
        self._count(tally, 1)
        for total, more in self._counters(tally):
            total.update(more)

    def subtract(self, tally: TopicTally) -> None:
        """Take a topic out that was added."""
        self._count(tally, -1)
        for total, less in self._counters(tally):
            total.subtract(less)

    def copy(self) -> RouteTotals:
        """The sums of now, without what has become zero."""
        return RouteTotals(
            self.topics,
            self.error_topics,
            self.differing,
            +self.states,
            +self.excluded,
            +self.ideal,
            +self.held,
        )

    def _count(self, tally: TopicTally, sign: int) -> None:
        self.topics += sign * (tally.partitions > 0)
        self.error_topics += sign * (tally.states.get(PartitionState.ERROR, 0) > 0)
        self.differing += sign * len(tally.differing)

    def _counters(self, tally: TopicTally) -> tuple[tuple[Counter[Any], Mapping[Any, int]], ...]:
        return (
            (self.states, tally.states),
            (self.excluded, tally.excluded),
            (self.ideal, tally.ideal),
            (self.held, tally.held),
        )


@dataclass(frozen=True, slots=True)
class Tallies:
    """Tallies of one state of the fleet, and their totals by route."""

    by_topic: Mapping[TopicKey, TopicTally]
    totals: Mapping[Route, RouteTotals]


class TopicTallies:
    """Tallies of one state of the fleet after the other. Not thread-safe."""

    def __init__(self) -> None:
        self._memo: TopicMemo[TopicTally] = TopicMemo()
        self._exclusions: Exclusions | None = None
        self._totals: Mapping[Route, RouteTotals] = {}

    def of(self, snapshot: Snapshot, view: ExternalView) -> Tallies:
        """Tallies of all topics that are whitelisted or reported."""
        exclusions = exclusions_of_topics(snapshot)
        if exclusions != self._exclusions:
            self._memo.clear()
        self._exclusions = exclusions
        before = self._memo.results
        tallies = self._memo.update(
            (snapshot.topics, snapshot.ideal, view.by_topic, snapshot.harm),
            lambda key: _tally(snapshot, key, view.topic(key)),
            topics=(snapshot.topics, view.by_topic),
        )
        self._totals = _changed_totals(
            self._totals if before else {}, before, tallies, self._memo.changed
        )
        return Tallies(tallies, self._totals)


def topic_tallies(snapshot: Snapshot, view: ExternalView) -> Tallies:
    """Tallies of one state of the fleet."""
    return TopicTallies().of(snapshot, view)


def _changed_totals(
    totals: Mapping[Route, RouteTotals],
    before: Mapping[TopicKey, TopicTally],
    after: Mapping[TopicKey, TopicTally],
    topics: Set[TopicKey],
) -> Mapping[Route, RouteTotals]:
    """Totals after these changes of tallies, which are of `topics`; those given stay as they are."""
    changed: dict[Route, RouteTotals] = {}
    for key in topics:
        old, new = before.get(key), after.get(key)
        if old is new:
            continue
        if key.route not in changed:
            changed[key.route] = totals.get(key.route, RouteTotals()).copy()
        if old is not None:
            changed[key.route].subtract(old)
        if new is not None:
            changed[key.route].add(new)
    left = {key.route for key in after} if changed else totals.keys()
    kept = {**totals, **{route: of_route.copy() for route, of_route in changed.items()}}
    return {route: of_route for route, of_route in kept.items() if route in left}


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
    partition = Partition(key.route, key.topic, number)
    if owner is None:
        return bool(reported) or is_active(snapshot, partition)
    if key in snapshot.harm and harm_to(snapshot, partition):
        return True
    if not reported or len(reported) > 1 or owner not in reported:
        return True
    return reported[owner].state is not PartitionState.ONLINE
