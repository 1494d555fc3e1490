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

from ureplicator_common.contents import TopicIntent
from ureplicator_common.model import Route, RouteSettings, TopicKey

ClusterTopic = tuple[str, str]
"""A cluster's name and a topic there."""


def copies_by_target(intents: Mapping[TopicKey, TopicIntent]) -> dict[ClusterTopic, TopicKey]:
    """Target topics, each with the source topic that is copied to it; the first one of several."""
    found: dict[ClusterTopic, TopicKey] = {}
    for key, intent in sorted(intents.items()):
        found.setdefault((key.route.target, intent.target_topic or key.topic), key)
    return found


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
