"""Partitions that no worker should copy, with the reason that operators read.

The plan takes such a partition from its owner and gives the reason. REST shows the same reasons, so
that an intended stop can be distinguished from a failure. Where several reasons apply, the first counts:
topic deleted, stopped, route not configured, reversed, paused, route paused, blacklisted, position requested.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from ureplicator_common.model import Partition, Route, TopicKey, TopicState
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_controller.core.state.snapshot import Snapshot

REVERSED = "reversed: a cutover has moved its clients to the target"
PAUSED = "paused"
ROUTE_PAUSED = "paused: the whole route"
ROUTE_RESUMED = "route resumed"
"""Reason of the owner that a partition gets afterwards."""
BLACKLISTED = "blacklisted"
DELETING = "topic deleted"
STOPPED = "stopped: "
ROUTE_UNCONFIGURED = "stopped: route is not configured"
"""Reason of the leader, see `core.routes`."""
POSITION_REQUESTED = "position requested"
"""Reason until the leader has set or deleted its position (`core.positions.changes`)."""


@dataclass(frozen=True, slots=True)
class ExcludedPartitions:
    """Partitions of one topic that are excluded for the same reason.

    `state` is the reason as a keyword: paused, reversed, blacklisted, stopped or position requested.
    """

    key: TopicKey
    partitions: tuple[int, ...]
    state: str
    reason: str


def exclusion_reason(
    intent: TopicIntent | None,
    number: int,
    *,
    is_route_configured: bool = True,
    is_route_paused: bool = False,
    is_blacklisted: bool = False,
) -> str:
    """Reason why partition `number` of a topic is excluded; "" if it is not."""
    if intent is None or intent.state is TopicState.DELETING or number >= intent.partitions:
        return DELETING
    if intent.stopped:
        return f"{STOPPED}{intent.stopped}"
    if not is_route_configured:
        return ROUTE_UNCONFIGURED
    if intent.state is TopicState.REVERSED:
        return REVERSED
    if intent.state is TopicState.PAUSED:
        return PAUSED
    if is_route_paused:
        return ROUTE_PAUSED
    if is_blacklisted or number in intent.blacklisted:
        return BLACKLISTED
    return POSITION_REQUESTED if intent.awaits_position(number) else ""


def partition_exclusion(snapshot: Snapshot, partition: Partition) -> str:
    """Reason why a partition of the fleet is excluded; "" if it is not."""
    stored = snapshot.topics.get(partition.key)
    intent = stored.value if stored else None
    return _reasons(snapshot, partition.key, intent)(partition.number)


def _reasons(snapshot: Snapshot, key: TopicKey, intent: TopicIntent | None) -> Callable[[int], str]:
    """`exclusion_reason` by the number of a partition: what holds for the whole topic is looked up once."""
    return partial(
        exclusion_reason,
        intent,
        is_route_configured=is_configured(snapshot, key.route),
        is_route_paused=key.route in snapshot.switches.paused_routes,
        is_blacklisted=key in snapshot.blacklist,
    )


def is_configured(snapshot: Snapshot, route: Route) -> bool:
    """False if the leader has withdrawn the route."""
    stored = snapshot.routes.get(route)
    return stored is None or stored.value.configured


Exclusions = tuple[frozenset[Route], frozenset[TopicKey], frozenset[Route]]
"""Paused routes, blacklisted topics, routes that are not configured."""


def exclusions_of_topics(snapshot: Snapshot) -> Exclusions:
    """Exclusions of partitions that the intents of their topics do not name."""
    unconfigured = (
        route for route, stored in snapshot.routes.items() if not stored.value.configured
    )
    return snapshot.switches.paused_routes, snapshot.blacklist, frozenset(unconfigured)


def exclusion_kind(reason: str) -> str:
    """Keyword of a reason, by which exclusions are counted: the text before the colon."""
    return reason.partition(":")[0]


def effective_state(snapshot: Snapshot, key: TopicKey) -> str:
    """State that takes effect on a topic: a value of `TopicState`, "stopped", or "blacklisted"."""
    intent = snapshot.topics[key].value
    if intent.state is TopicState.DELETING:
        return intent.state.value
    if intent.blacklisted or intent.positions:
        intent = replace(intent, blacklisted=frozenset(), positions={})
    reason = _reasons(snapshot, key, intent)(0)
    return exclusion_kind(reason) or intent.state.value


def excluded_partitions(snapshot: Snapshot, route: Route | None = None) -> list[ExcludedPartitions]:
    """Excluded partitions of all topics that are not being deleted, in order; of one route or of all."""
    found: list[ExcludedPartitions] = []
    paused, blacklisted, unconfigured = exclusions_of_topics(snapshot)
    routes = paused | unconfigured
    concerned = [
        key
        for key, stored in snapshot.topics.items()
        if _excludes(stored.value) or key.route in routes or key in blacklisted
    ]
    for key in sorted(concerned):
        intent = snapshot.topics[key].value
        if intent.state is TopicState.DELETING or route not in (None, key.route):
            continue
        reason_of = _reasons(snapshot, key, intent)
        numbers: dict[str, list[int]] = {}
        for number in range(intent.partitions):
            reason = reason_of(number)
            if reason:
                numbers.setdefault(reason, []).append(number)
        found += [
            ExcludedPartitions(key, tuple(of_reason), exclusion_kind(reason), reason)
            for reason, of_reason in numbers.items()
        ]
    return found


def _excludes(intent: TopicIntent) -> bool:
    """True if an intent by itself may exclude any of its partitions."""
    return bool(
        intent.state is not TopicState.ACTIVE
        or intent.stopped
        or intent.blacklisted
        or intent.positions
    )
