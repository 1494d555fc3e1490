"""`/timeline`: lag, throughput, mismatches and errors of each route over time, with the events between;
`/usage`: what the copy of each route cost in the last day."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flask_openapi3 import APIBlueprint

from ureplicator_common.clock import Clock
from ureplicator_common.config.settings import Settings
from ureplicator_common.model import TopicKey
from ureplicator_controller.api.access.roles import viewer
from ureplicator_controller.api.http import times
from ureplicator_controller.api.http.models.requests import (
    RouteQuery,
    TopicPath,
    chosen_route,
    chosen_routes,
)
from ureplicator_controller.api.http.models.responses import JsonResult, responses
from ureplicator_controller.api.http.models.timeline import (
    Timeline,
    TimelineQuery,
    TopicTimeline,
    UsageList,
)
from ureplicator_controller.api.http.openapi import group
from ureplicator_controller.api.services.timeline.store import (
    RouteCost,
    TimelineStore,
    kept_from_ms,
)
from ureplicator_controller.core.reporting.route_figures import RouteFigures

MAX_EVENTS = 500


def blueprint(*, settings: Settings, store: TimelineStore, clock: Clock) -> APIBlueprint:
    api = group("timeline", __name__)

    @api.get("/timeline", responses=responses(Timeline, 404))
    @viewer
    def show_timeline(query: TimelineQuery) -> JsonResult:
        """Figures and events of the last day at most, as this controller has seen them."""
        begin_ms, end_ms, step_ms = _span(query, clock)
        chosen = {config.route for config in chosen_routes(settings, query)}
        every = len(chosen) == len(settings.routes)
        found = store.steps(from_ms=begin_ms, until_ms=end_ms, step_ms=step_ms)
        events = store.events(from_ms=begin_ms, until_ms=end_ms, limit=MAX_EVENTS)
        names = {str(route) for route in chosen}
        return {
            "begin": begin_ms,
            "end": end_ms,
            "stepMs": step_ms,
            "keptSince": store.first_ms(),
            "routes": _series(row for row in found if every or row.route in chosen),
            "events": [row for row in events if every or row.get("route", "") in names],
        }

    @api.get("/timeline/topics/<path:topic>", responses=responses(TopicTimeline, 404))
    @viewer
    def show_topic_timeline(path: TopicPath, query: TimelineQuery) -> JsonResult:
        """Lag of a topic in the last day, for the times when it was among the thirty topics that lag most."""
        route = chosen_route(settings, query).route
        begin_ms, end_ms, step_ms = _span(query, clock)
        found = store.topic_steps(
            TopicKey(route, path.topic), from_ms=begin_ms, until_ms=end_ms, step_ms=step_ms
        )
        return {
            "topic": path.topic,
            "route": str(route),
            "begin": begin_ms,
            "end": end_ms,
            "stepMs": step_ms,
            "keptSince": store.first_ms(),
            "at": [figures.at_ms for figures in found],
            "lagRecords": [figures.lag_records for figures in found],
            "lagSeconds": [figures.lag_s for figures in found],
        }

    @api.get("/usage", responses=responses(UsageList, 404))
    @viewer
    def show_usage(query: RouteQuery) -> JsonResult:
        """Bytes and records that were copied on each route in the last day, and their processor time."""
        chosen = {config.route for config in chosen_routes(settings, query)}
        every = len(chosen) == len(settings.routes)
        found = store.usage(from_ms=kept_from_ms(clock.wall_ms()))
        return {"usage": [_cost_json(cost) for cost in found if every or cost.route in chosen]}

    return api


def _cost_json(each: RouteCost) -> dict[str, Any]:
    core_hours = each.cost.core_hours_per_tb
    return {
        "route": str(each.route),
        "since": each.since_ms,
        "bytes": each.cost.bytes,
        "records": each.cost.records,
        "cpuSeconds": round(each.cost.cpu_s, 3),
        "coreHoursPerTb": None if core_hours is None else round(core_hours, 4),
    }


def _span(query: TimelineQuery, clock: Clock) -> tuple[int, int, int]:
    """Begin, end and length of a step, in milliseconds; the same steps in each look."""
    end_ms = clock.wall_ms() + 1 if query.at is None else times.milliseconds(query.at)
    span_ms = query.minutes * 60_000
    step_ms = max(1_000, span_ms // query.steps)
    return (end_ms - span_ms) // step_ms * step_ms, end_ms, step_ms


def _series(found: Iterable[RouteFigures]) -> dict[str, dict[str, list[Any]]]:
    """Route -> name of a figure -> its values by time."""
    series: dict[str, dict[str, list[Any]]] = {}
    for figures in found:
        values = {
            "at": figures.at_ms,
            "lagRecords": figures.lag_records,
            "lagSeconds": figures.lag_s,
            "bytesPerSecond": round(figures.bytes_per_s, 1),
            "recordsPerSecond": round(figures.records_per_s, 1),
            "mismatches": figures.mismatches,
            "errors": figures.errors,
        }
        of_route = series.setdefault(str(figures.route), {name: [] for name in values})
        for name, value in values.items():
            of_route[name].append(value)
    return series
