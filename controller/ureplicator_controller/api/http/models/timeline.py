"""Requests and responses of `/timeline`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ureplicator_controller.api.http.models.history import GapEvent, MoveEvent, OtherEvent
from ureplicator_controller.api.http.models.requests import Limit, RouteQuery
from ureplicator_controller.api.http.models.responses import ResponseModel
from ureplicator_controller.api.http.times import TimeText

MAX_MINUTES = 1_440
MAX_STEPS = 2_000


class TimelineQuery(RouteQuery):
    at: TimeText | None = Field(
        default=None,
        title="a time",
        description="end of the time that is shown, as in 2026-01-31T12:00:00Z; default: now",
    )
    minutes: Annotated[Limit, Field(le=MAX_MINUTES)] = Field(
        default=60, title="1 to 1440", description="length of the time that is shown; a day at most"
    )
    steps: Annotated[Limit, Field(le=MAX_STEPS)] = Field(
        default=240, title="1 to 2000", description="figures of a route at most"
    )


class RouteSeries(ResponseModel):
    """One entry for each step that has figures."""

    at: list[int] = Field(description="begin of the step, in milliseconds since 1970")
    lagRecords: list[int | None] = Field(description="highest of the step; null: unknown")
    lagSeconds: list[float | None] = Field(description="longest wait of the step; null: unknown")
    bytesPerSecond: list[float] = Field(description="mean of the step")
    recordsPerSecond: list[float] = Field(description="mean of the step")
    mismatches: list[int] = Field(description="most of the step")
    errors: list[int] = Field(description="most partitions in ERROR of the step")


class TopicTimeline(ResponseModel):
    """One entry for each step in which the topic was among those that lag most."""

    topic: str
    route: str
    begin: int = Field(description="in milliseconds since 1970")
    end: int
    stepMs: int
    keptSince: int | None = Field(
        description="this controller has nothing older, in milliseconds since 1970; null: nothing yet"
    )
    at: list[int] = Field(description="begin of the step, in milliseconds since 1970")
    lagRecords: list[int | None] = Field(description="highest of the step; null: unknown")
    lagSeconds: list[float | None] = Field(description="longest wait of the step; null: unknown")


class Timeline(ResponseModel):
    begin: int = Field(description="in milliseconds since 1970")
    end: int
    stepMs: int
    keptSince: int | None = Field(
        description="this controller has nothing older, in milliseconds since 1970; null: nothing yet"
    )
    routes: dict[str, RouteSeries]
    events: list[MoveEvent | GapEvent | OtherEvent] = Field(
        description="the last 500 of this time, oldest first"
    )


class RouteUsageModel(ResponseModel):
    """Copy of a route in the last day, as far as this controller has seen."""

    route: str
    since: int = Field(description="time of the first figures, in milliseconds since 1970")
    bytes: int = Field(description="as they travel: compressed where the topic is")
    records: int
    cpuSeconds: float = Field(
        description="processor time of the workers; that of a worker is divided among its routes by bytes"
    )
    coreHoursPerTb: float | None = Field(
        description="core-hours for 10^12 bytes; null: nothing was copied"
    )


class UsageList(ResponseModel):
    usage: list[RouteUsageModel]
