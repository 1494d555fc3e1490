"""Plans of cutovers: what patterns stand for, the id of a plan, and what has changed since. Pure.

A pattern is a regular expression for whole names; the name of something that is there stands for that alone,
whatever characters it has. A pattern passes over topics that have been cut over already, so that a route can
go in waves, and over heartbeats. Who names such a topic is told what is the matter with it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from ureplicator_common.cutovers import CutoverPlan
from ureplicator_common.heartbeats import is_heartbeat_topic
from ureplicator_common.model import Route, TopicState
from ureplicator_common.znodes.cutovers import encode_plan
from ureplicator_controller.core.state.snapshot import Snapshot

PLAN_ID_DIGITS = 16
MAX_CHANGES = 5
"""Names that a change lists."""


class UnusablePattern(ValueError):
    """A pattern that is neither the name of something nor a regular expression."""


@dataclass(frozen=True, slots=True)
class Matched:
    """Names that patterns stand for, in order, and the patterns that stand for none."""

    names: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()


def matched(
    patterns: Sequence[str], names: Collection[str], *, named_only: Collection[str] = ()
) -> Matched:
    """`named_only`: names that no other pattern stands for. Raises UnusablePattern."""
    found = {
        pattern: [pattern]
        if pattern in names or pattern in named_only
        else list(_matching(pattern, names))
        for pattern in patterns
    }
    return Matched(
        tuple(sorted({name for fitting in found.values() for name in fitting})),
        tuple(pattern for pattern, fitting in found.items() if not fitting),
    )


def _matching(pattern: str, names: Collection[str]) -> Iterator[str]:
    try:
        compiled = re.compile(pattern, re.DOTALL)
    except re.error as error:
        raise UnusablePattern(f"{pattern!r} is not a regular expression: {error}") from error
    return filter(compiled.fullmatch, names)


def matched_topics(snapshot: Snapshot, route: Route, patterns: Sequence[str]) -> Matched:
    """Topics of the route that the patterns stand for. Raises UnusablePattern."""
    intents = {
        key.topic: stored.value for key, stored in snapshot.topics.items() if key.route == route
    }
    passed_over = {
        topic
        for topic, intent in intents.items()
        if intent.state is TopicState.REVERSED or is_heartbeat_topic(topic)
    }
    return matched(patterns, intents.keys() - passed_over, named_only=passed_over)


def identified(plan: CutoverPlan) -> CutoverPlan:
    """The plan with its id, a digest of all else."""
    digest = hashlib.sha256(encode_plan(replace(plan, id=""))).hexdigest()
    return replace(plan, id=digest[:PLAN_ID_DIGITS])


def way_back(plan: CutoverPlan) -> CutoverPlan:
    """The plan by which the very same topics and groups go back; it is to be resolved."""
    return replace(
        plan,
        id="",
        route=Route(plan.route.target, plan.route.source),
        topic_patterns=tuple(sorted(plan.topics)),
        group_patterns=tuple(sorted(plan.groups)),
    )


def plan_changes(before: CutoverPlan, now: CutoverPlan) -> tuple[str, ...]:
    """What is otherwise in the plan of now, in words."""
    common = sorted(before.topics.keys() & now.topics.keys())
    counts = [
        f"topic {topic} has {now.topics[topic]} partitions, it had {before.topics[topic]}"
        for topic in common
        if now.topics[topic] != before.topics[topic]
    ]
    found = (
        *_differing("topic", before.topics, now.topics),
        *_shortened(counts),
        *_differing("group", before.groups, now.groups),
        "rights of the source are others" if before.acls != now.acls else "",
    )
    changes = tuple(filter(None, found))
    return changes if changes or before.id == now.id else ("it was asked for otherwise",)


def _differing(kind: str, before: Collection[str], now: Collection[str]) -> Iterator[str]:
    new, gone = sorted(set(now) - set(before)), sorted(set(before) - set(now))
    if new:
        yield f"{kind}s added: {listed(new)}"
    if gone:
        yield f"{kind}s gone: {listed(gone)}"


def _shortened(texts: Sequence[str]) -> Iterator[str]:
    yield from texts[:MAX_CHANGES]
    if len(texts) > MAX_CHANGES:
        yield f"and {len(texts) - MAX_CHANGES} more topics have other numbers of partitions"


def listed(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    shown = ", ".join(names[:MAX_CHANGES])
    more = len(names) - MAX_CHANGES
    return f"{shown} and {more} more" if more > 0 else shown
