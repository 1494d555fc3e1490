"""Which topics are copies, and of what: records must not come back to where they came from.

With routes both ways a copy is a topic like any other in its cluster, and would be copied back by
the other route, and so on without end. Two things tell a copy:

* what is whitelisted: the target topic of an intent is a copy of its source topic, which may be a
  copy itself, over any number of clusters;
* the name: where the route the other way puts a prefix before the names, a topic with that prefix
  is taken for a copy, also when nobody copies it any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ureplicator_common.model import Route, RouteSettings, TopicIntent, TopicKey

ClusterTopic = tuple[str, str]
"""A cluster's name and a topic there."""


def copies_by_target(intents: Mapping[TopicKey, TopicIntent]) -> dict[ClusterTopic, TopicKey]:
    """Every target topic -> what is copied to it; of several the first."""
    found: dict[ClusterTopic, TopicKey] = {}
    for key, intent in sorted(intents.items()):
        found.setdefault((key.route.target, intent.target_topic or key.topic), key)
    return found


def origins(
    cluster: str, topic: str, copied: Mapping[ClusterTopic, TopicKey]
) -> Sequence[ClusterTopic]:
    """Where the records of a topic came from, nearest first; nothing if it is no copy."""
    found: list[ClusterTopic] = []
    at = (cluster, topic)
    while at in copied:
        key = copied[at]
        at = (key.route.source, key.topic)
        if at in found:
            break
        found.append(at)
    return found


def loop_reason(
    route: Route,
    topic: str,
    copied: Mapping[ClusterTopic, TopicKey],
    naming: Iterable[tuple[Route, RouteSettings]],
) -> str:
    """Why a source topic has records of the target; "" if nothing says so."""
    for cluster, origin in origins(route.source, topic, copied):
        if cluster == route.target:
            return f"it is a copy of {origin} on {cluster}"
    back = Route(route.target, route.source)
    for other, settings in naming:
        if other == back and settings.prefix and topic.startswith(settings.prefix):
            return f"its name is that of a copy from {route.target}"
    return ""
