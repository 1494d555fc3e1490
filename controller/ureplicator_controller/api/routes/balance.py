"""Balance, as operators steer it: live switches, a rebalance now, and what one would do.

Switches and requests are written to `settings`, for the leader to act on (`core.switches`); all of
them are idempotent but the request for a rebalance, which is one more each time.

A dry run asks the very plan that the leader would make, here and on what this process sees, and
writes nothing. It is the plan of a rebalance *now*: without the delays that the leader would else
wait for. What the leader then does may differ in as much as the fleet changed meanwhile.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

from flask_openapi3 import APIBlueprint

from ureplicator_controller.api.http.openapi import group
from ureplicator_controller.api.http.preconditions import etag
from ureplicator_controller.api.http.problems import unavailable
from ureplicator_controller.api.http.request_models import (
    IfMatchHeader,
    OptionalBody,
    Query,
    RebalanceQuery,
)
from ureplicator_controller.api.http.response_models import (
    AutoBalancingChanged,
    AutoBalancingStatus,
    FreezeChanged,
    FreezeStatus,
    JsonResult,
    RebalanceResult,
    responses,
    write_responses,
)
from ureplicator_controller.api.services.fleet_cache import FleetCache, FleetState
from ureplicator_controller.api.services.workers import Wishes
from ureplicator_controller.core.planning.plan import plan
from ureplicator_controller.core.reporting.owner_changes import owner_changes
from ureplicator_controller.core.state.snapshot import BalanceLimits


def blueprint(*, fleet: FleetCache, wishes: Wishes, limits: BalanceLimits) -> APIBlueprint:
    """`limits`: those of the leader, for a dry run."""
    api = group("balance", __name__)

    def balancing(opt: str, wanted: bool, header: IfMatchHeader) -> JsonResult:
        change = partial(replace, auto_balancing=wanted)
        now = wishes.switch(change, header.condition)
        return {"opt": opt, "auto_balancing": now.auto_balancing}

    def freezing(opt: str, wanted: bool, header: IfMatchHeader) -> JsonResult:
        now = wishes.switch(partial(replace, frozen=wanted), header.condition)
        return {"opt": opt, "frozen": now.frozen}

    @api.post("/admin/enable_autobalancing", responses=write_responses(AutoBalancingChanged))
    def enable_autobalancing(query: Query, body: OptionalBody, header: IfMatchHeader) -> JsonResult:
        """Lost and new workers move partitions by themselves."""
        return balancing("enable_autobalancing", True, header)

    @api.post("/admin/disable_autobalancing", responses=write_responses(AutoBalancingChanged))
    def disable_autobalancing(
        query: Query, body: OptionalBody, header: IfMatchHeader
    ) -> JsonResult:
        """What has an owner stays with it, whoever joins or is lost."""
        return balancing("disable_autobalancing", False, header)

    @api.get("/admin/autobalancing_status", responses=responses(AutoBalancingStatus))
    def autobalancing_status(query: Query) -> JsonResult:
        """Whether lost and new workers move partitions by themselves."""
        fleet_state = fleet.current()
        shown = {"auto_balancing": fleet_state.snapshot.switches.auto_balancing}
        return shown, 200, etag(fleet_state.nodes.get(fleet.paths.settings))

    @api.post("/admin/freeze", responses=write_responses(FreezeChanged))
    def freeze(query: Query, body: OptionalBody, header: IfMatchHeader) -> JsonResult:
        """Hold the fleet still: nothing moves but what operators ask for."""
        return freezing("freeze", True, header)

    @api.post("/admin/unfreeze", responses=write_responses(FreezeChanged))
    def unfreeze(query: Query, body: OptionalBody, header: IfMatchHeader) -> JsonResult:
        """Let the fleet move again."""
        return freezing("unfreeze", False, header)

    @api.get("/admin/freeze", responses=responses(FreezeStatus))
    def freeze_status(query: Query) -> JsonResult:
        """Whether the fleet is held still."""
        fleet_state = fleet.current()
        shown = {"frozen": fleet_state.snapshot.switches.frozen}
        return shown, 200, etag(fleet_state.nodes.get(fleet.paths.settings))

    @api.post("/rebalance", responses=write_responses(RebalanceResult))
    def rebalance(query: RebalanceQuery, body: OptionalBody, header: IfMatchHeader) -> JsonResult:
        """Rebalance now, or show what that would move."""
        if query.dry_run == "true":
            return _preview(fleet.current(), limits)
        return {"rebalance": "asked", "request": wishes.rebalance(header.condition)}

    return api


def _preview(fleet_state: FleetState, limits: BalanceLimits) -> dict[str, object]:
    seen = fleet_state.snapshot
    if fleet_state.leader is None:
        raise unavailable("nobody leads: nothing would be done", hint="start a controller")
    switches = replace(seen.switches, rebalance_requested="dry run", rebalance_done="")
    asked = replace(seen, switches=switches, switches_version=None, limits=limits)
    decided = plan(asked, time.monotonic())
    return {
        "dryRun": True,
        "moves": [moved.as_json() for moved in owner_changes(seen, decided.steps)],
        "reasons": list(decided.reasons),
        "waiting": [
            {"partition": str(partition), "for": list(workers)}
            for partition, workers in sorted(decided.waiting.items())
        ],
    }
