"""Offsets of the groups of a cutover: written at the target, and put back by an abort."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ureplicator_common.cutovers import Cutover, GroupOffset
from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.groups import (
    EMPTY_STATES,
    CommittedOffset,
    ConsumerGroups,
    Offsets,
    TopicPartition,
)
from ureplicator_controller.core.groups.decisions import GroupDecision, SyncState
from ureplicator_controller.core.groups.selection import GroupFilter
from ureplicator_controller.core.groups.topics import RouteTopic
from ureplicator_controller.engines.cutover.clusters import CutoverClusters
from ureplicator_controller.engines.cutover.era_reader import EraReader
from ureplicator_controller.engines.groups.survey import RouteClusters, Survey
from ureplicator_controller.engines.groups.sync import write

NO_OFFSET = CommittedOffset(-1)
NOT_YET = frozenset({SyncState.UNKNOWN, SyncState.PENDING, SyncState.WAITS})
"""States that another look may end. The others are the outcome: what the plan has warned of."""
GONE_OVER = frozenset({SyncState.ACTIVE, SyncState.AHEAD})
"""States of groups that read at the target."""

Before = Mapping[str, tuple[GroupOffset, ...]]


class GroupMove:
    """Groups of one cutover. Belongs to one thread."""

    def __init__(
        self, clusters: CutoverClusters, cutover: Cutover, topics: Mapping[str, RouteTopic]
    ) -> None:
        plan = cutover.plan
        self._topics = topics
        self._names = plan.groups
        both = clusters.groups
        copied = EraReader(both.copied, clusters.back, route=plan.route, turns=cutover.turns)
        self._ends = RouteClusters(source=both.source, target=both.target, copied=copied)
        self._survey = Survey(self._ends, selected=GroupFilter.named(plan.groups))

    def found(self) -> Sequence[GroupDecision]:
        """Decision for each group. Raises ClusterUnavailable."""
        return self._survey.read(self._topics) if self._names else ()

    def members(self) -> tuple[str, ...]:
        """Groups with members at the source, in words. Raises ClusterUnavailable."""
        states = self._ends.source.states(self._names) if self._names else {}
        return tuple(
            f"group {name}: {state if isinstance(state, ClusterUnavailable) else 'it has members'}"
            for name, state in sorted(states.items())
            if state not in EMPTY_STATES
        )

    def before(self, found: Sequence[GroupDecision], known: Before) -> Before:
        """`known`, with the offsets at the target that are about to be changed and that it lacks: what could
        not be written at first, or was not there yet. Raises ClusterUnavailable."""
        kept = {
            group: {(each.topic, each.partition) for each in offsets}
            for group, offsets in known.items()
        }
        lacking = {
            decision.group: keys
            for decision in found
            if (keys := [key for key in decision.writes if key not in kept.get(decision.group, ())])
        }
        there = self._ends.target.offsets(list(lacking)) if lacking else {}
        more = {group: _offsets(there[group], keys) for group, keys in lacking.items()}
        return {group: (*known.get(group, ()), *more.get(group, ())) for group in {**known, **more}}

    def write(
        self, found: Sequence[GroupDecision], *, may_write: Callable[[], bool]
    ) -> Sequence[GroupDecision]:
        """The decisions with their outcomes. Raises ClusterUnavailable."""
        return write(self._ends.target, found, may_write=may_write)


def _offsets(
    there: Offsets | ClusterUnavailable, wanted: Iterable[TopicPartition]
) -> tuple[GroupOffset, ...]:
    """Raises ClusterUnavailable where they are not known."""
    if isinstance(there, ClusterUnavailable):
        raise there
    return tuple(GroupOffset(*key, *there.get(key, NO_OFFSET)) for key in wanted)


def outcomes(found: Sequence[GroupDecision]) -> dict[str, str]:
    return {
        decision.group: f"{decision.state}: {decision.reason}"
        if decision.reason
        else decision.state
        for decision in found
    }


def unfinished(found: Sequence[GroupDecision]) -> tuple[str, ...]:
    """Groups whose offsets are not at the target yet, in words."""
    return tuple(
        f"group {decision.group}: {decision.reason or decision.state}"
        for decision in found
        if decision.state in NOT_YET
    )


def put_back(
    target: ConsumerGroups, before: Before, *, prove: Callable[[], None]
) -> tuple[str, ...]:
    """Give the groups of the target the offsets that they had before; what was refused, in words. `prove` is
    called before each change. Raises OperatingError."""
    kept: dict[str, Offsets] = {}
    gone: dict[str, list[TopicPartition]] = {}
    for group, offsets in before.items():
        if there := _there(offsets):
            kept[group] = there
        if none := [(each.topic, each.partition) for each in offsets if each.offset < 0]:
            gone[group] = none
    refusals: list[Mapping[str, Mapping[TopicPartition, str] | ClusterUnavailable]] = []
    if kept:
        prove()
        refusals.append(target.commit(kept))
    if gone:
        prove()
        refusals.append(target.delete_offsets(gone))
    return tuple(
        f"group {group}: {_final(refused)}"
        for found in refusals
        for group, refused in sorted(found.items())
        if refused
    )


def _final(
    refused: Mapping[TopicPartition, str] | ClusterUnavailable,
) -> Mapping[TopicPartition, str]:
    """A refusal that another try would not end. Raises ClusterUnavailable for one that it may."""
    if isinstance(refused, ClusterUnavailable):
        raise refused
    return refused


def _there(offsets: Iterable[GroupOffset]) -> Offsets:
    return {
        (each.topic, each.partition): CommittedOffset(each.offset, each.metadata)
        for each in offsets
        if each.offset >= 0
    }
