"""Replication loops: which topics are copies, so that no record is copied back to its origin.

With routes in both directions a copy is an ordinary topic of its cluster. It would be copied back by the
other route, and so on without end. A copy is recognised in two ways:

* By what is whitelisted: the target topic of an intent is a copy of its source topic, which may be a copy
  itself, over any number of clusters.
* By name: if the route in the other direction puts a prefix before names, a topic with that prefix is
  taken for a copy, also when it is no longer copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ureplicator_common.model import Route, RouteSettings, TopicKey, TopicState
from ureplicator_controller.core.state.snapshot import Snapshot

ClusterTopic = tuple[str, str]
"""A cluster's name and a topic there."""


def copies_by_target(snapshot: Snapshot) -> dict[ClusterTopic, TopicKey]:
    """Target topics, each with the source topic that is copied to it; the first one of several.

    Those that a cutover has reversed are none any more. A topic whose intent cannot be read is copied on: it
    counts under the name that its route gives it.
    """
    found: dict[ClusterTopic, TopicKey] = {}
    for key in sorted({*snapshot.topics, *snapshot.unreadable_topics}):
        stored = snapshot.topics.get(key)
        if stored is not None and stored.value.state is TopicState.REVERSED:
            continue
        found.setdefault((key.route.target, _target_topic(snapshot, key)), key)
    return found


def _target_topic(snapshot: Snapshot, key: TopicKey) -> str:
    stored = snapshot.topics.get(key)
    if stored is not None:
        return stored.value.target_topic
    published = snapshot.routes.get(key.route)
    return published.value.target_topic(key.topic) if published else key.topic


def origins(
    cluster: str, topic: str, copied: Mapping[ClusterTopic, TopicKey]
) -> Sequence[ClusterTopic]:
    """Topics that a topic's records were copied from, nearest first; empty if it is no copy."""
    found: list[ClusterTopic] = []
    current = (cluster, topic)
    while current in copied:
        key = copied[current]
        current = (key.route.source, key.topic)
        if current in found:
            break
        found.append(current)
    return found


def loop_reason(
    route: Route,
    topic: str,
    copied: Mapping[ClusterTopic, TopicKey],
    naming: Iterable[tuple[Route, RouteSettings]],
) -> str:
    """Reason why a source topic may contain records of the target cluster; "" if there is none."""
    for cluster, origin in origins(route.source, topic, copied):
        if cluster == route.target:
            return f"it is a copy of {origin} on {cluster}"
    back = Route(route.target, route.source)
    for other, settings in naming:
        if other == back and settings.prefix and topic.startswith(settings.prefix):
            return f"its prefix is that of copies from {route.target}"
    return ""
