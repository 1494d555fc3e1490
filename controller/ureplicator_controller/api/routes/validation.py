"""`/validation`: external view compared with the ideal state, and the whitelist with the clusters.

uReplicator's `/validation/srcKafka` *expanded topics* when it was read. Here it compares the whitelist
with the topics of the source, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flask_openapi3 import APIBlueprint

from ureplicator_common.config.live_routes import LiveRoutes
from ureplicator_common.config.settings import Settings
from ureplicator_common.model import Route
from ureplicator_common.znodes.paths import Paths
from ureplicator_controller.api.access.roles import viewer
from ureplicator_controller.api.http.load import asks_kafka
from ureplicator_controller.api.http.models.drift import TopicsValidationResult, drift_json
from ureplicator_controller.api.http.models.requests import RouteQuery, chosen_routes, only_route
from ureplicator_controller.api.http.models.responses import JsonResult, responses
from ureplicator_controller.api.http.models.validation import (
    SourceValidationResult,
    ValidationResult,
)
from ureplicator_controller.api.http.openapi import group
from ureplicator_controller.api.lag_collection.cache import LagCache
from ureplicator_controller.api.lag_collection.collector import LagReport
from ureplicator_controller.api.routes.topics import mismatch_json
from ureplicator_controller.api.services.clusters import ClusterTopics
from ureplicator_controller.api.services.fleet_cache import FleetCache, FleetState
from ureplicator_controller.api.services.validation import (
    compare_with_limits,
    harm_conditions,
    with_outlooks,
)
from ureplicator_controller.core.balance.pools import shortages
from ureplicator_controller.core.planning.no_progress import suspicions
from ureplicator_controller.core.reporting.held import with_held
from ureplicator_controller.core.state.exclusions import excluded_partitions
from ureplicator_controller.core.state.mass_loss import mass_loss
from ureplicator_controller.core.state.mismatches import mismatches
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.state.topic_tallies import Tallies
from ureplicator_controller.core.state.validation_counts import validation_counts
from ureplicator_controller.core.state.versions import file_conditions, version_conditions
from ureplicator_controller.core.syncs.topics import synced_topics
from ureplicator_controller.core.topics.cluster_comparison import ClusterComparison
from ureplicator_controller.engines.syncs.configs import compare_topics, config_rules


def blueprint(
    *,
    settings: Settings,
    live: LiveRoutes,
    fleet: FleetCache,
    clusters: Mapping[str, ClusterTopics],
    lag_cache: LagCache,
) -> APIBlueprint:
    api = group("validation", __name__)

    @api.get("/validation", responses=responses(ValidationResult, 404))
    @viewer
    def validation(query: RouteQuery) -> JsonResult:
        """External view compared with the ideal state: counts, every difference, what open transactions at
        the source hold back, and which target topics do harm to records."""
        route = only_route(settings, query)
        fleet_state = fleet.current()
        tallies = fleet.tallies(fleet_state)
        found = _mismatches(fleet_state, tallies, lag_cache.report(), route)
        excluded = _excluded(fleet_state, route)
        counts = validation_counts(fleet_state.snapshot, tallies, route).as_json()
        conditions = list(_conditions(fleet_state, settings, fleet.paths))
        counts |= {"conditions": conditions, "mismatches": found, "excluded": excluded}
        return counts | _left_alone(fleet_state.snapshot)

    @api.get("/validation/srcKafka", responses=responses(SourceValidationResult, 404))
    @viewer
    @asks_kafka
    def source_validation(query: RouteQuery) -> JsonResult:
        """Whitelist compared with the topics of the clusters. Changes nothing."""
        chosen = [config.route for config in chosen_routes(settings, query)]
        fleet_state = fleet.current()
        found = {route: compare_with_limits(fleet_state, route, clusters) for route in chosen}
        merged = _merged(
            {
                route: with_outlooks(compared, settings, fleet_state, route)
                for route, (compared, _) in found.items()
            }
        )
        reasons = [reason for _, reason in found.values() if reason]
        return (
            merged.as_json()
            | {"missingTopics": merged.missing, "targetFindings": merged.target_findings}
            | {"stoppedTopics": merged.stopped, "refusedTopics": _refused(fleet_state, chosen)}
            | ({"targetReason": "; ".join(reasons)} if reasons else {})
        )

    @api.get("/validation/topics", responses=responses(TopicsValidationResult, 404))
    @viewer
    @asks_kafka
    def topics_validation(query: RouteQuery) -> JsonResult:
        """Target topics compared with their source topics: partition counts and settings. Changes nothing."""
        snapshot = fleet.current().snapshot
        found = [
            drift_json(live.config(config.route, snapshot.switches.route_settings), drift)
            for config in chosen_routes(settings, query)
            for drift in compare_topics(
                synced_topics(snapshot, config.route),
                source=clusters[config.source].admin(),
                target=clusters[config.target].admin(),
                rules=config_rules(config),
            )
            if drift.has_any
        ]
        return {"numTopics": len(found), "topics": found}

    return api


def _mismatches(
    fleet_state: FleetState, tallies: Tallies, report: LagReport | None, route: Route | None
) -> list[dict[str, Any]]:
    snapshot, view = fleet_state.snapshot, fleet_state.view
    differing = mismatches(snapshot, view, tallies)
    return [
        {"route": str(mismatch.partition.route), "topic": mismatch.partition.topic}
        | mismatch_json(mismatch)
        for mismatch in with_held(differing, snapshot, view, report.topics if report else {})
        if route in (None, mismatch.partition.route)
    ]


def _conditions(fleet_state: FleetState, settings: Settings, paths: Paths) -> Iterator[str]:
    snapshot, controllers = fleet_state.snapshot, fleet_state.controllers
    loss = mass_loss(snapshot)
    if loss is not None:
        yield str(loss)
    yield from shortages(snapshot)
    yield from suspicions(snapshot)
    yield from version_conditions(
        {id: controller.version for id, controller in controllers.items()},
        {worker: stored.value.version for worker, stored in snapshot.live.items()},
    )
    yield from file_conditions(
        {id: controller.routes_digest for id, controller in controllers.items()}
    )
    yield from harm_conditions(
        fleet_state.nodes, paths, [config.route for config in settings.routes]
    )


def _left_alone(snapshot: Snapshot) -> dict[str, Any]:
    """Nodes that cannot be read, and subjects of steps that cannot be written."""
    return {
        "unreadable": [
            {"path": subject.path, "why": subject.reason} for subject in snapshot.unreadable_nodes
        ],
        "isolated": {subject.what: subject.reason for subject in snapshot.isolated},
    }


def _excluded(fleet_state: FleetState, route: Route | None) -> list[dict[str, Any]]:
    return [
        {
            "route": str(excluded.key.route),
            "topic": excluded.key.topic,
            "partitions": excluded.partitions,
            "state": excluded.state,
            "reason": excluded.reason,
        }
        for excluded in excluded_partitions(fleet_state.snapshot, route)
    ]


def _merged(found: Mapping[Route, ClusterComparison]) -> ClusterComparison:
    """All routes in one comparison; topics carry their route if there are several."""
    missing: list[str] = []
    mismatched: dict[str, int] = {}
    at_source: dict[str, str] = {}
    findings: dict[str, str] = {}
    stopped: dict[str, str] = {}
    for route, comparison in found.items():
        prefix = f"{route}/" if len(found) > 1 else ""
        missing += [prefix + topic for topic in comparison.missing]
        mismatched |= {prefix + topic: count for topic, count in comparison.mismatched.items()}
        at_source |= {prefix + topic: text for topic, text in comparison.source_findings.items()}
        findings |= {prefix + topic: text for topic, text in comparison.target_findings.items()}
        stopped |= {prefix + topic: why for topic, why in comparison.stopped.items()}
    return ClusterComparison(tuple(missing), mismatched, at_source, findings, stopped)


def _refused(fleet_state: FleetState, chosen: Sequence[Route]) -> dict[str, str]:
    memory = fleet_state.snapshot.memory
    return {
        f"{route}/{topic}" if len(chosen) > 1 else topic: why
        for route in chosen
        if route in memory
        for topic, why in memory[route].value.refused.items()
    }
