"""Responses of `/validation/topics`."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from ureplicator_common.config.route import RouteConfig
from ureplicator_controller.api.http.models.responses import ResponseModel
from ureplicator_controller.core.syncs.configs import SettingDifference, TopicDrift

COPIED_IN_PART = "only some partitions of the source are copied"
NOT_EXPANDED = "auto_expand is not enabled"
MORE_PARTITIONS = "partitions cannot be removed"


class PartitionCounts(ResponseModel):
    source: int
    target: int
    willChange: bool
    wanted: int | None = Field(description="number of partitions that the target will have")
    reason: str = Field(description="why it will not change, or empty")


class SettingDrift(ResponseModel):
    name: str
    source: str | None = Field(description="with the brokers' default; null: no such setting there")
    target: str | None = Field(description="with the brokers' default; null: no such setting there")
    willChange: bool
    wanted: str | None = Field(
        description="value for the target topic; null: its own value is removed"
    )
    reason: str = Field(description="why it will not change, or empty")


class DriftedTopic(ResponseModel):
    route: str
    topic: str
    targetTopic: str
    partitions: PartitionCounts | None = Field(description="null: the counts are equal")
    settings: list[SettingDrift]
    reason: str = Field(description="why the topic was not compared, or empty")


class TopicsValidationResult(ResponseModel):
    numTopics: int = Field(description="topics that differ, or were not compared")
    topics: list[DriftedTopic]


def drift_json(config: RouteConfig, drift: TopicDrift) -> dict[str, Any]:
    counts = drift.source_partitions, drift.target_partitions
    return {
        "route": str(config.route),
        "topic": drift.topic.source,
        "targetTopic": drift.topic.target,
        "partitions": _partitions(config, drift) if counts[0] != counts[1] else None,
        "settings": [_setting(setting) for setting in drift.settings],
        "reason": drift.reason,
    }


def _partitions(config: RouteConfig, drift: TopicDrift) -> dict[str, Any]:
    source, target = drift.source_partitions, drift.target_partitions
    if target > source:
        reason = MORE_PARTITIONS
    elif not drift.topic.is_whole:
        reason = COPIED_IN_PART
    else:
        reason = "" if config.auto_expand else NOT_EXPANDED
    will_change = not reason
    return {
        "source": source,
        "target": target,
        "willChange": will_change,
        "wanted": source if will_change else None,
        "reason": reason,
    }


def _setting(difference: SettingDifference) -> dict[str, Any]:
    return {
        "name": difference.name,
        "source": difference.source,
        "target": difference.target,
        "willChange": not difference.kept,
        "wanted": difference.wanted,
        "reason": difference.kept,
    }
