"""`/admin/*`: the live switches (auto-balancing, freeze) and the measured workload.

Switches are written to `settings`, for the leader to act on (`core.planning.switches`). All calls are
idempotent.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from flask_openapi3 import APIBlueprint

from ureplicator_common.config.settings import Settings
from ureplicator_controller.api.access.roles import operator, viewer
from ureplicator_controller.api.http.models.history import (
    AutoBalancingChanged,
    AutoBalancingStatus,
    FreezeChanged,
    FreezeStatus,
)
from ureplicator_controller.api.http.models.requests import (
    IfMatchHeader,
    OptionalBody,
    Query,
    RouteQuery,
    only_route,
)
from ureplicator_controller.api.http.models.responses import JsonResult, responses, write_responses
from ureplicator_controller.api.http.models.workload import Workload
from ureplicator_controller.api.http.openapi import group
from ureplicator_controller.api.http.preconditions import etag
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.api.services.switches import SwitchService
from ureplicator_controller.core.reporting.workload import workload


def blueprint(*, settings: Settings, fleet: FleetCache, switches: SwitchService) -> APIBlueprint:
    api = group("admin", __name__)
    _add_auto_balancing(api, fleet=fleet, switches=switches)
    _add_freeze(api, fleet=fleet, switches=switches)

    @api.get("/admin/workloadinfo", responses=responses(Workload, 404))
    @viewer
    def workload_info(query: RouteQuery) -> JsonResult:
        """Measured load of each worker and each topic, and partitions that lag far behind."""
        return workload(
            fleet.current().snapshot,
            only_route(settings, query),
            expected_worker_bytes_per_s=settings.controller.expected_worker_bytes_per_s,
        )

    return api


def _add_auto_balancing(api: APIBlueprint, *, fleet: FleetCache, switches: SwitchService) -> None:
    def switch(opt: str, enabled: bool, header: IfMatchHeader) -> JsonResult:
        now = switches.set(partial(replace, auto_balancing=enabled), header.condition)
        return {"opt": opt, "auto_balancing": now.auto_balancing}

    @api.post("/admin/enable_autobalancing", responses=write_responses(AutoBalancingChanged))
    @operator
    def enable_autobalancing(query: Query, body: OptionalBody, header: IfMatchHeader) -> JsonResult:
        """Enable auto-balancing: lost and new workers move partitions."""
        return switch("enable_autobalancing", True, header)

    @api.post("/admin/disable_autobalancing", responses=write_responses(AutoBalancingChanged))
    @operator
    def disable_autobalancing(
        query: Query, body: OptionalBody, header: IfMatchHeader
    ) -> JsonResult:
        """Disable auto-balancing: partitions stay with their owner when workers join or are lost."""
        return switch("disable_autobalancing", False, header)

    @api.get("/admin/autobalancing_status", responses=responses(AutoBalancingStatus))
    @viewer
    def autobalancing_status(query: Query) -> JsonResult:
        """State of auto-balancing: enabled or disabled."""
        fleet_state = fleet.current()
        shown = {"auto_balancing": fleet_state.snapshot.switches.auto_balancing}
        return shown, 200, etag(fleet_state.nodes.get(fleet.paths.settings))


def _add_freeze(api: APIBlueprint, *, fleet: FleetCache, switches: SwitchService) -> None:
    @api.post("/admin/freeze", responses=write_responses(FreezeChanged))
    @operator
    def freeze(query: Query, body: OptionalBody, header: IfMatchHeader) -> JsonResult:
        """Freeze the fleet: partitions move only on an operator's request."""
        now = switches.set(partial(replace, frozen=True), header.condition)
        return {"opt": "freeze", "frozen": now.frozen}

    @api.post("/admin/unfreeze", responses=write_responses(FreezeChanged))
    @operator
    def unfreeze(query: Query, body: OptionalBody, header: IfMatchHeader) -> JsonResult:
        """Unfreeze the fleet, and confirm a mass loss: partitions of lost workers move."""
        return {"opt": "unfreeze", "frozen": switches.unfreeze(header.condition).frozen}

    @api.get("/admin/freeze", responses=responses(FreezeStatus))
    @viewer
    def freeze_status(query: Query) -> JsonResult:
        """State of the freeze."""
        fleet_state = fleet.current()
        shown = {"frozen": fleet_state.snapshot.switches.frozen}
        return shown, 200, etag(fleet_state.nodes.get(fleet.paths.settings))
