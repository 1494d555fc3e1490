"""`/rebalance`: a rebalance now, or a dry run of it.

A request is written to `settings`, for the leader to act on (`core.planning.switches`). It is not
idempotent: each one is a further rebalance.

A dry run makes the very plan that the leader would make, here and on the state that this process sees,
and writes nothing. It is the plan of a rebalance *now*: without the delays that the leader otherwise
waits for. The leader's actual plan may differ by what has changed in the fleet meanwhile.
"""

from __future__ import annotations

import time
from dataclasses import replace

from flask_openapi3 import APIBlueprint

from ureplicator_controller.api.access.roles import operator_unless_dry_run
from ureplicator_controller.api.http.openapi import group
from ureplicator_controller.api.http.problems import unavailable
from ureplicator_controller.api.http.request_models import (
    IfMatchHeader,
    OptionalBody,
    RebalanceQuery,
)
from ureplicator_controller.api.http.response_models import (
    JsonResult,
    RebalanceResult,
    write_responses,
)
from ureplicator_controller.api.services.fleet_cache import FleetCache, FleetState
from ureplicator_controller.api.services.switches import SwitchService
from ureplicator_controller.core.planning.plan import plan
from ureplicator_controller.core.reporting.owner_changes import owner_changes
from ureplicator_controller.core.state.snapshot import BalanceLimits


def blueprint(*, fleet: FleetCache, switches: SwitchService, limits: BalanceLimits) -> APIBlueprint:
    """`limits`: those of the leader, for a dry run."""
    api = group("rebalance", __name__)

    @api.post("/rebalance", responses=write_responses(RebalanceResult))
    @operator_unless_dry_run
    def rebalance(query: RebalanceQuery, body: OptionalBody, header: IfMatchHeader) -> JsonResult:
        """Request a rebalance now, or show the moves it would make."""
        if query.dry_run == "true":
            return _dry_run(fleet.current(), limits)
        return requested(switches, header)

    return api


def requested(switches: SwitchService, header: IfMatchHeader) -> JsonResult:
    """Request a rebalance."""
    return {"rebalance": "requested", "request": switches.rebalance(header.condition)}


def _dry_run(fleet_state: FleetState, limits: BalanceLimits) -> dict[str, object]:
    seen = fleet_state.snapshot
    if fleet_state.leader is None:
        raise unavailable("no controller leads: nothing would be moved", hint="start a controller")
    switches = replace(seen.switches, rebalance_requested="dry run", rebalance_done="")
    requested = replace(seen, switches=switches, switches_version=None, limits=limits)
    decided = plan(requested, time.monotonic())
    return {
        "dryRun": True,
        "moves": [moved.as_json() for moved in owner_changes(seen, decided.steps)],
        "reasons": list(decided.reasons),
        "waiting": [
            {"partition": str(partition), "for": list(workers)}
            for partition, workers in sorted(decided.waiting.items())
        ],
    }
