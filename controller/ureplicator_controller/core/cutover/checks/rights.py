"""Checks of access rights: who may use the topics at the source, and may not at the target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ureplicator_common.cutovers import FenceKind
from ureplicator_common.kafka.acls import ALL_USERS, READ, WRITE
from ureplicator_controller.core.cutover.facts import (
    ClusterRights,
    Facts,
    Level,
    PlanFinding,
    or_ok,
)
from ureplicator_controller.core.cutover.plan import listed
from ureplicator_controller.core.cutover.topic_rights import readers, without, writers

_USES = ((WRITE, writers, Level.BLOCKS), (READ, readers, Level.WARNING))


def rights(facts: Facts) -> Iterable[PlanFinding]:
    """Principals that could not go on at the target."""
    text = "whoever may write or read the topics at the source may do so at the target"
    return or_ok(_rights(facts), "rights", str(facts.route), text)


def _rights(facts: Facts) -> Iterator[PlanFinding]:
    here, there = facts.rights_here, facts.rights_there
    for cluster, found in zip(facts.route, (here, there), strict=True):
        if found.unread:
            text = f"rights of {cluster} cannot be read: {found.unread}"
            advice = "see yourself that producers and consumers have theirs at the target"
            yield PlanFinding(cluster, "rights", Level.WARNING, text, advice)
    yield from _fleet_lacks(facts)
    if here.unread or there.unread or there.acls is None:
        return
    if here.acls is None:
        text = f"{facts.route.source} has no authorizer, {facts.route.target} has one"
        advice = "see yourself that producers and consumers have rights there"
        yield PlanFinding(facts.route.target, "rights", Level.WARNING, text, advice)
        return
    for operation, who, level in _USES:
        lacking: dict[str, list[str]] = {}
        for topic, intent in facts.intents.items():
            users = who(here.acls, topic, opens_topics=here.opens_topics) - facts.own_principals
            for principal in _without(users, operation, there, intent.target_topic):
                lacking.setdefault(principal, []).append(topic)
        yield from _lacking(facts, operation, level, lacking)


def _fleet_lacks(facts: Facts) -> Iterator[PlanFinding]:
    """The way back writes at the source; the fence of rights gives the fleet what it needs for that."""
    plan, here = facts.plan, facts.rights_here
    is_needed = plan.way_back and plan.fence is not FenceKind.ACL and facts.principal
    if not is_needed or here.acls is None:
        return
    own, opens_topics = [facts.principal], here.opens_topics
    for topic in plan.topics:
        if without(own, WRITE, here.acls, topic, opens_topics=opens_topics):
            text = f"{facts.principal} may not WRITE it at {facts.route.source}"
            advice = "the way back needs it, unless the fleet is a super user there"
            yield PlanFinding(topic, "rights", Level.WARNING, text, advice)


def _without(
    users: frozenset[str], operation: str, there: ClusterRights, topic: str
) -> frozenset[str]:
    assert there.acls is not None
    return without(users, operation, there.acls, topic, opens_topics=there.opens_topics)


def _lacking(
    facts: Facts, operation: str, level: Level, lacking: dict[str, list[str]]
) -> Iterator[PlanFinding]:
    source, target = facts.route
    for principal, topics in sorted(lacking.items()):
        text = f"may {operation} {listed(topics)} at {source}, and not at {target}"
        advice = f"give it {operation} there, or take it away here"
        if principal == ALL_USERS:
            advice = f"give {operation} there to all who need it"
        is_named = principal != ALL_USERS
        yield PlanFinding(principal, "rights", level if is_named else Level.WARNING, text, advice)
