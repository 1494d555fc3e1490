"""`/noprogress`: partitions that are not copied to their end and make no progress."""

from __future__ import annotations

from flask_openapi3 import APIBlueprint

from ureplicator_common.config.settings import Settings
from ureplicator_controller.api.access.roles import viewer
from ureplicator_controller.api.http.models.requests import RouteQuery, chosen_routes
from ureplicator_controller.api.http.models.responses import JsonResult, responses
from ureplicator_controller.api.http.models.workload import NoProgressList
from ureplicator_controller.api.http.openapi import group
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.core.planning.no_progress import partitions_without_progress


def blueprint(*, settings: Settings, fleet: FleetCache) -> APIBlueprint:
    api = group("noprogress", __name__)

    @api.get("/noprogress", responses=responses(NoProgressList, 404))
    @viewer
    def no_progress(query: RouteQuery) -> JsonResult:
        """Partitions with lag that have made no progress for 10 minutes or more."""
        routes = {config.route for config in chosen_routes(settings, query)}
        fleet_state = fleet.current()
        found = partitions_without_progress(fleet_state.snapshot, fleet_state.view)
        return {
            "topics": [stalled.as_json() for stalled in found if stalled.partition.route in routes]
        }

    return api
