"""Responses about switches, rebalances and past events."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field, RootModel

from ureplicator_common.model import EventKind
from ureplicator_controller.api.http.models.responses import ResponseModel


class AutoBalancingChanged(ResponseModel):
    opt: str
    auto_balancing: bool


class AutoBalancingStatus(ResponseModel):
    auto_balancing: bool


class FreezeChanged(ResponseModel):
    opt: str
    frozen: bool


class FreezeStatus(ResponseModel):
    frozen: bool


class RebalanceRequested(ResponseModel):
    rebalance: str
    request: str = Field(
        description="id to find the moves by, in the history, and the progress, in the tasks"
    )


class PlannedMove(ResponseModel):
    route: str
    topic: str
    partition: int
    source: str | None = Field(alias="from")
    to: str | None
    reason: str


class WaitingPartition(ResponseModel):
    partition: str
    workers: list[str] = Field(alias="for")


class DryRun(ResponseModel):
    dryRun: bool
    planId: str = Field(description="by which exactly these moves can be applied")
    moves: list[PlannedMove]
    reasons: list[str]
    waiting: list[WaitingPartition] = Field(description="partitions that wait for a release")


class RebalanceResult(RootModel[RebalanceRequested | DryRun]):
    """Either a request that was written, or a dry run."""


class AnyEvent(ResponseModel):
    number: int
    time: datetime
    kind: EventKind
    event: str = Field(description="id of the event, for a partition of its last move; as in logs")
    request: str = Field(description="id of the request that caused it; empty: none")
    by: str = Field(description="name in the login of that request; empty: it had none")


class OtherEvent(AnyEvent):
    worker: str | None
    reason: str


class MoveEvent(AnyEvent, PlannedMove):
    """A move, or another event of one partition; then `from` and `to` are null."""

    ownerEpoch: int
    tookMs: int | None = Field(description="until the new owner was ONLINE; null: not yet")


class GapEvent(AnyEvent):
    """Copying went on at `nextOffset`, where `firstOffset` was to come next. Of a cutover: these offsets were
    written behind `OPEN`, and not copied."""

    route: str
    topic: str
    partition: int
    ownerEpoch: int
    worker: str | None = Field(description="null: of a cutover")
    reason: str
    firstOffset: int = Field(description="of the source; -1: there was no position")
    nextOffset: int = Field(
        description="of the source; the same: the target lost records; smaller: the source was truncated"
    )


class EventList(ResponseModel):
    history: list[MoveEvent | GapEvent | OtherEvent]
