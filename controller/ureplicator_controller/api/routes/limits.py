"""`/limits`: bytes per second that may be fetched from the source, of a route, a topic or by a worker.

Limits are switches in `settings`; the leader divides them among the slots of the workers
(`core.planning.limit_shares`). All calls are idempotent. A topic may be limited before it is whitelisted,
and a worker before it joins; the response then has a note, as the name may be misspelt.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from flask_openapi3 import APIBlueprint

from ureplicator_common.config.settings import Settings
from ureplicator_common.model import Limited, LimitKind, TopicKey, WorkerId
from ureplicator_common.printable import did_you_mean
from ureplicator_common.znode_contents import Switches
from ureplicator_controller.api.access.roles import operator, viewer
from ureplicator_controller.api.http.models.limits import (
    MAX_LIMITS,
    LimitBody,
    LimitChanged,
    LimitList,
)
from ureplicator_controller.api.http.models.requests import (
    IfMatchHeader,
    Query,
    RouteQuery,
    TopicPath,
    WorkerPath,
    chosen_route,
)
from ureplicator_controller.api.http.models.responses import JsonResult, responses, write_responses
from ureplicator_controller.api.http.models.routes import RoutePath, configured_route
from ureplicator_controller.api.http.openapi import group
from ureplicator_controller.api.http.preconditions import etag
from ureplicator_controller.api.http.problems import conflict
from ureplicator_controller.api.routes.instances import worker_name
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.api.services.switches import SwitchService
from ureplicator_controller.core.planning.limit_shares import used_by_slot
from ureplicator_controller.core.state.snapshot import Snapshot


def blueprint(*, settings: Settings, fleet: FleetCache, switches: SwitchService) -> APIBlueprint:
    api = group("limits", __name__)
    declared = write_responses(LimitChanged, 404, 409)
    changed = partial(_changed, fleet, switches)

    @api.get("/limits", responses=responses(LimitList))
    @viewer
    def list_limits(query: Query) -> JsonResult:
        """All byte limits, with what is copied."""
        fleet_state = fleet.current()
        used = used_by_slot(fleet_state.snapshot)
        shown = [
            _shown(limited, rate) | {"measuredBytesPerSecond": round(sum(used[limited].values()))}
            for limited, rate in sorted(fleet_state.snapshot.switches.limits.items())
        ]
        return {"limits": shown}, 200, etag(fleet_state.nodes.get(fleet.paths.settings))

    @api.put("/limits/routes/<path:route>", responses=declared)
    @operator
    def limit_route(
        path: RoutePath, query: Query, body: LimitBody, header: IfMatchHeader
    ) -> JsonResult:
        """Limit a route: all its topics together, on all workers."""
        return changed(_of_route(settings, path), body.bytes_per_second, header)

    @api.delete("/limits/routes/<path:route>", responses=declared)
    @operator
    def clear_route(path: RoutePath, query: Query, header: IfMatchHeader) -> JsonResult:
        """Remove the limit of a route."""
        return changed(_of_route(settings, path), None, header)

    @api.put("/limits/topics/<path:topic>", responses=declared)
    @operator
    def limit_topic(
        path: TopicPath, query: RouteQuery, body: LimitBody, header: IfMatchHeader
    ) -> JsonResult:
        """Limit a topic: all its partitions together."""
        return changed(_of_topic(settings, path, query), body.bytes_per_second, header)

    @api.delete("/limits/topics/<path:topic>", responses=declared)
    @operator
    def clear_topic(path: TopicPath, query: RouteQuery, header: IfMatchHeader) -> JsonResult:
        """Remove the limit of a topic."""
        return changed(_of_topic(settings, path, query), None, header)

    @api.put("/limits/workers/<path:worker>", responses=declared)
    @operator
    def limit_worker(
        path: WorkerPath, query: Query, body: LimitBody, header: IfMatchHeader
    ) -> JsonResult:
        """Limit a worker: everything that it copies."""
        return changed(_of_worker(path), body.bytes_per_second, header)

    @api.delete("/limits/workers/<path:worker>", responses=declared)
    @operator
    def clear_worker(path: WorkerPath, query: Query, header: IfMatchHeader) -> JsonResult:
        """Remove the limit of a worker."""
        return changed(_of_worker(path), None, header)

    return api


def _changed(
    fleet: FleetCache,
    switches: SwitchService,
    limited: Limited,
    rate: int | None,
    header: IfMatchHeader,
) -> JsonResult:
    def change(now: Switches) -> Switches:
        others = {key: limit for key, limit in now.limits.items() if key != limited}
        if rate is not None and len(others) >= MAX_LIMITS:
            raise conflict(
                f"there are {MAX_LIMITS} limits already", hint="remove one that is not needed"
            )
        return replace(now, limits=others if rate is None else {**others, limited: rate})

    switches.set(change, header.condition)
    return _shown(limited, rate) | {"note": _note(limited, fleet.current().snapshot)}


def _note(limited: Limited, snapshot: Snapshot) -> str:
    """A remark on a name that the fleet does not have yet."""
    if limited.kind is LimitKind.TOPIC:
        names = {f"{key.route}/{key.topic}" for key in snapshot.topics}
        what = "whitelisted"
    elif limited.kind is LimitKind.WORKER:
        names = {*snapshot.known, *snapshot.live, *snapshot.sessions}
        what = "live or known"
    else:
        return ""
    if limited.name in names:
        return ""
    return f"{limited.kind} {limited.name} is not {what}{did_you_mean(limited.name, names)}"


def _of_route(settings: Settings, path: RoutePath) -> Limited:
    return Limited.route(configured_route(settings, path.route).route)


def _of_topic(settings: Settings, path: TopicPath, query: RouteQuery) -> Limited:
    return Limited.topic(TopicKey(chosen_route(settings, query).route, path.topic))


def _of_worker(path: WorkerPath) -> Limited:
    return Limited.worker(WorkerId(worker_name(path.worker)))


def _shown(limited: Limited, rate: int | None) -> dict[str, Any]:
    return {"kind": limited.kind, "name": limited.name, "bytesPerSecond": rate}
