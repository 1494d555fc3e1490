"""Which whitelisted topic a call means."""

from __future__ import annotations

from ureplicator_common.config.settings import Settings
from ureplicator_common.model import TopicKey
from ureplicator_controller.api.http.problems import not_found
from ureplicator_controller.api.http.request_models import RouteQuery, chosen_route, chosen_routes
from ureplicator_controller.api.services.fleet_cache import FleetState


def find_topic(
    settings: Settings, fleet_state: FleetState, topic: str, query: RouteQuery
) -> TopicKey:
    """Asks for a route only where it matters."""
    routes = [config.route for config in chosen_routes(settings, query)]
    topics = fleet_state.snapshot.topics
    keys = [key for route in routes if (key := TopicKey(route, topic)) in topics]
    if not keys:
        raise not_found(
            f"{topic!r} is not whitelisted",
            field="topic",
            hint="GET /topics lists those that are; POST /topics adds one",
        )
    if len(keys) > 1:
        chosen_route(settings, query)
    return keys[0]
