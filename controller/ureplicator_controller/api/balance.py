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

from flask_openapi3 import APIBlueprint

from ureplicator_controller.api.answers import (
    Answered,
    Balancing,
    BalancingSwitched,
    FreezeSwitched,
    Frozen,
    Rebalanced,
    responses,
)
from ureplicator_controller.api.fleet import Fleet, Picture
from ureplicator_controller.api.openapi import group
from ureplicator_controller.api.problems import unavailable
from ureplicator_controller.api.requests import OptionalBody, Query, RebalanceQuery
from ureplicator_controller.api.wishes import Wishes
from ureplicator_controller.core.moves import moves
from ureplicator_controller.core.plan import plan


def blueprint(*, fleet: Fleet, wishes: Wishes) -> APIBlueprint:
    api = group("balance", __name__)

    def balancing(opt: str, wanted: bool) -> Answered:
        now = wishes.switch(lambda now: replace(now, auto_balancing=wanted))
        return {"opt": opt, "auto_balancing": now.auto_balancing}

    def freezing(opt: str, wanted: bool) -> Answered:
        now = wishes.switch(lambda now: replace(now, frozen=wanted))
        return {"opt": opt, "frozen": now.frozen}

    @api.post("/admin/enable_autobalancing", responses=responses(BalancingSwitched))
    def enable_autobalancing(query: Query, body: OptionalBody) -> Answered:
        """Lost and new workers move partitions by themselves."""
        return balancing("enable_autobalancing", True)

    @api.post("/admin/disable_autobalancing", responses=responses(BalancingSwitched))
    def disable_autobalancing(query: Query, body: OptionalBody) -> Answered:
        """What has an owner stays with it, whoever joins or is lost."""
        return balancing("disable_autobalancing", False)

    @api.get("/admin/autobalancing_status", responses=responses(Balancing))
    def autobalancing_status(query: Query) -> Answered:
        """Whether lost and new workers move partitions by themselves."""
        return {"auto_balancing": fleet.picture().snapshot.switches.auto_balancing}

    @api.post("/admin/freeze", responses=responses(FreezeSwitched))
    def freeze(query: Query, body: OptionalBody) -> Answered:
        """Hold the fleet still: nothing moves but what operators ask for."""
        return freezing("freeze", True)

    @api.post("/admin/unfreeze", responses=responses(FreezeSwitched))
    def unfreeze(query: Query, body: OptionalBody) -> Answered:
        """Let the fleet move again."""
        return freezing("unfreeze", False)

    @api.get("/admin/freeze", responses=responses(Frozen))
    def freeze_status(query: Query) -> Answered:
        """Whether the fleet is held still."""
        return {"frozen": fleet.picture().snapshot.switches.frozen}

    @api.post("/rebalance", responses=responses(Rebalanced))
    def rebalance(query: RebalanceQuery, body: OptionalBody) -> Answered:
        """Rebalance now, or show what that would move."""
        if query.dry_run == "true":
            return _preview(fleet.picture())
        return {"rebalance": "asked", "request": wishes.rebalance()}

    return api


def _preview(picture: Picture) -> dict[str, object]:
    seen = picture.snapshot
    if picture.leader is None:
        raise unavailable("nobody leads: nothing would be done", cure="start a controller")
    switches = replace(seen.switches, rebalance_asked="dry run", rebalance_done="")
    asked = replace(seen, switches=switches, switches_version=None)
    decided = plan(asked, time.monotonic())
    return {
        "dryRun": True,
        "moves": [moved.as_json() for moved in moves(seen, decided.steps)],
        "reasons": list(decided.reasons),
        "waiting": [
            {"partition": str(partition), "for": list(workers)}
            for partition, workers in sorted(decided.waiting.items())
        ],
    }
