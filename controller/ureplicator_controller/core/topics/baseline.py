"""Baseline of a route: the topics that existed when auto-whitelisting began on it.

Topics of the baseline start at the route's `start`. Any other topic was created later, possibly while no
controller ran, and starts at its first record. The baseline is written once, before any topic is
whitelisted; afterwards topics are only removed from it.
"""

from __future__ import annotations

from collections.abc import Mapping

from ureplicator_common.kafka import TopicInfo
from ureplicator_common.model import Route
from ureplicator_common.znode_contents import RouteMemory
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.topics.topic_ids import TopicInfos

ID_PREFIX_CHARS = 8
"""Characters of an id in a baseline: 48 bits distinguish two topics of one name, and the node of
15,000 topics stays below the limit of a node."""


def stored_baseline(snapshot: Snapshot, route: Route) -> Mapping[str, str] | None:
    """Baseline as stored, topic -> prefix of its id; None if auto-whitelisting never began."""
    stored = snapshot.memory.get(route)
    return stored.value.baseline if stored else None


def next_baseline(
    snapshot: Snapshot, route: Route, source: TopicInfos | None
) -> Mapping[str, str] | None:
    """Baseline to store, without topics that are whitelisted, deleted or recreated.

    None if that cannot be determined: the source did not respond, or the stored node is unreadable.
    """
    if source is None or is_memory_unreadable(snapshot, route):
        return None
    whitelisted = {key.topic for key in snapshot.topics if key.route == route}
    before = stored_baseline(snapshot, route)
    if before is None:
        before = {topic: info.topic_id[:ID_PREFIX_CHARS] for topic, info in source.items()}
    return {
        topic: id
        for topic, id in before.items()
        if topic not in whitelisted and is_same_topic(id, source.get(topic))
    }


def is_same_topic(id: str | None, info: TopicInfo | None) -> bool:
    """True if a topic of the baseline is the one that exists now."""
    if id is None or info is None:
        return False
    return bool(info.error) or info.topic_id.startswith(id)


def is_memory_unreadable(snapshot: Snapshot, route: Route) -> bool:
    """True if the route's stored baseline is unreadable."""
    end = f"/memory/{route}"
    return any(node.path.endswith(end) for node in snapshot.unreadable_nodes)


def changed_memory(
    snapshot: Snapshot,
    route: Route,
    *,
    baseline: Mapping[str, str] | None,
    refused: Mapping[str, str],
) -> RouteMemory | None:
    """Memory to write for a route; None if it is already stored. `baseline` None: unchanged."""
    stored = snapshot.memory.get(route)
    before = stored.value if stored else RouteMemory()
    kept = before.baseline if baseline is None else baseline
    after = RouteMemory(baseline=kept, refused=refused)
    return None if after == before else after
