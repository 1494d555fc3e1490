"""Routes that are published, and that the leader's configuration does not have. Pure.

    published --(`WITHDRAW_AFTER_S` under one leader that does not have it)--> withdrawn: topics stopped
        ^                                                                         |
        +------------- a leader that has it publishes it when elected ------------+

A route that operators removed from the configuration must not be copied for ever: nothing renews or deletes
its positions, and no controller watches its topics. So it is withdrawn: `configured` of its settings becomes
false, all its topics count as stopped, and workers release them. They can be deleted; if the route is
configured again, they go on from their positions. Once it has no topics, its settings are removed.

While a changed configuration is rolled out, controllers with either file may lead for a while. So a leader
withdraws nothing before it has led for `WITHDRAW_AFTER_S` without interruption. If its file is the wrong
one all the same, nothing is lost: the next leader publishes the route, and its topics go on.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ureplicator_common.config.live_routes import LiveRoutes
from ureplicator_common.coordination import Delete, Operation, Set
from ureplicator_common.model import Route, RouteSettings
from ureplicator_common.znode_contents import Switches
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.routes import encode_route
from ureplicator_controller.core.state.snapshot import Snapshot

WITHDRAW_AFTER_S = 600.0


def published_settings(routes: LiveRoutes, switches: Switches) -> dict[Route, RouteSettings]:
    """Settings to publish of the configured routes: of the file, with what operators have changed since."""
    found = routes.of(switches.route_settings)
    return {route: live.config.settings for route, live in found.items()}


def unknown_routes(snapshot: Snapshot, configured: Collection[Route]) -> list[Route]:
    """Published routes that the configuration does not have."""
    return sorted(snapshot.routes.keys() - set(configured))


def withdrawals(
    snapshot: Snapshot, configured: Collection[Route], paths: Paths
) -> dict[Route, Operation]:
    """Operation that withdraws each of these routes, or removes one without topics."""
    used = {key.route for key in (*snapshot.topics, *snapshot.ideal, *snapshot.unreadable_topics)}
    found: dict[Route, Operation] = {}
    for route in unknown_routes(snapshot, configured):
        stored = snapshot.routes[route]
        if route not in used:
            found[route] = Delete(paths.route(route), stored.version)
        elif stored.value.configured:
            data = encode_route(replace(stored.value, configured=False))
            found[route] = Set(paths.route(route), data, stored.version)
    return found
