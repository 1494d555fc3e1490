"""`/rebalance`: a rebalance now, or a dry run of it.

A request is written to `settings`, for the leader to act on (`core.planning.switches`). It is not
idempotent: each one is a further rebalance.

A dry run makes the very plan that the leader would make, here and on the state that this process sees,
and writes nothing. It is the plan of a rebalance *now*: without the delays that the leader otherwise
waits for. The leader's actual plan may differ by what has changed in the fleet meanwhile, unless the request
names the id of the plan: then the leader carries out that plan, or none.

While the brake on mass loss keeps partitions with lost workers, a request must confirm the loss.
"""

from __future__ import annotations

import time
from dataclasses import replace
from http import HTTPStatus

from flask_openapi3 import APIBlueprint

from ureplicator_controller.api.access.roles import operator_unless_dry_run
from ureplicator_controller.api.http.models.history import RebalanceResult
from ureplicator_controller.api.http.models.requests import (
    IfMatchHeader,
    OptionalBody,
    RebalanceQuery,
)
from ureplicator_controller.api.http.models.responses import JsonResult, write_responses
from ureplicator_controller.api.http.openapi import group
from ureplicator_controller.api.http.problems import Problem, conflict, unavailable
from ureplicator_controller.api.services.fleet_cache import FleetCache, FleetState
from ureplicator_controller.api.services.switches import SwitchService
from ureplicator_controller.core.planning.owner_changes import owner_changes, plan_id
from ureplicator_controller.core.planning.plan import plan
from ureplicator_controller.core.reporting.authorship import id_of
from ureplicator_controller.core.state.mass_loss import lost_workers, mass_loss
from ureplicator_controller.core.state.snapshot import BalanceLimits


def blueprint(*, fleet: FleetCache, switches: SwitchService, limits: BalanceLimits) -> APIBlueprint:
    """`limits`: those of the leader, for a dry run."""
    api = group("rebalance", __name__)

    @api.post("/rebalance", responses=write_responses(RebalanceResult, 409))
    @operator_unless_dry_run
    def rebalance(query: RebalanceQuery, body: OptionalBody, header: IfMatchHeader) -> JsonResult:
        """Request a rebalance now, or show the moves it would make."""
        confirms = query.confirm == "true"
        if query.dry_run == "true":
            return _dry_run(fleet.current(), limits, confirms_loss=confirms)
        fleet_state = fleet.current()
        loss = mass_loss(fleet_state.snapshot)
        if loss is not None and not confirms:
            raise Problem(HTTPStatus.CONFLICT, str(loss), hint="confirm=true, or --confirm")
        if query.plan:
            now = _dry_run(fleet_state, limits, confirms_loss=confirms)["planId"]
            if now != query.plan:
                raise conflict(
                    f"plan {query.plan} is not due any more: it is {now} now",
                    field="plan",
                    hint="look at a new dry run",
                )
        return requested(switches, header, confirms_loss=confirms, plan=query.plan or "")

    return api


def requested(
    switches: SwitchService,
    header: IfMatchHeader,
    *,
    confirms_loss: bool = False,
    plan: str = "",
) -> JsonResult:
    """Request a rebalance."""
    request = switches.rebalance(header.condition, confirms_loss=confirms_loss, plan=plan)
    return {"rebalance": "requested", "request": id_of(request)}


def _dry_run(
    fleet_state: FleetState, limits: BalanceLimits, *, confirms_loss: bool
) -> dict[str, object]:
    seen = fleet_state.snapshot
    if fleet_state.leader is None:
        raise unavailable("no controller leads: nothing would be moved", hint="start a controller")
    switches = replace(
        seen.switches, rebalance_requested="dry run", rebalance_done="", rebalance_plan=""
    )
    if confirms_loss:
        switches = replace(switches, confirmed_lost=lost_workers(seen))
    requested = replace(seen, switches=switches, switches_version=None, limits=limits)
    decided = plan(requested, time.monotonic())
    moves = list(owner_changes(seen, decided.steps))
    return {
        "dryRun": True,
        "planId": plan_id(moves),
        "moves": [moved.as_json() for moved in moves],
        "reasons": list(decided.reasons),
        "waiting": [
            {"partition": str(partition), "for": list(workers)}
            for partition, workers in sorted(decided.waiting.items())
        ],
    }
