"""Requests and responses of `/groups`, `/offsets/translate` and `/failover`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Strict

from ureplicator_controller.api.http.models.positions import MAX_OFFSET, GroupName
from ureplicator_controller.api.http.models.requests import (
    Body,
    NumberText,
    Path,
    RouteQuery,
    TopicName,
)
from ureplicator_controller.api.http.models.responses import ResponseModel
from ureplicator_controller.api.http.models.routes import ShownSync
from ureplicator_controller.api.http.problems import bad_request


class GroupPath(Path):
    group: str


class GroupQuery(RouteQuery):
    name: GroupName = Field(title="a consumer group", description="its name, with any characters")


class TranslateQuery(RouteQuery):
    topic: TopicName = Field(title="a source topic", description="its name at the source")
    partition: NumberText = Field(title="a partition number", description="a whole number from 0")
    offset: Annotated[int, Field(ge=0, le=MAX_OFFSET)] = Field(
        title="an offset", description="a whole number from 0, of the cluster that `to` is not"
    )
    to: Literal["target", "source"] = Field(
        default="target", title="a direction", description="target or source"
    )


class FailoverQuery(RouteQuery):
    dry_run: Annotated[
        Literal["true", "false"],
        Field(title="true or false", description="true: show the plan and write nothing"),
    ] = Field(default="false")

    back: Annotated[
        Literal["true", "false"],
        Field(title="true or false", description="true: from the target back to the source"),
    ] = Field(default="false")


class FailoverBody(Body):
    groups: Annotated[list[GroupName], Field(min_length=1), Strict()] | None = Field(
        default=None,
        title="names of consumer groups",
        description="consumer groups of the cluster that they leave: all their topics on the route",
        examples=[["billing"]],
    )
    topics: Annotated[list[TopicName], Field(min_length=1), Strict()] | None = Field(
        default=None,
        title="names of topics",
        description="source topics: all groups that have offsets on them, on these alone",
    )

    def require_one(self) -> None:
        """Raises Problem unless either groups or topics are given."""
        if (self.groups is None) is (self.topics is None):
            raise bad_request(
                "groups and topics are given" if self.groups else "no groups are given",
                field="topics" if self.groups else "groups",
                hint="give either groups or topics",
            )


class GroupSummary(ResponseModel):
    group: str
    route: str
    state: str = Field(description="state of the partition that lags behind the others most")
    reason: str
    partitions: int = Field(description="number of partitions of the route with an offset of it")


class GroupSummaries(ResponseModel):
    groups: list[GroupSummary]


class GroupPartition(ResponseModel):
    topic: str
    partition: int
    targetTopic: str
    sourceOffset: int | None = Field(description="committed at the source; null: none")
    translated: int | None = Field(
        description="the same place where the group goes, as far as it is copied; null: not known"
    )
    targetOffset: int | None = Field(description="committed at the target; null: none")
    state: str
    reason: str
    readAgain: int | None = Field(
        description="offsets that the group has read and will read again there; null: not known"
    )
    skipped: int | None = Field(
        description="offsets that the group has passed there and has not read; null: not known"
    )
    held: int | None = Field(
        description="offsets of the cluster that it leaves that are held by an open transaction there: not"
        " copied before it ends; null: not known"
    )


class GroupDetails(ResponseModel):
    group: str
    route: str
    state: str
    reason: str
    partitions: list[GroupPartition]


class ShownGroup(GroupDetails):
    sync: ShownSync | None = Field(
        description="last passes of the route's sync of groups; null: it is not enabled"
    )


class TranslatedOffset(ResponseModel):
    route: str
    topic: str
    partition: int
    targetTopic: str
    sourceOffset: int
    targetOffset: int


class Failover(ResponseModel):
    route: str
    dryRun: bool
    back: bool = Field(description="the groups go from the target to the source")
    groups: list[GroupDetails]
