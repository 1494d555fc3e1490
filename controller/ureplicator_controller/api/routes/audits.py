"""`/audits`: what of each topic was verified, and requests for an audit.

An audit runs on an auditor, which takes the request from ZooKeeper: the response shows what was requested,
GET how far it is and what it found.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask_openapi3 import APIBlueprint

from ureplicator_common.audits import AuditRun, Finding, OffsetRange, TopicAudit
from ureplicator_common.audits.standing import Standing
from ureplicator_common.config.settings import Settings
from ureplicator_common.model import TopicKey
from ureplicator_controller.api.access.roles import operator, operator_unless_dry_run, viewer
from ureplicator_controller.api.http.load import asks_kafka
from ureplicator_controller.api.http.models.audits import (
    AuditBody,
    AuditCancelled,
    AuditDetails,
    AuditList,
    AuditQuery,
    AuditRequested,
)
from ureplicator_controller.api.http.models.requests import (
    AnyTopicPath,
    RouteQuery,
    TopicPath,
    chosen_route,
    chosen_routes,
)
from ureplicator_controller.api.http.models.responses import JsonResult, responses
from ureplicator_controller.api.http.openapi import group
from ureplicator_controller.api.services.audit_standings import Standings
from ureplicator_controller.api.services.audits import AuditService
from ureplicator_controller.api.services.fleet_cache import FleetCache, FleetState
from ureplicator_controller.api.services.topic_lookup import find_topic


def blueprint(
    *, settings: Settings, fleet: FleetCache, audits: AuditService, standings: Standings
) -> APIBlueprint:
    api = group("audits", __name__)

    @api.get("/audits", responses=responses(AuditList, 404))
    @viewer
    def list_audits(query: RouteQuery) -> JsonResult:
        """State of each topic's audit: never verified, verified, stale, or differences found."""
        routes = {config.route for config in chosen_routes(settings, query)}
        fleet_state = fleet.current()
        keys = sorted(key for key in fleet_state.snapshot.topics if key.route in routes)
        found = standings.of(fleet_state, keys)
        known = fleet_state.snapshot.audits
        return {
            "audits": [
                _summary(fleet_state, key, standing, standings.now_ms)
                for key, standing in found.items()
            ],
            "auditors": {
                id: f"{stored.value.host}:{stored.value.port}"
                for id, stored in sorted(known.auditors.items())
            },
            "followers": {
                str(route): stored.value.auditor
                for route, stored in sorted(known.followers.items())
                if route in routes
            },
            "staleAfterSeconds": standings.stale_after_s,
        }

    @api.get("/audits/<path:topic>", responses=responses(AuditDetails, 404))
    @viewer
    def show_audit(path: AnyTopicPath, query: RouteQuery) -> JsonResult:
        """Verified range of each partition, the first differences, and the last audit."""
        fleet_state = fleet.current()
        key = find_topic(settings, fleet_state, path.topic, query)
        found = standings.of(fleet_state, [key])[key]
        stored = fleet_state.snapshot.audits.states.get(key)
        audit = stored.value if stored else TopicAudit()
        return _summary(fleet_state, key, found, standings.now_ms) | {
            "verified": _verified(audit, standings.positions(key)),
            "findings": [_finding(finding) for finding in audit.findings],
            "last": _past(audit.last),
        }

    @api.post("/audits/<path:topic>", responses=responses(AuditRequested, 404, 409, 413))
    @operator_unless_dry_run
    @asks_kafka
    def request_audit(path: TopicPath, query: AuditQuery, body: AuditBody) -> JsonResult:
        """Request an audit of a topic: of all that was copied, or of a range of offsets or times."""
        config = chosen_route(settings, query)
        key = TopicKey(config.route, path.topic)
        if query.dry_run == "true":
            return _requested(fleet, key, "", audits.plan(config, path.topic, body))
        requested = audits.request(config, path.topic, body)
        return _requested(fleet, key, requested.id, requested.ranges)

    @api.delete("/audits/<path:topic>", responses=responses(AuditCancelled, 404, 413))
    @operator
    def cancel_audit(path: TopicPath, query: RouteQuery) -> JsonResult:
        """Cancel the audit that is requested, whether it runs or waits. What was verified stays."""
        config = chosen_route(settings, query)
        cancelled = audits.cancel(config, path.topic)
        return {"topic": path.topic, "route": str(config.route), "request": cancelled.id}

    return api


def _requested(
    fleet: FleetCache, key: TopicKey, request: str, ranges: Mapping[int, OffsetRange]
) -> JsonResult:
    return {
        "topic": key.topic,
        "route": str(key.route),
        "dryRun": not request,
        "request": request or None,
        "offsets": sum(offsets.next - offsets.first for offsets in ranges.values()),
        "ranges": [
            {"partition": number, "from": offsets.first, "to": offsets.next}
            for number, offsets in sorted(ranges.items())
        ],
        "auditors": sorted(fleet.current().snapshot.audits.auditors),
    }


def _summary(
    fleet_state: FleetState, key: TopicKey, found: Standing, now_ms: int
) -> dict[str, Any]:
    known = fleet_state.snapshot.audits
    stored = known.states.get(key)
    age_s = None if found.verified_ms is None else max(0, now_ms - found.verified_ms) / 1_000
    return {
        "topic": key.topic,
        "route": str(key.route),
        "state": found.state,
        "reason": found.reason,
        "verifiedAt": found.verified_ms,
        "secondsSinceVerified": age_s,
        "behindOffsets": found.behind_offsets,
        "partitions": fleet_state.snapshot.topics[key].value.partitions,
        "verifiedPartitions": found.verified_partitions,
        "differences": stored.value.differences if stored else {},
        "coverage": _coverage(stored.value if stored else TopicAudit()),
        "requested": _pending(fleet_state, key),
        "running": _running(fleet_state, key),
    }


def _coverage(audit: TopicAudit) -> float | None:
    return round(1 - audit.skipped / audit.passed, 4) if audit.passed else None


def _pending(fleet_state: FleetState, key: TopicKey) -> dict[str, Any] | None:
    stored = fleet_state.snapshot.audits.requests.get(key)
    if stored is None:
        return None
    wanted = stored.value
    return {
        "id": wanted.id,
        "requested": wanted.requested_ms,
        "offsets": wanted.offsets,
        "attempts": wanted.attempts,
    }


def _running(fleet_state: FleetState, key: TopicKey) -> dict[str, Any] | None:
    stored = fleet_state.snapshot.audits.running.get(key)
    if stored is None:
        return None
    running = stored.value
    return {
        "id": running.id,
        "auditor": running.auditor,
        "since": running.since_ms,
        "offsets": running.offsets,
        "compared": running.compared,
        "differences": running.differences,
    }


def _verified(audit: TopicAudit, positions: Mapping[int, int]) -> list[dict[str, Any]]:
    return [
        {
            "partition": number,
            "from": verified.first,
            "to": verified.next,
            "verifiedAt": verified.at_ms,
            "position": positions.get(number),
            "differences": dict(verified.differences.counts) if verified.differences else {},
        }
        for number, verified in sorted(audit.partitions.items())
    ]


def _finding(found: Finding) -> dict[str, Any]:
    return {
        "partition": found.partition,
        "kind": found.kind,
        "sourceOffset": found.source_offset if found.source_offset >= 0 else None,
        "targetOffset": found.target_offset if found.target_offset >= 0 else None,
    }


def _past(run: AuditRun | None) -> dict[str, Any] | None:
    if run is None:
        return None
    return {
        "id": run.id,
        "auditor": run.auditor,
        "started": run.started_ms,
        "ended": run.ended_ms,
        "outcome": run.outcome,
        "records": run.records,
        "repeated": run.repeated,
        "differences": dict(run.differences),
        "report": run.report,
    }
