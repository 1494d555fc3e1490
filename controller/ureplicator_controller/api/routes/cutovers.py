"""`/cutovers`: clients move to the other cluster of a route, and back.

A plan is stored under a name, with an id that is a digest of it. To start it takes that id, or a
confirmation. The leader carries out what was requested; GET tells how far it is.
"""

from __future__ import annotations

from http import HTTPStatus

from flask_openapi3 import APIBlueprint

from ureplicator_common.clock import Clock
from ureplicator_common.config.settings import Settings
from ureplicator_controller.api.access.roles import operator, operator_unless_dry_run, viewer
from ureplicator_controller.api.http.load import asks_kafka
from ureplicator_controller.api.http.models.cutovers import (
    AnyCutoverPath,
    BackCutoverQuery,
    CutoverAborted,
    CutoverDetails,
    CutoverPath,
    CutoverPlanned,
    CutoverRequested,
    CutoverSummaries,
    PlanCutoverBody,
    PlanCutoverQuery,
    StartCutoverQuery,
    details_json,
    findings_json,
    planned_json,
    summary_json,
)
from ureplicator_controller.api.http.models.requests import OptionalBody, Query, chosen_route
from ureplicator_controller.api.http.models.responses import JsonResult, responses
from ureplicator_controller.api.http.openapi import group
from ureplicator_controller.api.http.problems import Problem
from ureplicator_controller.api.services.cutovers.planner import Planned
from ureplicator_controller.api.services.cutovers.service import CutoverService


def blueprint(*, settings: Settings, cutovers: CutoverService, clock: Clock) -> APIBlueprint:
    api = group("cutovers", __name__)

    @api.get("/cutovers", responses=responses(CutoverSummaries))
    @viewer
    def list_cutovers(query: Query) -> JsonResult:
        """Cutovers that are planned, under way or done, by name."""
        now_ms = clock.wall_ms()
        found = cutovers.all()
        return {
            "cutovers": [summary_json(name, each, now_ms=now_ms) for name, each in found.items()]
        }

    @api.get("/cutovers/<name>", responses=responses(CutoverDetails, 404))
    @viewer
    def show_cutover(path: AnyCutoverPath, query: Query) -> JsonResult:
        """State of a cutover: its steps and the seconds of each, what it waits for, and late writes."""
        return details_json(path.name, cutovers.find(path.name), now_ms=clock.wall_ms())

    @api.post("/cutovers/<name>", responses=responses(CutoverPlanned, 404, 409, 413))
    @operator_unless_dry_run
    @asks_kafka
    def plan_cutover(
        path: CutoverPath, query: PlanCutoverQuery, body: PlanCutoverBody
    ) -> JsonResult:
        """Plan a cutover: what would be moved, and what could go wrong. Touches neither cluster."""
        config = chosen_route(settings, query)
        dry_run = query.dry_run == "true"
        planned = cutovers.plan(path.name, body.plan(config.route), dry_run=dry_run)
        return planned_json(path.name, planned.plan, planned.findings, dry_run=dry_run)

    _add_requests(api, cutovers)
    return api


def _add_requests(api: APIBlueprint, cutovers: CutoverService) -> None:
    """Calls by which the leader is to do something with a plan that is stored."""

    @api.post("/cutovers/<name>/rehearse", responses=responses(CutoverRequested, 404, 409, 413))
    @operator
    @asks_kafka
    def rehearse_cutover(path: CutoverPath, query: Query, body: OptionalBody) -> JsonResult:
        """Request a rehearsal: all but the fence and the opening, with the seconds of each step."""
        return requested(path.name, cutovers.rehearse(path.name))

    @api.post("/cutovers/<name>/start", responses=responses(CutoverRequested, 404, 409, 413))
    @operator
    @asks_kafka
    def start_cutover(
        path: CutoverPath, query: StartCutoverQuery, body: OptionalBody
    ) -> JsonResult:
        """Request that the plan is carried out, if it is still what would be planned now."""
        if not query.plan and query.confirm != "true":
            raise _unconfirmed("to start takes the id of the plan, or a confirmation")
        return requested(path.name, cutovers.start(path.name, plan=query.plan or ""))

    @api.post("/cutovers/<name>/abort", responses=responses(CutoverAborted, 404, 409, 413))
    @operator
    def abort_cutover(path: CutoverPath, query: Query, body: OptionalBody) -> JsonResult:
        """Request that a cutover that is not open yet is undone."""
        cutovers.abort(path.name)
        return {"name": path.name, "abort": "requested"}

    @api.post("/cutovers/<name>/back", responses=responses(CutoverPlanned, 404, 409, 413))
    @operator_unless_dry_run
    @asks_kafka
    def move_cutover_back(
        path: CutoverPath, query: BackCutoverQuery, body: OptionalBody
    ) -> JsonResult:
        """Request that the same clients move back, or show the plan of that."""
        dry_run = query.dry_run == "true"
        if not dry_run and query.confirm != "true":
            raise _unconfirmed("to move back takes a confirmation")
        planned = cutovers.back(path.name, dry_run=dry_run)
        run = "" if dry_run else run_of(path.name)
        return planned_json(path.name, planned.plan, planned.findings, dry_run=dry_run, run=run)

    def run_of(name: str) -> str:
        request = cutovers.find(name).request
        return request.run if request else ""

    def requested(name: str, planned: Planned) -> JsonResult:
        return {
            "name": name,
            "plan": planned.plan.id,
            "request": run_of(name),
            "findings": findings_json(planned.findings),
        }


def _unconfirmed(text: str) -> Problem:
    return Problem(HTTPStatus.CONFLICT, text, field="confirm", hint="confirm=true")
