"""Figures of a route and of the topics that lag most at one time, as the timeline keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import nsmallest

from ureplicator_common.model import Route, TopicKey
from ureplicator_controller.core.reporting.lag import LagSummary, combined
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.state.topic_tallies import Tallies
from ureplicator_controller.core.state.validation_counts import counts_by_route

Lags = Mapping[TopicKey, LagSummary]


@dataclass(frozen=True, slots=True)
class RouteFigures:
    """`lag_records` and `lag_s` (longest wait) are None while they are unknown. Rates are means of some
    seconds, as workers measured them."""

    route: Route
    at_ms: int
    lag_records: int | None
    lag_s: float | None
    bytes_per_s: float
    records_per_s: float
    mismatches: int
    errors: int


@dataclass(frozen=True, slots=True)
class TopicFigures:
    """Lag of a topic: see `RouteFigures`."""

    key: TopicKey
    at_ms: int
    lag_records: int | None
    lag_s: float | None


def lagging_topics(lags: Lags, *, at_ms: int, limit: int) -> list[TopicFigures]:
    """The topics whose records wait longest, then those with most of them; at most `limit`."""
    found = (TopicFigures(key, at_ms, lag.lag_records, lag.lag_s) for key, lag in lags.items())
    return nsmallest(
        limit, found, key=lambda each: (-(each.lag_s or 0), -(each.lag_records or 0), each.key)
    )


def route_figures(
    snapshot: Snapshot, tallies: Tallies, lags: Lags, routes: Iterable[Route], *, at_ms: int
) -> list[RouteFigures]:
    """Figures of these routes, and of all others that have topics."""
    counts = counts_by_route(snapshot, tallies, routes)
    lagging: dict[Route, list[LagSummary]] = {}
    for key, summary in lags.items():
        lagging.setdefault(key.route, []).append(summary)
    rates = {route: [0.0, 0.0] for route in counts}
    for loads in snapshot.loads.values():
        for partition, load in loads.items():
            if partition.route in rates:
                rates[partition.route][0] += load.bytes_per_s
                rates[partition.route][1] += load.records_per_s
    found = []
    for route, count in counts.items():
        lag = combined(lagging.get(route, ()))
        bytes_per_s, records_per_s = rates[route]
        found.append(
            RouteFigures(
                route=route,
                at_ms=at_ms,
                lag_records=lag.lag_records,
                lag_s=lag.lag_s,
                bytes_per_s=bytes_per_s,
                records_per_s=records_per_s,
                mismatches=count.differing,
                errors=count.error,
            )
        )
    return found
