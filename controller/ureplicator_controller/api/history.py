"""`/history`: the last events, newest first: what moved, from whom, to whom, why, when and for how long,
and what else happened to the fleet.

An event is found in the logs by its id, which for a move is the partition and its owner epoch, and by
the request that asked for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from flask import Blueprint, Response, jsonify, request

from ureplicator_common.model import EventKind, PastEvent, Route
from ureplicator_common.settings import Settings
from ureplicator_controller.api.fleet import Fleet
from ureplicator_controller.api.problems import bad_request
from ureplicator_controller.api.request_ids import is_of
from ureplicator_controller.api.requests import chosen_routes, partition_number, topic_name
from ureplicator_controller.core.history import KEPT, past_events

USUAL = 100

_FILTERS: Mapping[str, Callable[[PastEvent, str], bool]] = {
    "topic": lambda past, name: past.partition is not None and past.partition.topic == name,
    "partition": lambda past, number: (
        past.partition is not None and past.partition.number == int(number)
    ),
    "worker": lambda past, worker: worker in (past.worker, past.source, past.target),
    "kind": lambda past, kind: past.kind == kind,
    "event": lambda past, id: past.id == id,
    "request": lambda past, id: is_of(past.request, id),
}


def blueprint(*, settings: Settings, fleet: Fleet) -> Blueprint:
    api = Blueprint("history", __name__)

    @api.get("/history")
    def show() -> Response:
        routes = {config.route for config in chosen_routes(settings, also=(*_FILTERS, "limit"))}
        every = len(routes) == len(settings.routes)
        limit = _limit(request.args.get("limit"))
        wanted = _wanted()
        found = sorted(
            (
                past
                for past in past_events(fleet.picture().snapshot.history)
                if (_is_on(past, routes) or (every and past.partition is None))
                and all(_FILTERS[name](past, value) for name, value in wanted.items())
            ),
            key=lambda past: past.number,
            reverse=True,
        )
        return jsonify(history=[_shown(past) for past in found[:limit]])

    return api


def _is_on(past: PastEvent, routes: set[Route]) -> bool:
    return past.partition is not None and past.partition.route in routes


def _wanted() -> dict[str, str]:
    """The filters that are asked for, judged."""
    wanted = {name: request.args[name] for name in _FILTERS if name in request.args}
    if "topic" in wanted:
        topic_name(wanted["topic"])
    if "partition" in wanted:
        partition_number(wanted["partition"])
    if "kind" in wanted and wanted["kind"] not in list(EventKind):
        raise bad_request(
            f"there are no events of kind {wanted['kind'][:80]!r}",
            field="kind",
            cure=f"known are {', '.join(EventKind)}",
        )
    return wanted


def _limit(value: str | None) -> int:
    if value is None:
        return USUAL
    if not (value.isascii() and value.isdigit() and len(value) < 10 and int(value) > 0):
        raise bad_request(
            "limit is not a whole number above 0", field="limit", cure=f"at most {KEPT} are kept"
        )
    return int(value)


def _shown(past: PastEvent) -> dict[str, object]:
    moved = past.partition
    time = datetime.fromtimestamp(past.wall_ms / 1_000, UTC).isoformat(timespec="milliseconds")
    shown = {"number": past.number, "time": time, "kind": past.kind, "event": past.id}
    if moved is None:
        return {**shown, "worker": past.worker, "reason": past.reason, "request": past.request}
    return {
        **shown,
        "route": str(moved.route),
        "topic": moved.topic,
        "partition": moved.number,
        "from": past.source,
        "to": past.target,
        "ownerEpoch": past.owner_epoch,
        "reason": past.reason,
        "request": past.request,
        "tookMs": past.took_ms,
    }
