"""Topics of a route whose offsets can be translated. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ureplicator_common.model import LaneKind, Route, TopicState
from ureplicator_controller.core.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class RouteTopic:
    """A topic that a route copies. `target_id`: the cluster's id of the target topic, "" unknown.

    `stopped`: reason why nothing at the target may be relied on, or "". `is_raw`: a target partition has the
    records of one source partition, and no others.
    """

    source: str
    target: str
    target_id: str = ""
    stopped: str = ""
    is_raw: bool = True


def route_topics(
    snapshot: Snapshot, route: Route, *, reversed_too: bool = False
) -> Mapping[str, RouteTopic]:
    """Readable topics of the route by their names at the source; `reversed_too`: also those that a cutover
    has reversed, so that nothing is copied there any more."""
    settings = snapshot.routes.get(route)
    if settings is None:
        return {}
    return {
        key.topic: RouteTopic(
            source=key.topic,
            target=stored.value.target_topic,
            target_id=stored.value.target_topic_id,
            stopped=stored.value.stopped,
            is_raw=settings.value.lane(key.topic) is LaneKind.RAW,
        )
        for key, stored in snapshot.topics.items()
        if key.route == route
        and key not in snapshot.unreadable_topics
        and (reversed_too or stored.value.state is not TopicState.REVERSED)
    }
