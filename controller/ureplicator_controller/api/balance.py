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

from flask import Blueprint, Response, jsonify, request

from ureplicator_controller.api.fleet import Fleet, Picture
from ureplicator_controller.api.problems import bad_request, unavailable
from ureplicator_controller.api.requests import json_body, only_parameters
from ureplicator_controller.api.wishes import Wishes
from ureplicator_controller.core.moves import moves
from ureplicator_controller.core.plan import plan

_DRY_RUN = "dry_run"
_BOOLEANS = {"true": True, "false": False}


def blueprint(*, fleet: Fleet, wishes: Wishes) -> Blueprint:
    api = Blueprint("balance", __name__)

    def balancing(opt: str, wanted: bool) -> Response:
        _no_arguments()
        now = wishes.switch(lambda now: replace(now, auto_balancing=wanted))
        return jsonify(opt=opt, auto_balancing=now.auto_balancing)

    def freezing(opt: str, wanted: bool) -> Response:
        _no_arguments()
        now = wishes.switch(lambda now: replace(now, frozen=wanted))
        return jsonify(opt=opt, frozen=now.frozen)

    @api.post("/admin/enable_autobalancing")
    def enable() -> Response:
        return balancing("enable_autobalancing", True)

    @api.post("/admin/disable_autobalancing")
    def disable() -> Response:
        return balancing("disable_autobalancing", False)

    @api.get("/admin/autobalancing_status")
    def status() -> Response:
        only_parameters()
        return jsonify(auto_balancing=fleet.picture().snapshot.switches.auto_balancing)

    @api.post("/admin/freeze")
    def freeze() -> Response:
        return freezing("freeze", True)

    @api.post("/admin/unfreeze")
    def unfreeze() -> Response:
        return freezing("unfreeze", False)

    @api.get("/admin/freeze")
    def frozen() -> Response:
        only_parameters()
        return jsonify(frozen=fleet.picture().snapshot.switches.frozen)

    @api.post("/instances")
    def rebalance_instances() -> Response:
        _no_arguments()
        return jsonify(rebalance="asked", request=wishes.rebalance())

    @api.post("/rebalance")
    def rebalance() -> Response:
        only_parameters(_DRY_RUN)
        json_body((), required=False)
        if _is_dry(request.args.get(_DRY_RUN, "false")):
            return jsonify(_preview(fleet.picture()))
        return jsonify(rebalance="asked", request=wishes.rebalance())

    return api


def _no_arguments() -> None:
    only_parameters()
    json_body((), required=False)


def _is_dry(value: str) -> bool:
    if value not in _BOOLEANS:
        raise bad_request(
            f"{_DRY_RUN} is neither true nor false", field=_DRY_RUN, cure=f"use {_DRY_RUN}=true"
        )
    return _BOOLEANS[value]


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
