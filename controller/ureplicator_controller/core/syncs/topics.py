"""Topics of a route whose target topics are synced with their sources. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ureplicator_common.model import Route, RouteSettings
from ureplicator_controller.core.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class SyncedTopic:
    """A topic that a route copies. Ids: those of the clusters, "" where unknown.

    `is_whole`: all partitions of the source are copied, also those added later.
    """

    source: str
    target: str
    source_id: str = ""
    target_id: str = ""
    is_whole: bool = False


def synced_topics(snapshot: Snapshot, route: Route) -> tuple[SyncedTopic, ...]:
    """Topics of the route, without those that are stopped, reversed, being deleted or not readable."""
    return tuple(
        SyncedTopic(
            source=key.topic,
            target=stored.value.target_topic,
            source_id=stored.value.source_topic_id,
            target_id=stored.value.target_topic_id,
            is_whole=stored.value.whole,
        )
        for key, stored in sorted(snapshot.topics.items())
        if key.route == route
        and key not in snapshot.unreadable_topics
        and stored.value.state.has_copies
        and not stored.value.stopped
    )


def held_targets(
    snapshot: Snapshot, route: Route, configured: RouteSettings, synced: tuple[SyncedTopic, ...]
) -> frozenset[str]:
    """Target topics of the route that are not synced now.

    `configured`: settings of the route, for the name of a topic that cannot be read while the leader has
    published none.
    """
    settings = route_settings(snapshot, route, configured)
    names = {topic.source for topic in synced}
    return frozenset(
        stored.value.target_topic
        if (stored := snapshot.topics.get(key)) is not None
        else settings.target_topic(key.topic)
        for key in {*snapshot.topics, *snapshot.unreadable_topics}
        if key.route == route and key.topic not in names
    )


def route_settings(snapshot: Snapshot, route: Route, configured: RouteSettings) -> RouteSettings:
    """Settings of the route as the leader published them, else as configured."""
    published = snapshot.routes.get(route)
    return configured if published is None else published.value
