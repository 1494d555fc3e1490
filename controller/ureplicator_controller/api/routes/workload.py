"""Who carries how much, and what stands still: from what workers measured, whoever leads."""

from __future__ import annotations

from flask_openapi3 import APIBlueprint

from ureplicator_common.config.settings import Settings
from ureplicator_controller.api.http.openapi import group
from ureplicator_controller.api.http.request_models import RouteQuery, chosen_routes
from ureplicator_controller.api.http.response_models import (
    JsonResult,
    NoProgressList,
    Workload,
    responses,
)
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.core.planning.no_progress import partitions_without_progress
from ureplicator_controller.core.reporting.workload import workload


def blueprint(*, settings: Settings, fleet: FleetCache) -> APIBlueprint:
    api = group("workload", __name__)

    @api.get("/noprogress", responses=responses(NoProgressList, 404))
    def no_progress(query: RouteQuery) -> JsonResult:
        """Partitions that are not copied to their end and stand still for 10 minutes or more."""
        routes = {config.route for config in chosen_routes(settings, query)}
        fleet_state = fleet.current()
        found = partitions_without_progress(fleet_state.snapshot, fleet_state.view)
        return {"topics": [each.as_json() for each in found if each.partition.route in routes]}

    @api.get("/admin/workloadinfo", responses=responses(Workload, 404))
    def workload_info(query: RouteQuery) -> JsonResult:
        """What each worker and each topic carries, as measured, and what lags far behind."""
        chosen = [config.route for config in chosen_routes(settings, query)]
        one = chosen[0] if len(chosen) == 1 and len(settings.routes) > 1 else None
        return workload(fleet.current().snapshot, one)

    return api
