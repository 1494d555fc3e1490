"""Responses about whitelisted topics."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ureplicator_common.model import LaneKind, PartitionState, TopicState
from ureplicator_controller.api.http.models.offsets import PartitionLag
from ureplicator_controller.api.http.models.responses import ResponseModel


class TopicList(ResponseModel):
    topics: list[str]
    next: str | None = Field(
        default=None,
        description="last name of this page, if there are more: `after` of the next request",
    )


class TopicChanged(ResponseModel):
    topic: str
    route: str
    partitions: int
    state: TopicState | None = None


class TopicAdded(TopicChanged):
    target: Literal["created", "existed", "raised"] = Field(
        description="the target topic was created, existed, or existed and got more partitions"
    )
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


class PartitionOffsets(ResponseModel):
    shift: int = Field(
        description="offsets at the target less those at the source; 0: they are the same"
    )
    since: int = Field(description="source offset from which on that holds")
    reason: str = Field(description="why they are shifted; empty: they are the same")


class TopicDetails(ResponseModel):
    topic: str
    route: str
    targetTopic: str = Field(description="name on the target")
    lane: LaneKind
    state: TopicState
    effectiveState: Literal[
        "active", "paused", "reversed", "deleting", "stopped", "blacklisted"
    ] = Field(description="state with stops and blacklist; `state` is what operators have set")
    stopped: str = Field(description="why the leader stopped it; empty: it is not stopped")
    topicBlacklisted: bool = Field(description="whether the whole topic is blacklisted")
    sourceTopicId: str = Field(description="id of the source topic; empty: not known yet")
    targetTopicId: str = Field(description="id of the target topic; empty: not known yet")
    targetCreated: bool = Field(description="true: created for this topic, not found")
    sourceGoneMs: int | None = Field(description="milliseconds since 1970; null: it is there")
    targetGoesMs: int | None = Field(description="when it is deleted; null: it is kept")
    targetOutlook: str = Field(description="what becomes of it; empty: the source topic is there")
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
    offsets: dict[str, PartitionOffsets] = Field(
        description="partition -> shift of its offsets, as far as its worker has told; empty: offsets are"
        " mapped"
    )
    positions: dict[str, int | None] | None = Field(description="next offset to copy")
    positionsReason: str | None = None
    progress: dict[str, PartitionLag]
    progressAgeSeconds: float | None = Field(description="age of the figures")
