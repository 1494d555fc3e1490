"""Requests and responses of `/positions`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Strict

from ureplicator_controller.api.http import times
from ureplicator_controller.api.http.models.requests import (
    Body,
    Number,
    NumberText,
    RouteQuery,
)
from ureplicator_controller.api.http.models.responses import ResponseModel
from ureplicator_controller.api.http.problems import bad_request

MAX_OFFSET = 2**63 - 1
GroupName = Annotated[str, Field(max_length=32_767)]
"""Any text, also an empty one, of the length that a string of Kafka's protocol may have."""
_ONE_OF = ("to", "offset", "time", "group")
_NUMBER_TITLE = "a partition number"
_NUMBER_HINT = "a whole number from 0; default: all partitions"


_DryRun = Annotated[
    Literal["true", "false"],
    Field(title="true or false", description="true: show the effect without changing anything"),
]


class PositionsQuery(RouteQuery):
    partition: NumberText | None = Field(
        default=None, title=_NUMBER_TITLE, description=_NUMBER_HINT
    )


class ForgetPositionsQuery(PositionsQuery):
    dry_run: _DryRun = Field(default="false")


class SetPositionsQuery(RouteQuery):
    dry_run: _DryRun = Field(default="false")


class SetPositionsBody(Body):
    partition: Number | None = Field(default=None, title=_NUMBER_TITLE, description=_NUMBER_HINT)
    to: Literal["earliest", "latest"] | None = Field(
        default=None,
        title="an end of the log",
        description="earliest or latest: the first record of the source, or the next one",
        examples=["earliest"],
    )
    offset: Annotated[int, Strict(), Field(ge=0, le=MAX_OFFSET)] | None = Field(
        default=None,
        title="an offset",
        description="offset of the next record to copy, not beyond the end of the source",
    )
    time: times.TimeText | None = Field(
        default=None,
        title="a time",
        description="the first record that is not older, as in 2026-01-31T12:00:00Z; with its zone",
    )
    group: GroupName | None = Field(
        default=None,
        title="the name of a consumer group",
        description="a consumer group of the source cluster: its committed offsets",
    )

    def require_one(self) -> None:
        """Raises Problem unless exactly one position is given."""
        given = [name for name in _ONE_OF if getattr(self, name) is not None]
        if len(given) != 1:
            raise bad_request(
                f"{' and '.join(given)} are given" if given else "no position is given",
                field=given[1] if given else "to",
                hint="give one of to, offset, time and group",
            )

    @property
    def time_ms(self) -> int:
        assert self.time is not None
        return times.milliseconds(self.time)


class ShownChange(ResponseModel):
    """The last change of a position that operators requested."""

    position: int | None = Field(description="requested position; null: forgotten")
    outcome: str = Field(description="pending, done, or why it was refused")
    replaced: int | None = Field(description="position until then; null: none, or pending")
    request: str = Field(description="id of the request")
    by: str = Field(description="name in the caller's login; empty: it had none")


class PartitionPosition(ResponseModel):
    partition: int
    position: int | None = Field(description="next source offset to copy; null: none is stored")
    leaderEpoch: int | None = Field(
        description="leader epoch of the source at the last copied batch"
    )
    writer: str | None = Field(description="worker that committed it; @leader: the leader")
    slot: int | None
    ownerEpoch: int | None = Field(description="of the writer")
    logStart: int | None = Field(description="first offset of the source")
    logEnd: int | None = Field(description="end of the source's committed records")
    lagRecords: int | None = Field(description="offsets from position to end")
    heldBy: list[str] = Field(description="workers that report it or have it assigned")
    change: ShownChange | None
    reason: str | None = Field(
        default=None, description="the position is out of range, or a figure is unknown"
    )


class TopicPositions(ResponseModel):
    topic: str
    route: str
    targetTopic: str
    partitions: list[PartitionPosition]


class PlannedPosition(ResponseModel):
    partition: int
    source: int | None = Field(alias="from", description="present position; null: none is stored")
    to: int | None = Field(description="requested position; null: forgotten")
    beginsAt: int = Field(description="offset at which copying continues, as of now")
    repeated: int | None = Field(description="offsets that are copied again")
    skipped: int | None = Field(description="offsets that are not copied")
    lost: int | None = Field(
        description="offsets from the present position on that the source has deleted already"
    )
    heldBy: list[str] = Field(description="workers from which it is taken for the moment")
    refused: str | None = Field(default=None, description="why it cannot be done")


class PositionsPlanned(ResponseModel):
    topic: str
    route: str
    dryRun: bool
    request: str | None = Field(
        description="id to find the outcome by, in the history; null in a dry run"
    )
    partitions: list[PlannedPosition]
