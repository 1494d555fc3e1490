"""`/history`: the last events, newest first: moves of partitions with origin, destination, reason, time
and duration, gaps that were passed over with their offsets, and everything else that happened to the fleet.

An event is found in the logs by its id, which for a move is the partition and its owner epoch, and by
the id of the request that caused it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flask_openapi3 import APIBlueprint

from ureplicator_common.config.settings import Settings
from ureplicator_common.model import Route
from ureplicator_common.znode_contents import PastEvent
from ureplicator_controller.api.access.roles import viewer
from ureplicator_controller.api.http.models.history import EventList
from ureplicator_controller.api.http.models.requests import HistoryQuery, chosen_routes
from ureplicator_controller.api.http.models.responses import JsonResult, responses
from ureplicator_controller.api.http.openapi import group
from ureplicator_controller.api.http.request_ids import is_of
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.core.reporting.event_history import past_events
from ureplicator_controller.core.reporting.shown_events import shown_event

_FILTERS: Mapping[str, Callable[[PastEvent, Any], bool]] = {
    "topic": lambda past, name: past.partition is not None and past.partition.topic == name,
    "partition": lambda past, number: (
        past.partition is not None and past.partition.number == number
    ),
    "worker": lambda past, worker: worker in (past.worker, past.source, past.target),
    "kind": lambda past, kind: past.kind == kind,
    "event": lambda past, id: past.id == id,
    "request": lambda past, id: is_of(past.request, id),
}


def blueprint(*, settings: Settings, fleet: FleetCache) -> APIBlueprint:
    api = group("history", __name__)

    @api.get("/history", responses=responses(EventList, 404))
    @viewer
    def show_history(query: HistoryQuery) -> JsonResult:
        """The last two thousand events, newest first."""
        routes = {config.route for config in chosen_routes(settings, query)}
        every = len(routes) == len(settings.routes)
        wanted = {name: value for name in _FILTERS if (value := getattr(query, name)) is not None}
        found = sorted(
            (
                past
                for past in past_events(fleet.current().snapshot.history)
                if (_is_on(past, routes) or (every and past.partition is None))
                and all(_FILTERS[name](past, value) for name, value in wanted.items())
            ),
            key=lambda past: past.number,
            reverse=True,
        )
        return {"history": [shown_event(past) for past in found[: query.limit]]}

    return api


def _is_on(past: PastEvent, routes: set[Route]) -> bool:
    return past.partition is not None and past.partition.route in routes
