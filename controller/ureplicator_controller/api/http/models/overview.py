"""Response of `/overview`. Partitions are columns: an object for each would be most of the response."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from ureplicator_controller.api.http.models.requests import RequestModel
from ureplicator_controller.api.http.models.responses import ResponseModel


class IfNoneMatchHeader(RequestModel):
    """`If-None-Match` of a read."""

    model_config = ConfigDict(extra="ignore")

    if_none_match: str | None = Field(
        default=None,
        alias="If-None-Match",
        title="an ETag as returned by GET",
        description="ETag of the last response: 304 without a body if nothing has changed",
    )


class ShownStep(ResponseModel):
    """`method` and `path`: the call that does it, "" for none."""

    text: str
    method: str
    path: str


class RouteOverview(ResponseModel):
    route: str
    sentence: str = Field(description="how the route is, and what to do next")
    nextSteps: list[ShownStep] = Field(description="in the order of urgency")
    states: dict[str, int] = Field(description="state -> partitions")
    lagRecords: int | None
    lagSeconds: float | None
    retentionSeconds: float | None
    heldRecords: int | None = Field(description="offsets that open transactions hold")
    heldSeconds: float | None


class OverviewTopic(ResponseModel):
    route: str
    topic: str


class OverviewWorker(ResponseModel):
    worker: str
    live: bool
    drained: bool


class Tiles(ResponseModel):
    """One entry for each partition in each column, in the order of route, topic and number."""

    topic: list[int] = Field(description="index in `topics`")
    partition: list[int]
    state: list[int] = Field(description="index in `states`")
    worker: list[int] = Field(description="ideal worker, index in `workers`; -1: none")
    reason: list[int] = Field(description='index in `texts`; "" if the state is agree')
    since: list[int] = Field(
        description="last change of the ideal state, or the first failure of a partition that fails at each"
        " try, in milliseconds since 1970; 0 if the state is agree"
    )
    actual: list[int] = Field(
        description="workers that report the partition with their states, index in `texts`"
    )
    lagSeconds: list[float | None]


class Overview(ResponseModel):
    """External view against the ideal state, with what is to be done."""

    lagAgeSeconds: float | None = Field(description="age of the lag; null: none was collected yet")
    leader: str | None
    summaries: list[RouteOverview]
    states: list[str] = Field(description="states of partitions in the order of their weight")
    workers: list[OverviewWorker]
    topics: list[OverviewTopic]
    texts: list[str]
    tiles: Tiles
