"""Checks of the consumer groups that a cutover moves, and of those that it leaves behind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ureplicator_common.kafka.groups import GroupList
from ureplicator_controller.core.cutover.facts import (
    Facts,
    GroupFacts,
    Level,
    PlanFinding,
    counted,
    or_ok,
)
from ureplicator_controller.core.cutover.plan import listed, matched
from ureplicator_controller.core.groups.decisions import GroupDecision, SyncState

MOVABLE = frozenset(SyncState) - {SyncState.UNSUPPORTED, SyncState.NO_OFFSETS, SyncState.GONE}

_LEVELS: Mapping[SyncState, tuple[Level, str]] = {
    SyncState.UNSUPPORTED: (Level.WARNING, "it is not moved: move it by its own tools"),
    SyncState.UNKNOWN: (Level.WARNING, "plan again when the cluster responds"),
    SyncState.REFUSED: (Level.BLOCKS, "give the fleet the right, or leave the group out"),
    SyncState.ACTIVE: (Level.BLOCKS, "stop its consumers at the target"),
    SyncState.NOT_COPIED: (Level.BLOCKS, "wait until its partitions are copied"),
    SyncState.NO_MAP: (
        Level.BLOCKS,
        "ureplicator audit --offset-map adds what was copied before the map, or leave the group out",
    ),
    SyncState.AHEAD: (Level.WARNING, "it goes on there, and may pass what it has not read"),
}
"""States in which something is to be said; in any other one the group can be moved."""


def group_facts(
    patterns: Sequence[str], found: Sequence[GroupDecision], at_source: GroupList
) -> GroupFacts:
    """`found`: decisions about all groups with offsets on the topics. Raises UnusablePattern."""
    on_topics = {each.group: each for each in found if each.partitions or each.reason}
    chosen = matched(patterns, _candidates(on_topics))
    listed_ids = at_source.groups
    return GroupFacts(
        chosen=[on_topics[id] for id in chosen.names],
        left=sorted(
            id for id, each in on_topics.items() if each.partitions and id not in chosen.names
        ),
        active=frozenset(id for id, group in listed_ids.items() if group.has_members),
        unmatched=chosen.unmatched,
        unlisted="; ".join(f"{broker}: {why}" for broker, why in sorted(at_source.failed.items())),
    )


def _candidates(decisions: Mapping[str, GroupDecision]) -> list[str]:
    """Groups with offsets on the topics, and those of which that cannot be said."""
    return [id for id, each in decisions.items() if each.state is not SyncState.NO_OFFSETS]


def maps(facts: Facts) -> Iterable[PlanFinding]:
    """Offset maps, by which offsets of groups are translated there and back."""
    if not facts.plan.groups:
        return
    ways = [facts.route, facts.back] if facts.plan.way_back else [facts.route]
    for route in ways:
        settings = facts.routes.get(route)
        if settings is None:
            continue
        if settings.offset_map:
            text = "offsets of groups are translated by its offset map"
            yield PlanFinding(str(route), "offset map", Level.OK, text)
        else:
            text = "without an offset map offsets of groups cannot be translated"
            advice = f"set offset_map: true for {route}, or plan without groups"
            yield PlanFinding(str(route), "offset map", Level.BLOCKS, text, advice)


def groups(facts: Facts) -> Iterable[PlanFinding]:
    """Groups that cannot be moved as they are; nothing where none is to be moved."""
    if not facts.plan.group_patterns:
        return []
    text = f"{counted(len(facts.plan.groups), 'group')} can be moved"
    return or_ok(_groups(facts), "groups", str(facts.route), text)


def _groups(facts: Facts) -> Iterator[PlanFinding]:
    for pattern in facts.groups.unmatched:
        text = f"no group of {facts.route.source} with offsets on these topics has such a name"
        yield PlanFinding(pattern, "groups", Level.BLOCKS, text, "look at the list of groups")
    if facts.groups.unlisted:
        text = f"groups may be missing: {facts.groups.unlisted}"
        advice = "plan again when all brokers respond"
        yield PlanFinding(facts.route.source, "groups", Level.WARNING, text, advice)
    for decision in facts.groups.chosen:
        known = _LEVELS.get(decision.state)
        if known is not None:
            level, advice = known
            reason = f": {decision.reason}" if decision.reason else ""
            text = f"{decision.state}{reason}"
            yield PlanFinding(decision.group, "groups", level, text, advice)


def members(facts: Facts) -> Iterable[PlanFinding]:
    """Groups whose consumers are at the source."""
    active = [group for group in facts.plan.groups if group in facts.groups.active]
    if not active:
        return
    if facts.plan.waits_for_groups:
        text = "consumers are members at the source: the cutover waits until they have left"
        advice = "stop them after the start"
    else:
        text = (
            "consumers are members at the source: what they commit during the cutover may be left"
        )
        advice = "stop them first, or have the cutover wait for them"
    yield PlanFinding(listed(active), "members", Level.WARNING, text, advice)


def others(facts: Facts) -> Iterable[PlanFinding]:
    """Groups that read these topics and stay at the source."""
    if facts.groups.left:
        text = "offsets of these groups on the topics are not moved"
        advice = "move them, too, if their consumers go on at the target"
        yield PlanFinding(listed(facts.groups.left), "other groups", Level.WARNING, text, advice)
