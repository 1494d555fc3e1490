"""Lookup of a whitelisted topic by its name, with the route only where it is ambiguous.

Topics are found in the tree. A route that this process does not have in its configuration (it was removed,
or another controller has a newer file) is among those that a client reads and deletes topics of.
"""

from __future__ import annotations

from collections.abc import Collection

from ureplicator_common.config.settings import Settings
from ureplicator_common.model import Route, TopicKey
from ureplicator_common.printable import did_you_mean
from ureplicator_controller.api.http.models.requests import RouteQuery, chosen_route, chosen_routes
from ureplicator_controller.api.http.problems import bad_request, not_found
from ureplicator_controller.api.services.fleet_cache import FleetState
from ureplicator_controller.api.services.topic_checks import not_whitelisted


def known_routes(
    settings: Settings, fleet_state: FleetState, query: RouteQuery
) -> tuple[Route, ...]:
    """Selected routes: configured ones first, then others that have topics in the tree. Raises Problem if
    there is none."""
    configured = [config.route for config in settings.routes]
    snapshot = fleet_state.snapshot
    others = {key.route for key in (*snapshot.topics, *snapshot.blacklist)}.difference(configured)
    chosen = tuple(
        route
        for route in (*configured, *sorted(others))
        if query.src in (None, route.source) and query.dst in (None, route.target)
    )
    if not chosen:
        chosen_routes(settings, query)  # refuses
    return chosen


def require_route(name: str | None, known: Collection[Route]) -> None:
    """Raises Problem for a route that is not among these."""
    names = sorted(str(route) for route in known)
    if name is not None and name not in names:
        raise not_found(
            f"no route {name} is configured{did_you_mean(name, names)}",
            field="route",
            hint=f"the routes are {', '.join(names)}",
        )


def find_known_topic(
    settings: Settings, fleet_state: FleetState, topic: str, query: RouteQuery
) -> TopicKey:
    """The topic as of `find_topic`, on all routes that have topics in the tree; a configured route goes
    first."""
    topics = fleet_state.snapshot.topics
    routes = known_routes(settings, fleet_state, query)
    keys = [key for route in routes if (key := TopicKey(route, topic)) in topics]
    configured = {config.route for config in settings.routes}
    if not keys or keys[0].route in configured:
        return find_topic(settings, fleet_state, topic, query)
    if len(keys) > 1:
        raise bad_request(
            f"{topic!r} is on several routes: {', '.join(str(key.route) for key in keys)}",
            field="src",
            hint="choose one with ?src=SOURCE&dst=TARGET",
        )
    return keys[0]


def find_topic(
    settings: Settings, fleet_state: FleetState, topic: str, query: RouteQuery
) -> TopicKey:
    """The topic's key. Raises Problem if no route has it, or if several have it and none is chosen."""
    configured = {config.route for config in settings.routes}
    known = known_routes(settings, fleet_state, query)
    routes = [route for route in known if route in configured]
    topics = fleet_state.snapshot.topics
    keys = [key for route in routes if (key := TopicKey(route, topic)) in topics]
    if not keys:
        similar = did_you_mean(topic, {key.topic for key in topics if key.route in known})
        raise not_whitelisted(f"{topic!r} is not whitelisted{similar}")
    if len(keys) > 1:
        chosen_route(settings, query)
    return keys[0]
