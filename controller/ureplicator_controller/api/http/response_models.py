"""Response models: the schema at /openapi.json is generated from them.

Views return plain dictionaries; in tests each is validated against the model that its call declares
(`validated`), so neither can change without the other. Keys that may be absent have a default here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel

from ureplicator_common.model import EventKind, Lane, PartitionState, TopicState
from ureplicator_controller.api.http.phrases import PHRASES
from ureplicator_controller.api.http.schema_cache import CachedSchemaModel

JsonResult = dict[str, Any] | tuple[dict[str, Any], int, Mapping[str, str]]
Responses = dict[HTTPStatus, type[BaseModel] | dict[str, Any] | None]

PROBLEM = "application/problem+json"


class ResponseModel(CachedSchemaModel):
    model_config = ConfigDict(extra="forbid")


class ProblemResponse(CachedSchemaModel):
    """RFC 9457: what is wrong, the field of the request it is about, and what to do about it."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    field: str | None = None
    hint: str | None = None


_PROBLEM_CONTENT = {
    PROBLEM: {"schema": {"$ref": f"#/components/schemas/{ProblemResponse.__name__}"}}
}


def problems(*statuses: int) -> Responses:
    """The problems that a call may respond with."""
    return {
        HTTPStatus(status): {
            "description": PHRASES[HTTPStatus(status)],
            "content": _PROBLEM_CONTENT,
        }
        for status in statuses
    }


def responses(model: type[BaseModel], *refusals: int, status: int = 200) -> Responses:
    """The success response, the problems of every call that reads the fleet, and further ones."""
    return {HTTPStatus(status): model} | problems(400, 401, 403, *refusals, 429, 500, 503)


def write_responses(model: type[BaseModel], *refusals: int, status: int = 200) -> Responses:
    """As `responses`, for a call that takes If-Match."""
    return responses(model, *refusals, 412, 413, status=status)


def validated(response: Any, declared: Mapping[Any, Any]) -> Any:
    """The response, if it matches its declared model. Raises ValidationError, KeyError."""
    body, status = response[:2] if isinstance(response, tuple) else (response, 200)
    model = declared[HTTPStatus(status)]
    if isinstance(model, type) and issubclass(model, BaseModel):
        model.model_validate_json(json.dumps(body), strict=True)
    return response


# --- /topics, /offset


class TopicList(ResponseModel):
    topics: list[str]


class TopicChanged(ResponseModel):
    topic: str
    route: str
    partitions: int
    state: TopicState | None = None


class TopicAdded(TopicChanged):
    warnings: list[str] | None = Field(
        None, description="settings of the target topic that refuse what the source accepts"
    )


class PartitionMismatch(ResponseModel):
    partition: int
    ideal: dict[str, PartitionState]
    actual: dict[str, PartitionState]
    reason: str
    since: int | None = Field(
        description="milliseconds since 1970; null: before the leader's first decision"
    )


class TopicDetails(ResponseModel):
    topic: str
    route: str
    targetTopic: str = Field(description="name on the target")
    lane: Lane
    state: TopicState
    effectiveState: Literal["active", "paused", "deleting", "stopped", "blacklisted"] = Field(
        description="state with stops and blacklist; `state` is what operators have set"
    )
    stopped: str = Field(description="why the leader stopped it; empty: it is not stopped")
    topicBlacklisted: bool = Field(description="whether the whole topic is blacklisted")
    sourceTopicId: str = Field(description="id of the source topic; empty: not known yet")
    targetTopicId: str = Field(description="id of the target topic; empty: not known yet")
    partitions: int
    blacklisted: list[int] = Field(description="blacklisted partitions")
    idealState: dict[str, dict[str, PartitionState]] = Field(
        description="partition -> worker that should copy it"
    )
    externalView: dict[str, dict[str, PartitionState]] = Field(
        description="partition -> worker -> its state"
    )
    serverToPartitionMapping: dict[str, dict[str, PartitionState]] = Field(
        description="worker -> partition -> state"
    )
    serverToNumPartitionsMapping: dict[str, int] = Field(
        description="worker -> partitions that are ONLINE"
    )
    mismatches: list[PartitionMismatch]
    excluded: dict[str, str] = Field(description="partition -> why it is not copied")
    positions: dict[str, int | None] | None = Field(description="next offset to copy")
    positionsReason: str | None = None
    progress: dict[str, PartitionLag]
    progressAgeSeconds: float | None = Field(description="age of the figures")


# --- /offset


class PartitionLag(ResponseModel):
    """Null: not known; `reason` has the cause, or what is wrong."""

    position: int | None = Field(description="next source offset to copy")
    logStart: int | None = Field(description="first offset of the source")
    logEnd: int | None = Field(description="end of the source's committed records")
    lagRecords: int | None = Field(description="offsets from position to end")
    lagSeconds: float | None = Field(description="how long the next record has waited")
    recordsPerSecond: float | None = Field(description="over the last half minute")
    catchUpSeconds: float | None = Field(description="at the present rate")
    retentionSeconds: float | None = Field(description="until the next record may be deleted")
    reason: str | None = None


class PartitionOffset(PartitionLag):
    topic: str
    partition: int
    route: str
    ageSeconds: float | None = Field(description="age of the figures")


class TopicOffsets(ResponseModel):
    """Lag summed over the partitions, longest lag in seconds, shortest time to retention; without the
    `unknown` partitions."""

    topic: str
    route: str
    partitions: int
    lagRecords: int | None
    lagSeconds: float | None
    retentionSeconds: float | None
    neverCommitted: int = Field(description="partitions without a position")
    unknown: int = Field(description="partitions whose lag is unknown")


class OffsetList(ResponseModel):
    ageSeconds: float | None = Field(description="age of the figures")
    topics: list[TopicOffsets]


# --- /blacklist


class BlacklistedPartition(ResponseModel):
    topic: str
    partition: int
    route: str


class BlacklistedTopic(ResponseModel):
    topic: str
    route: str


class BlacklistEntries(ResponseModel):
    blacklist: list[BlacklistedPartition]
    topics: list[BlacklistedTopic]


class BlacklistChanged(BlacklistedTopic):
    partition: int | None = Field(description="null: the whole topic")
    blacklisted: bool


# --- /instances


class WorkerPartition(ResponseModel):
    route: str
    topic: str
    partition: int
    state: PartitionState
    reason: str


class WorkerDetails(ResponseModel):
    live: bool = Field(description="has a session that counts")
    evicted: bool = Field(description="live, but counted as dead")
    host: str
    port: int = Field(description="of its own pages")
    version: str
    slots: int
    noCapacity: str = Field(
        description="why no copier of it runs, and since when; its partitions go to other workers"
    )
    blacklisted: bool
    draining: bool
    lastSeen: int | None = Field(description="milliseconds since 1970")
    idealPartitions: int = Field(description="partitions that it should own")
    heldPartitions: int = Field(description="partitions that it holds")
    onlinePartitions: int
    errorPartitions: int
    partitions: list[WorkerPartition]


class InstanceList(ResponseModel):
    instances: dict[str, list[str]] = Field(
        description="live worker -> what it holds, as topic.partition"
    )
    blacklisted: list[str]
    allInstances: list[str] = Field(description="also those that are gone")
    workers: dict[str, WorkerDetails]


class WorkerTags(ResponseModel):
    worker: str
    blacklisted: bool
    draining: bool


# --- /noprogress, /admin/workloadinfo


class PartitionWithoutProgress(ResponseModel):
    """`since`: when its worker last measured progress, in milliseconds since 1970."""

    topic: str
    partition: int
    route: str
    idealWorker: str
    actualWorker: str
    since: int
    lag: int | None
    position: int | None
    moves: int = Field(description="how often it was moved for this")
    reason: str


class NoProgressList(ResponseModel):
    topics: list[PartitionWithoutProgress]


class TotalLoad(ResponseModel):
    partitions: int
    bytesPerSecond: int
    msgsPerSecond: float


class TopicLoad(TotalLoad):
    topic: str
    route: str


class LaggingPartition(ResponseModel):
    """`lagTime`: seconds to copy the lag at the present rate; null without progress."""

    topicName: str
    partitionId: int
    route: str
    latestOffset: int | None
    commitOffset: int | None
    lag: int
    lagTime: int | None


class WorkerLoad(ResponseModel):
    """Rates count for load balancing once they have settled. `suspect`: the worker is assigned nothing,
    because a partition made no progress on it that does on another worker."""

    workerId: str
    numberOfTopicPartitions: int
    totalWorkload: int
    msgsPerSecond: float
    settledPartitions: int
    suspect: bool
    laggingTopicPartition: list[LaggingPartition]


class Workload(ResponseModel):
    autoBalancingEnabled: bool
    numOfLaggingWorkers: int
    topicWorkload: TotalLoad
    topics: list[TopicLoad]
    workerInstances: list[WorkerLoad]


# --- /admin, /rebalance, /history


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
    request: str = Field(description="id to find the moves by, in the history")


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
    moves: list[PlannedMove]
    reasons: list[str]
    waiting: list[WaitingPartition] = Field(description="partitions that wait for a release")


class RebalanceResult(RootModel[RebalanceRequested | DryRun]):
    """Either a request that was written, or a dry run."""


class OtherEvent(ResponseModel):
    number: int
    time: datetime
    kind: EventKind
    event: str = Field(description="id of the event")
    worker: str | None
    reason: str
    request: str = Field(description="id of the request that caused it; empty: none")


class MoveEvent(PlannedMove):
    """A move, or another event of one partition; then `from` and `to` are null."""

    number: int
    time: datetime
    kind: EventKind
    event: str = Field(description="id of the move, as in logs")
    ownerEpoch: int
    request: str = Field(description="id of the request that caused it; empty: none")
    tookMs: int | None = Field(
        description="until the new owner was ONLINE; null: not yet, or no move"
    )


class GapEvent(ResponseModel):
    """Copying went on at `nextOffset`, where `firstOffset` was to come next."""

    number: int
    time: datetime
    kind: EventKind
    event: str = Field(description="id of the owner's last move, as in logs")
    route: str
    topic: str
    partition: int
    ownerEpoch: int
    worker: str
    reason: str
    request: str = Field(description="empty: no request caused it")
    firstOffset: int = Field(description="of the source; -1: there was no position")
    nextOffset: int = Field(
        description="of the source; the same: the target lost records; smaller: the source was truncated"
    )


class EventList(ResponseModel):
    history: list[MoveEvent | GapEvent | OtherEvent]


# --- /validation


class RouteMismatch(PartitionMismatch):
    route: str
    topic: str


class ExcludedPartitions(ResponseModel):
    """Partitions of a topic that are whitelisted and not copied now."""

    route: str
    topic: str
    partitions: list[int]
    state: Literal["paused", "blacklisted", "stopped", "position requested"]
    reason: str


class UnreadableNode(ResponseModel):
    path: str
    why: str


class ValidationResult(ResponseModel):
    numTopics: int
    numTopicPartitions: int
    numOnlineTopicPartitions: int
    numOfflineTopicPartitions: int
    numErrorTopicPartitions: int
    numErrorTopics: int
    numPausedTopicPartitions: int = Field(description="of the offline ones")
    numBlacklistedTopicPartitions: int = Field(description="of the offline ones")
    numStoppedTopicPartitions: int = Field(description="of the offline ones")
    IdealState: dict[str, int] = Field(description="worker -> partitions that it should own")
    ExternalView: dict[str, int] = Field(description="worker -> partitions that it holds")
    mismatches: list[RouteMismatch]
    excluded: list[ExcludedPartitions]
    unreadable: list[UnreadableNode] = Field(
        description="nodes in ZooKeeper that cannot be decoded"
    )


class SourceValidationResult(ResponseModel):
    numMissingTopics: int
    missingTopics: list[str] = Field(description="whitelisted, but not in the source")
    numMismatchedTopics: int
    numMismatchedTopicPartitions: int
    mismatchedTopicPartitions: dict[str, int] = Field(
        description="topic -> partitions at the source"
    )
    targetFindings: dict[str, str] = Field(description="topic -> what is wrong at the target")
    stoppedTopics: dict[str, str] = Field(
        description="topics deleted or recreated on either side, with the reason"
    )
    refusedTopics: dict[str, str] = Field(
        description="topics that the leader could not whitelist or expand, with the reason"
    )
    targetReason: str | None = None


# --- /health, /ready


class Health(ResponseModel):
    status: str
    id: str


class Readiness(Health):
    leader: str | None
    controllers: list[str]
