"""`/export`: intents, blacklist, switches and worker tags of the fleet as one document.

Its content and its meaning are described in `core.reporting.export`.
"""

from __future__ import annotations

from flask_openapi3 import APIBlueprint

from ureplicator_controller.api.access.roles import viewer
from ureplicator_controller.api.http.models.export import FleetExport
from ureplicator_controller.api.http.models.requests import Query
from ureplicator_controller.api.http.models.responses import JsonResult, responses
from ureplicator_controller.api.http.openapi import group
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.core.reporting.export import export_document


def blueprint(*, fleet: FleetCache) -> APIBlueprint:
    api = group("export", __name__)

    @api.get("/export", responses=responses(FleetExport))
    @viewer
    def export_fleet(query: Query) -> JsonResult:
        """Everything that operators have set, as a document that can be imported."""
        return export_document(fleet.current().snapshot)

    return api
