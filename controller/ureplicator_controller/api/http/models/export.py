"""Bodies of `/export` and `/import`: what an export holds, and what an import takes and reports."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator

from ureplicator_common.model import MAX_SLOTS, Limited, Route, TopicState
from ureplicator_common.znodes.topics import MAX_TOPIC_PARTITIONS
from ureplicator_controller.api.http.models.limits import MAX_LIMITS, BytesPerSecond
from ureplicator_controller.api.http.models.requests import (
    Body,
    DryRun,
    OptionalBody,
    Query,
    RouteQuery,
    TopicName,
)
from ureplicator_controller.api.http.models.responses import ResponseModel
from ureplicator_controller.api.http.problems import Problem

RANGES_HINT = "numbers and ranges of partitions, as in 0-7,9"
_COUNT = f"a whole number from 1 to {MAX_TOPIC_PARTITIONS}"

Whole = Annotated[int, Field(strict=True, ge=1, le=MAX_TOPIC_PARTITIONS)]
Ranges = Annotated[
    str,
    Field(pattern=r"^([0-9]{1,9}(-[0-9]{1,9})?(,[0-9]{1,9}(-[0-9]{1,9})?)*)?$"),
    BeforeValidator(
        lambda value: str(value) if type(value) is int else value,
        json_schema_input_type=str,
    ),
]
"""A single number is an integer in YAML, and accepted too."""
_TOPIC_ID = "topic id as the cluster has it; empty: not known"
TopicId = Annotated[str, Field(pattern="^[a-zA-Z0-9_-]{0,64}$")]


def _route(value: object) -> Route:
    """Raises ValueError for anything but `source.target`."""
    if not isinstance(value, str):
        raise ValueError
    return Route.parse(value)


def _limited(value: object) -> Limited:
    """Raises ValueError for anything but `kind:name`."""
    if not isinstance(value, str):
        raise ValueError
    return Limited.parse(value)


LimitName = Annotated[Limited, PlainValidator(_limited, json_schema_input_type=str)]
RouteName = Annotated[Route, PlainValidator(_route, json_schema_input_type=str)]


class ImportBlacklistQuery(RouteQuery):
    dry_run: DryRun = Field(default="false")


class ImportTopicQuery(ImportBlacklistQuery):
    listed: Annotated[
        Literal["true", "false"],
        Field(
            title="true or false",
            description="false: the topic is also removed from the route's blacklist",
        ),
    ] = "true"
    from_fleet: Annotated[
        str,
        Field(
            max_length=249,
            title="the name of a fleet",
            description="a fleet that gives the topic up: its claim on the target topic does not count",
        ),
    ] = ""


class ImportQuery(Query):
    dry_run: DryRun = Field(default="false")


class ImportTopicBody(Body):
    partitions: Whole = Field(title="a number of partitions", description=_COUNT, examples=[4])
    initial_partitions: Annotated[int, Field(strict=True, ge=0, le=MAX_TOPIC_PARTITIONS)] = Field(
        alias="initialPartitions",
        title="a number of partitions",
        description=f"a whole number from 0 to {MAX_TOPIC_PARTITIONS}",
        examples=[4],
    )
    state: Literal["active", "paused", "reversed"] = Field(
        title="a state", description="active or paused", examples=["active"]
    )
    blacklisted: Ranges = Field(default="", title="a list of partitions", description=RANGES_HINT)
    had_position: Ranges = Field(
        default="", alias="hadPosition", title="a list of partitions", description=RANGES_HINT
    )
    target_topic: TopicName | None = Field(
        default=None,
        alias="targetTopic",
        title="a legal topic name",
        description="name on the target; by the route's naming when it is missing",
    )
    lane: Literal["raw"] = Field(
        default="raw", title="a lane", description="raw; in exports of former versions, and ignored"
    )
    whole: bool = Field(
        default=False,
        title="true or false",
        description="true: new partitions of the source are copied, too",
        strict=True,
    )
    source_topic_id: TopicId = Field(
        default="", alias="sourceTopicId", title="an id of a topic", description=_TOPIC_ID
    )
    target_topic_id: TopicId = Field(
        default="", alias="targetTopicId", title="an id of a topic", description=_TOPIC_ID
    )
    target_created: bool = Field(
        default=False,
        alias="targetCreated",
        title="true or false",
        description="true: the target topic was created for this topic",
        strict=True,
    )
    restarted: bool = Field(
        default=False,
        title="true or false",
        description="true: positions of former topics with this name are ignored",
        strict=True,
    )
    stopped: Annotated[str, Field(max_length=1_000)] = Field(
        default="",
        title="a reason",
        description="why the leader stopped it; empty: it is not stopped",
    )


class TopicEntry(ImportTopicBody):
    """A topic as it is wanted. A field that is missing stays as it is; of a new topic it becomes what adding
    the topic by hand makes it."""

    partitions: Whole | None = Field(  # type: ignore[assignment]
        default=None, title="a number of partitions", description=_COUNT, examples=[4]
    )
    initial_partitions: Annotated[int, Field(strict=True, ge=0, le=MAX_TOPIC_PARTITIONS)] | None = (
        Field(  # type: ignore[assignment]
            default=None,
            alias="initialPartitions",
            title="a number of partitions",
            description=f"a whole number from 0 to {MAX_TOPIC_PARTITIONS}",
        )
    )
    state: Literal["active", "paused", "reversed"] | None = Field(  # type: ignore[assignment]
        default=None, title="a state", description="active or paused", examples=["active"]
    )
    listed: bool = Field(
        default=True,
        title="true or false",
        description="false: the topic is also removed from the route's blacklist",
        strict=True,
    )


MAX_TOPICS = 200
"""Topics in one request: it is served within seconds, and its body is within the limit of all bodies."""


def _entry(value: object) -> TopicEntry | Problem:
    """One entry that is wrong does not refuse the others."""
    try:
        return TopicEntry.model_validate(value)
    except Problem as problem:
        return problem


class ImportTopicsBody(Body):
    topics: Annotated[
        dict[str, Annotated[object, PlainValidator(_entry, json_schema_input_type=TopicEntry)]],
        Field(max_length=MAX_TOPICS),
    ] = Field(
        default={},
        title=f"at most {MAX_TOPICS} topics by name",
        description="topics as they are wanted; a field that is missing stays as it is, and of a new"
        " topic becomes what adding it by hand makes it",
        examples=[{"orders": {"state": "active"}}],
    )
    remove: Annotated[list[TopicName], Field(max_length=MAX_TOPICS)] = Field(
        default=[],
        title=f"a list of at most {MAX_TOPICS} topics",
        description="topics that are copied no longer; those that the route's patterns want are kept",
    )


class ImportBlacklistBody(OptionalBody):
    """An empty body: the topic is in the path."""


class ImportWorkerBody(Body):
    slots: Annotated[int, Field(strict=True, ge=0, le=MAX_SLOTS)] = Field(
        title="a number of slots", description=f"a whole number up to {MAX_SLOTS}", examples=[2]
    )
    blacklisted: bool = Field(title="true or false", description="true or false", strict=True)
    draining: bool = Field(title="true or false", description="true or false", strict=True)


class ImportSwitchesBody(Body):
    auto_balancing: bool = Field(
        alias="autoBalancing", title="true or false", description="true or false", strict=True
    )
    frozen: bool = Field(title="true or false", description="true or false", strict=True)
    paused_routes: tuple[RouteName, ...] | None = Field(
        default=None,
        alias="pausedRoutes",
        title="a list of routes",
        description="paused routes, as in west.east; without it they stay as they are",
    )
    limits: Annotated[dict[LimitName, BytesPerSecond], Field(max_length=MAX_LIMITS)] | None = Field(
        default=None,
        title="byte limits",
        description="bytes per second by name, as in topic:west.east/orders; without it they stay as"
        " they are",
    )
    route_settings: dict[RouteName, dict[str, Any]] | None = Field(
        default=None,
        alias="routeSettings",
        title="settings by route",
        description="settings that count in place of the file's, by route; without it they stay as they are",
    )


class ExportedTopic(ResponseModel):
    partitions: int
    initialPartitions: int
    state: TopicState
    blacklisted: str
    hadPosition: str
    targetTopic: str
    whole: bool
    sourceTopicId: str
    targetTopicId: str
    targetCreated: bool
    restarted: bool
    stopped: str


class ExportedWorker(ResponseModel):
    slots: int
    blacklisted: bool
    draining: bool


class ExportedSwitches(ResponseModel):
    autoBalancing: bool
    frozen: bool
    pausedRoutes: list[str]
    limits: dict[str, int]
    routeSettings: dict[str, dict[str, Any]]


class FleetExport(ResponseModel):
    version: int
    fleet: str
    switches: ExportedSwitches
    workers: dict[str, ExportedWorker]
    blacklist: dict[str, list[str]]
    topics: dict[str, dict[str, ExportedTopic]]


class RejectedField(ResponseModel):
    field: str
    detail: str
    hint: str


class ImportResult(ResponseModel):
    """`refused`: fields that were not imported; all others were."""

    result: Literal["created", "changed", "unchanged"]
    changes: list[str]
    refused: list[RejectedField]


class TopicImportResult(ImportResult):
    warnings: list[str] | None = Field(
        default=None,
        description="of a new topic: settings of its target topic that refuse what the source accepts",
    )


class TopicProblem(ResponseModel):
    """The reason why nothing was done about a topic; as the refusal of a request about it alone."""

    status: int
    detail: str
    field: str
    hint: str


class TopicOutcome(ResponseModel):
    topic: str
    result: Literal["created", "changed", "unchanged", "deleted", "kept", "refused", "failed"] = (
        Field(
            description="kept: not removed, since the route's patterns want it; failed: try again"
        )
    )
    changes: list[str]
    refused: list[RejectedField]
    warnings: list[str] | None = Field(
        default=None,
        description="of a new topic: settings of its target topic that refuse what the source accepts",
    )
    problem: TopicProblem | None = None


class TopicOutcomes(ResponseModel):
    """An outcome for each topic of the request, in its order."""

    topics: list[TopicOutcome]
