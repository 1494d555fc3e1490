"""One sentence on each route for people on call: how it is, and what to do next.

    west -> east: 1.2 s behind, verified to 12:04:30 UTC, 41 h until data would be lost: nothing to do

What is to be done is a list in the order of urgency; the sentence ends with its first step. A step whose
cure is a call of REST names the call, so that the dashboard can offer it as a button.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from ureplicator_common.model import Route
from ureplicator_controller.core.reporting.lag import HELD_LONG_S, LagSummary
from ureplicator_controller.core.reporting.tiles import TileState

RETENTION_URGENT_S = 3_600.0
"""Retention that passes a position within an hour comes before all that is not broken."""
HELD_URGENT_S = 900.0
"""Brokers let no transaction last longer by default (`transaction.max.timeout.ms`)."""
NOTHING = "nothing to do"


@dataclass(frozen=True, slots=True)
class NextStep:
    """An act that is advised. `method` and `path`: the call of REST that does it, "" for none."""

    text: str
    method: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteCondition:
    """Facts that a summary depends on. `verified_ms`: all topics are verified to this time (wall
    clock); None: some never were. `reasons`: of each state, one partition's reason."""

    route: Route
    states: Mapping[TileState, int]
    reasons: Mapping[TileState, str]
    lag: LagSummary | None = None
    verified_ms: int | None = None
    workers: int = 0
    has_leader: bool = True
    mass_loss: str = ""
    is_paused: bool = False
    is_frozen: bool = False


@dataclass(frozen=True, slots=True)
class RouteSummary:
    """The sentence, and the steps in the order of urgency."""

    sentence: str
    next_steps: tuple[NextStep, ...]


def summarise_route(condition: RouteCondition) -> RouteSummary:
    """Summarise one route."""
    steps = tuple(_steps(condition))
    route = condition.route
    figures = ", ".join(_figures(condition))
    todo = steps[0].text if steps else NOTHING
    return RouteSummary(f"{route.source} -> {route.target}: {figures}: {todo}", steps)


def shown_duration(seconds: float) -> str:
    """A duration in the unit that people read it in: 1.2 s, 45 s, 12 min, 41 h, 9 d."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    for limit_s, unit_s, name in ((120, 1, "s"), (7_200, 60, "min"), (172_800, 3_600, "h")):
        if seconds < limit_s:
            return f"{seconds / unit_s:.0f} {name}"
    return f"{seconds / 86_400:.0f} d"


def _figures(condition: RouteCondition) -> Iterator[str]:
    if not sum(condition.states.values()):
        yield "no topic is whitelisted"
        return
    lag = condition.lag
    if lag is None or lag.lag_s is None:
        yield "lag not known"
    else:
        yield f"{shown_duration(lag.lag_s)} behind"
    if lag is not None and lag.held_records and (lag.held_s or 0) >= HELD_LONG_S:
        yield f"{lag.held_records} records held by open transactions"
    if condition.verified_ms is None:
        yield "not verified"
    else:
        yield f"verified to {_time(condition.verified_ms)}"
    if lag is not None and lag.retention_s is not None:
        yield f"{shown_duration(lag.retention_s)} until data would be lost"


def _time(wall_ms: int) -> str:
    return f"{datetime.fromtimestamp(wall_ms / 1_000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _steps(condition: RouteCondition) -> Iterator[NextStep]:
    if not condition.has_leader:
        yield NextStep("no controller leads: start one")
    if condition.mass_loss:
        text = f"{condition.mass_loss}: bring workers back, or confirm the loss"
        yield NextStep(text, "POST", "/admin/unfreeze")
    if not condition.workers:
        yield NextStep("no worker is live: start one")
    yield from _broken(condition)
    yield from _switched(condition)
    if condition.states[TileState.MOVING]:
        yield NextStep(_counted(condition, TileState.MOVING, "not as in the ideal state, wait"))


def _broken(condition: RouteCondition) -> Iterator[NextStep]:
    if condition.states[TileState.ERROR]:
        yield NextStep(_counted(condition, TileState.ERROR, "in error or stopped"))
    if condition.states[TileState.STUCK]:
        yield NextStep(_counted(condition, TileState.STUCK, "stuck"))
    lag = condition.lag
    if lag is not None and lag.retention_s is not None and lag.retention_s < RETENTION_URGENT_S:
        yield NextStep("retention is about to delete records that are not copied: extend it")
    if lag is not None and (lag.held_s or 0) >= HELD_URGENT_S:
        text = "a transaction at the source holds records back: see the reason of the topic, and end it"
        yield NextStep(text)


def _switched(condition: RouteCondition) -> Iterator[NextStep]:
    if condition.is_paused:
        yield NextStep(
            "the route is paused: resume it", "POST", f"/routes/{condition.route}/resume"
        )
    if condition.is_frozen and not condition.mass_loss:
        yield NextStep("the fleet is frozen: unfreeze it", "POST", "/admin/unfreeze")


def _counted(condition: RouteCondition, state: TileState, text: str) -> str:
    count = condition.states[state]
    noun = "partition is" if count == 1 else "partitions are"
    return f"{count} {noun} {text}: {condition.reasons[state]}"
