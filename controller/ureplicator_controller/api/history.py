"""`/history`: the last moves, newest first: which partition, from whom, to whom, why and when."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify, request

from ureplicator_common.model import PastMove
from ureplicator_common.settings import Settings
from ureplicator_controller.api.fleet import Fleet
from ureplicator_controller.api.problems import bad_request
from ureplicator_controller.api.requests import chosen_routes, topic_name
from ureplicator_controller.core.history import KEPT, past_moves

USUAL = 100


def blueprint(*, settings: Settings, fleet: Fleet) -> Blueprint:
    api = Blueprint("history", __name__)

    @api.get("/history")
    def show() -> Response:
        routes = {config.route for config in chosen_routes(settings, also=("topic", "limit"))}
        limit = _limit(request.args.get("limit"))
        topic = request.args.get("topic")
        if topic is not None:
            topic_name(topic)
        found = sorted(
            (
                past
                for past in past_moves(fleet.picture().snapshot.history)
                if past.partition.route in routes and topic in (None, past.partition.topic)
            ),
            key=lambda past: past.number,
            reverse=True,
        )
        return jsonify(history=[_shown(past) for past in found[:limit]])

    return api


def _limit(value: str | None) -> int:
    if value is None:
        return USUAL
    if not (value.isascii() and value.isdigit() and len(value) < 10 and int(value) > 0):
        raise bad_request(
            "limit is not a whole number above 0", field="limit", cure=f"at most {KEPT} are kept"
        )
    return int(value)


def _shown(past: PastMove) -> dict[str, object]:
    return {
        "number": past.number,
        "time": past.wall_ms,
        "route": str(past.partition.route),
        "topic": past.partition.topic,
        "partition": past.partition.number,
        "from": past.source,
        "to": past.target,
        "reason": past.reason,
    }
