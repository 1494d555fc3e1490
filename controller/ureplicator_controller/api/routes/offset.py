"""`/offset`: position and lag of each partition.

All figures come from one collection of all partitions (`ureplicator_controller.api.lag_collection.cache`),
whose age is shown. An unknown figure is null and has a reason: the call itself does not fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flask_openapi3 import APIBlueprint

from ureplicator_common.config.settings import Settings
from ureplicator_common.model import TopicKey
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_controller.api.access.roles import viewer
from ureplicator_controller.api.http.models.offsets import OffsetList, PartitionOffset
from ureplicator_controller.api.http.models.requests import (
    RouteQuery,
    TopicPartitionPath,
)
from ureplicator_controller.api.http.models.responses import JsonResult, responses
from ureplicator_controller.api.http.openapi import group
from ureplicator_controller.api.lag_collection.cache import LagCache
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.api.services.topic_checks import require_partition
from ureplicator_controller.api.services.topic_lookup import find_known_topic, known_routes
from ureplicator_controller.core.reporting.lag import LagSummary, PartitionLag

_NOT_YET = PartitionLag(reason="not collected yet: repeat the request")


@dataclass(frozen=True, slots=True)
class TopicLag:
    """Lag of one topic; `age_s` is None before the first collection."""

    age_s: float | None = None
    partitions: Mapping[int, PartitionLag] = field(default_factory=dict)


def blueprint(*, settings: Settings, fleet: FleetCache, lag_cache: LagCache) -> APIBlueprint:
    api = group("offset", __name__)

    @api.get("/offset", responses=responses(OffsetList, 404))
    @viewer
    def show_offsets(query: RouteQuery) -> JsonResult:
        """Lag of each topic, summed over its partitions."""
        routes = known_routes(settings, fleet.current(), query)
        report = lag_cache.report()
        summaries = report.summaries if report else {}
        return {
            "ageSeconds": lag_cache.age_s(report) if report else None,
            "topics": [
                {"topic": key.topic, "route": str(key.route)} | summary_json(summary)
                for key, summary in sorted(summaries.items(), key=lambda item: str(item[0]))
                if key.route in routes
            ],
        }

    @api.get("/offset/<path:topic>/<partition>", responses=responses(PartitionOffset, 404))
    @viewer
    def show_offset(path: TopicPartitionPath, query: RouteQuery) -> JsonResult:
        """Lag of one partition."""
        fleet_state = fleet.current()
        key = find_known_topic(settings, fleet_state, path.topic, query)
        intent = fleet_state.snapshot.topics[key].value
        require_partition(key, intent, path.partition)
        found = of_topic(lag_cache, key, intent)
        shown = {"topic": key.topic, "partition": path.partition, "route": str(key.route)}
        figures = figures_json(found.partitions[path.partition])
        return shown | figures | {"ageSeconds": found.age_s}

    return api


def of_topic(lag_cache: LagCache, key: TopicKey, intent: TopicIntent) -> TopicLag:
    """Lag of every partition of a topic, including those not collected yet."""
    report = lag_cache.report(key, partitions=intent.partitions)
    known = report.topics.get(key, {}) if report else {}
    return TopicLag(
        age_s=lag_cache.age_s(report) if report else None,
        partitions={number: known.get(number, _NOT_YET) for number in range(intent.partitions)},
    )


def topic_json(found: TopicLag) -> dict[str, Any]:
    """Lag as in a topic's details. `positions` is null if none could be read, with the reason."""
    partitions = found.partitions
    unread = [
        lag.reason
        for lag in partitions.values()
        if lag.position is None and not lag.never_committed
    ]
    positions = {str(number): lag.position for number, lag in partitions.items()}
    none_read = bool(unread) and len(unread) == len(partitions)
    return {
        "positions": None if none_read else positions,
        **({"positionsReason": unread[0]} if none_read else {}),
        "progress": {str(number): figures_json(lag) for number, lag in partitions.items()},
        "progressAgeSeconds": found.age_s,
    }


def figures_json(figures: PartitionLag) -> dict[str, Any]:
    shown = {
        "position": figures.position,
        "logStart": figures.start,
        "logEnd": figures.end,
        "lagRecords": figures.lag_records,
        "lagSeconds": figures.lag_s,
        "recordsPerSecond": figures.records_per_s,
        "catchUpSeconds": figures.catch_up_s,
        "retentionSeconds": figures.retention_s,
        "heldRecords": figures.held_records,
        "heldSeconds": figures.held_s,
    }
    return shown | ({"reason": figures.reason} if figures.reason else {})


def summary_json(summary: LagSummary) -> dict[str, Any]:
    return {
        "partitions": summary.partitions,
        "lagRecords": summary.lag_records,
        "lagSeconds": summary.lag_s,
        "retentionSeconds": summary.retention_s,
        "heldRecords": summary.held_records,
        "heldSeconds": summary.held_s,
        "neverCommitted": summary.never_committed,
        "unknown": summary.unknown,
    }
