"""`/groups`, `/offsets/translate` and `/failover`: consumer groups at the other end of a route."""

from __future__ import annotations

from typing import Any

from flask_openapi3 import APIBlueprint

from ureplicator_common.config.settings import Settings
from ureplicator_common.model import Route
from ureplicator_controller.api.access.roles import operator_unless_dry_run, viewer
from ureplicator_controller.api.http.load import asks_kafka
from ureplicator_controller.api.http.models.groups import (
    Failover,
    FailoverBody,
    FailoverQuery,
    GroupPath,
    GroupQuery,
    GroupSummaries,
    ShownGroup,
    TranslatedOffset,
    TranslateQuery,
)
from ureplicator_controller.api.http.models.requests import RouteQuery, chosen_route, chosen_routes
from ureplicator_controller.api.http.models.responses import JsonResult, responses
from ureplicator_controller.api.http.openapi import group
from ureplicator_controller.api.services.groups import GroupService
from ureplicator_controller.core.groups.decisions import GroupDecision, PartitionDecision, SyncState


def blueprint(*, settings: Settings, groups: GroupService) -> APIBlueprint:
    api = group("groups", __name__)

    def shown(group: str, query: RouteQuery) -> JsonResult:
        config = chosen_route(settings, query)
        return _details(config.route, groups.find(config, group)) | {"sync": groups.sync(config)}

    @api.get("/groups", responses=responses(GroupSummaries, 404))
    @viewer
    @asks_kafka
    def list_groups(query: RouteQuery) -> JsonResult:
        """Consumer groups with offsets on the routes, and how far each is synced, as read now."""
        chosen = chosen_routes(settings, query)
        found = [
            _summary(config.route, decision)
            for config in chosen
            for decision in groups.listed(config)
        ]
        return {"groups": found}

    @api.get("/groups/<path:group>", responses=responses(ShownGroup, 404))
    @viewer
    @asks_kafka
    def show_group(path: GroupPath, query: RouteQuery) -> JsonResult:
        """Offsets of a group at both ends of a route, and why one is not synced."""
        return shown(path.group, query)

    @api.get("/group", responses=responses(ShownGroup, 404))
    @viewer
    @asks_kafka
    def show_named_group(query: GroupQuery) -> JsonResult:
        """The same with the name as a parameter: clients and proxies change some paths, as `/groups/..`."""
        return shown(query.name, query)

    @api.get("/offsets/translate", responses=responses(TranslatedOffset, 404, 409))
    @viewer
    @asks_kafka
    def translate_offset(query: TranslateQuery) -> JsonResult:
        """Offset of the same place at the other end of a route.

        Consumers that have read everything before the one have read everything before the other.
        """
        config = chosen_route(settings, query)
        target, source_offset, target_offset = groups.translate(config, query)
        return {
            "route": str(config.route),
            "topic": query.topic,
            "partition": query.partition,
            "targetTopic": target,
            "sourceOffset": source_offset,
            "targetOffset": target_offset,
        }

    @api.post("/failover", responses=responses(Failover, 404, 413))
    @operator_unless_dry_run
    @asks_kafka
    def fail_over(query: FailoverQuery, body: FailoverBody) -> JsonResult:
        """Write the offsets of groups to the other cluster, so that consumers can go on there."""
        config = chosen_route(settings, query)
        dry_run, back = query.dry_run == "true", query.back == "true"
        found = groups.fail_over(config, body, dry_run=dry_run, back=back)
        shown = _details_back if back else _details
        return {
            "route": str(config.route),
            "dryRun": dry_run,
            "back": back,
            "groups": [shown(config.route, decision) for decision in found],
        }

    return api


def _summary(route: Route, decision: GroupDecision) -> dict[str, Any]:
    return {
        "group": decision.group,
        "route": str(route),
        "state": decision.state,
        "reason": decision.reason,
        "partitions": len(decision.partitions),
    }


def _details(route: Route, decision: GroupDecision) -> dict[str, Any]:
    return {
        "group": decision.group,
        "route": str(route),
        "state": decision.state,
        "reason": decision.reason,
        "partitions": [_partition(partition) for partition in decision.partitions],
    }


def _partition(each: PartitionDecision) -> dict[str, Any]:
    return {
        "topic": each.partition[0],
        "partition": each.partition[1],
        "targetTopic": each.target[0],
        "sourceOffset": each.source_offset,
        "translated": each.translated,
        "targetOffset": each.target_offset,
        "state": each.state,
        "reason": each.reason or each.note,
        "readAgain": each.read_again,
        "skipped": each.skipped,
        "held": each.held,
    }


def _details_back(route: Route, decision: GroupDecision) -> dict[str, Any]:
    """Details of a group that goes back: each field is still of the cluster that it names."""
    partitions = [
        _partition(decided)
        | {
            "topic": decided.target[0],
            "targetTopic": decided.partition[0],
            "sourceOffset": decided.target_offset,
            "targetOffset": decided.source_offset,
            "state": _BACK.get(decided.state, decided.state),
        }
        for decided in decision.partitions
    ]
    state = _BACK.get(decision.state, decision.state)
    return _details(route, decision) | {"state": state, "partitions": partitions}


_BACK = {
    SyncState.ACTIVE: "active on the source",
    SyncState.AHEAD: "ahead on the source",
}
"""States of the way back that have other names."""
