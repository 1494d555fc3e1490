"""Lookup of a whitelisted topic by its name, with the route only where it is ambiguous."""

from __future__ import annotations

from ureplicator_common.config.settings import Settings
from ureplicator_common.model import TopicKey
from ureplicator_controller.api.http.request_models import RouteQuery, chosen_route, chosen_routes
from ureplicator_controller.api.services.fleet_cache import FleetState
from ureplicator_controller.api.services.topic_checks import not_whitelisted


def find_topic(
    settings: Settings, fleet_state: FleetState, topic: str, query: RouteQuery
) -> TopicKey:
    """The topic's key. Raises Problem if no route has it, or if several have it and none is chosen."""
    routes = [config.route for config in chosen_routes(settings, query)]
    topics = fleet_state.snapshot.topics
    keys = [key for route in routes if (key := TopicKey(route, topic)) in topics]
    if not keys:
        raise not_whitelisted(f"{topic!r} is not whitelisted")
    if len(keys) > 1:
        chosen_route(settings, query)
    return keys[0]
