"""`/routes`: the configured routes, and pausing all topics of one.

A paused route is a switch in `settings`: topics keep their own state, so a topic that was paused by itself
is still paused when its route is resumed. All calls are idempotent.
"""

from __future__ import annotations

from collections.abc import Mapping

from flask_openapi3 import APIBlueprint

from ureplicator_common.config.live_changes import LIVE_SETTINGS, Changes
from ureplicator_common.config.live_routes import (
    LiveRoute,
    LiveRoutes,
    changed_route,
    checked_route,
    shown_settings,
)
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.config.section import Faults
from ureplicator_common.config.settings import Settings
from ureplicator_common.model import Route, TopicKey, TopicState
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_controller.api.access.roles import operator, operator_unless_dry_run, viewer
from ureplicator_controller.api.http.models.requests import (
    IfMatchHeader,
    OptionalBody,
    Query,
    RouteQuery,
    chosen_routes,
)
from ureplicator_controller.api.http.models.responses import JsonResult, responses, write_responses
from ureplicator_controller.api.http.models.routes import (
    RouteChanged,
    RouteList,
    RoutePath,
    RouteSettingsBody,
    RouteSettingsChanged,
    RouteSettingsQuery,
    configured_route,
    shown_syncs,
)
from ureplicator_controller.api.http.openapi import group
from ureplicator_controller.api.http.preconditions import etag
from ureplicator_controller.api.http.problems import Problem, bad_request
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.api.services.switches import SwitchService
from ureplicator_controller.core.balance.pools import route_workers
from ureplicator_controller.core.state.snapshot import Snapshot


def blueprint(
    *, settings: Settings, live: LiveRoutes, fleet: FleetCache, switches: SwitchService
) -> APIBlueprint:
    """`live`: the routes of `settings` with what is changed since."""
    api = group("routes", __name__)

    @api.get("/routes", responses=responses(RouteList, 404))
    @viewer
    def list_routes(query: RouteQuery) -> JsonResult:
        """Configured routes, whether they are paused, and the last passes of their syncs."""
        fleet_state = fleet.current()
        paused = fleet_state.snapshot.switches.paused_routes
        intents = {key: stored.value for key, stored in fleet_state.snapshot.topics.items()}
        changed = live.of(fleet_state.snapshot.switches.route_settings)
        shown = {
            str(config.route): _shown(config, intents, paused=config.route in paused)
            | _shown_settings(changed[config.route])
            | {"workers": _shown_workers(fleet_state.snapshot, config.route)}
            | {"syncs": shown_syncs(config, fleet_state.nodes, fleet.paths)}
            for config in chosen_routes(settings, query)
        }
        return {"routes": shown}, 200, etag(fleet_state.nodes.get(fleet.paths.settings))

    @api.post("/routes/<path:route>/pause", responses=write_responses(RouteChanged, 404))
    @operator
    def pause_route(
        path: RoutePath, query: Query, body: OptionalBody, header: IfMatchHeader
    ) -> JsonResult:
        """Pause copying of all topics of a route, also of those added later; positions are kept."""
        return switched(path, header, paused=True)

    @api.post("/routes/<path:route>/resume", responses=write_responses(RouteChanged, 404))
    @operator
    def resume_route(
        path: RoutePath, query: Query, body: OptionalBody, header: IfMatchHeader
    ) -> JsonResult:
        """Go on copying where it was paused. Topics that are paused themselves stay paused."""
        return switched(path, header, paused=False)

    _add_settings(api, settings=settings, switches=switches)

    def switched(path: RoutePath, header: IfMatchHeader, *, paused: bool) -> JsonResult:
        route = configured_route(settings, path.route).route
        switches.pause_route(route, paused=paused, condition=header.condition)
        return {"route": str(route), "paused": paused}

    return api


def _add_settings(api: APIBlueprint, *, settings: Settings, switches: SwitchService) -> None:
    @api.put("/routes/<path:route>/settings", responses=write_responses(RouteSettingsChanged, 404))
    @operator_unless_dry_run
    def change_route_settings(
        path: RoutePath, query: RouteSettingsQuery, body: RouteSettingsBody, header: IfMatchHeader
    ) -> JsonResult:
        """Change settings of a route for the whole fleet, in place of those of the controllers' files.

        What is not given stays as it is.
        """
        config = configured_route(settings, path.route)

        def check(changes: Changes, texts: Mapping[Route, str]) -> None:
            try:
                checked_route(settings, config.route, changes, texts)
            except Faults as error:
                raise _refused(error) from error

        changes = switches.change_route(
            config.route,
            body.settings,
            check,
            header.condition,
            dry_run=query.dry_run == "true",
        )
        shown = shown_settings(changed_route(config, changes))
        return {"route": str(config.route), "changes": dict(changes), "settings": shown}


def _refused(error: Faults) -> Problem:
    return bad_request(
        str(error),
        field="settings",
        hint=f"settings that can be changed are {', '.join(LIVE_SETTINGS)}",
    )


def _shown_settings(live: LiveRoute) -> dict[str, object]:
    return {
        "settings": shown_settings(live.config),
        "changes": dict(live.changes),
        "refusal": live.refusal,
    }


def _shown(
    config: RouteConfig, intents: Mapping[TopicKey, TopicIntent], *, paused: bool
) -> dict[str, object]:
    of_route = [
        intent
        for key, intent in intents.items()
        if key.route == config.route and intent.state is not TopicState.DELETING
    ]
    return {
        "paused": paused,
        "source": config.source,
        "target": config.target,
        "topics": len(of_route),
        "partitions": sum(intent.partitions for intent in of_route),
    }


def _shown_workers(snapshot: Snapshot, route: Route) -> dict[str, object]:
    found = route_workers(snapshot, route)
    return {
        "tags": list(found.selection.tags),
        "min": found.selection.min,
        "max": found.selection.max,
        "available": found.available,
    }
