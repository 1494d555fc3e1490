"""Responses about mismatches and unreadable nodes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ureplicator_controller.api.http.models.responses import ResponseModel
from ureplicator_controller.api.http.models.topics import PartitionMismatch


class RouteMismatch(PartitionMismatch):
    route: str
    topic: str


class ExcludedPartitions(ResponseModel):
    """Partitions of a topic that are whitelisted and not copied now."""

    route: str
    topic: str
    partitions: list[int]
    state: Literal["paused", "reversed", "blacklisted", "stopped", "position requested"]
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
    numReversedTopicPartitions: int = Field(description="of the offline ones")
    numBlacklistedTopicPartitions: int = Field(description="of the offline ones")
    numStoppedTopicPartitions: int = Field(description="of the offline ones")
    IdealState: dict[str, int] = Field(description="worker -> partitions that it should own")
    ExternalView: dict[str, int] = Field(description="worker -> partitions that it holds")
    conditions: list[str] = Field(
        description="what holds for the whole fleet: too many workers are lost, so nothing moves; a route has"
        " fewer workers than it asks for; a worker gets no more partitions, as one made no progress on it;"
        " controllers or workers run different versions, or"
        " controllers have different files; target topics refuse, change or delete records"
    )
    mismatches: list[RouteMismatch]
    excluded: list[ExcludedPartitions]
    unreadable: list[UnreadableNode] = Field(description="nodes that cannot be decoded")
    isolated: dict[str, str] = Field(
        description="topics and workers that the leader leaves alone -> why a step for them cannot be written"
    )


class SourceValidationResult(ResponseModel):
    numMissingTopics: int
    missingTopics: list[str] = Field(description="whitelisted, but not in the source")
    numMismatchedTopics: int
    numMismatchedTopicPartitions: int
    mismatchedTopicPartitions: dict[str, int] = Field(
        description="topic -> partitions at the source"
    )
    sourceFindings: dict[str, str] = Field(
        description="topic -> why the source does not describe it, as a right is missing"
    )
    targetFindings: dict[str, str] = Field(description="topic -> what is wrong at the target")
    stoppedTopics: dict[str, str] = Field(
        description="topics deleted or recreated on either side, with the reason"
    )
    refusedTopics: dict[str, str] = Field(
        description="topics that the leader could not whitelist or expand, with the reason"
    )
    targetReason: str | None = None
