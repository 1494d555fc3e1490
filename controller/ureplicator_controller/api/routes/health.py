"""`/health`, `/ready`, `/controllers`, `/metrics`: liveness, readiness, addresses and Prometheus metrics.

`/health` is whether this process responds at all: a restart would repair it if not, so an unavailable
ZooKeeper or broker does not count. `/ready` is whether it can serve requests now. `/metrics` is served
also while ZooKeeper is unavailable, and shows that, since that is when metrics are needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from http import HTTPMethod, HTTPStatus
from typing import Any

from flask import Flask, Response, request
from flask_openapi3 import APIBlueprint
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client import Counter as CounterMetric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ureplicator_common.config.settings import Settings
from ureplicator_common.coordination import Unavailable
from ureplicator_common.errors import OperatingError
from ureplicator_common.model import Route, WorkerId
from ureplicator_controller.api.access.roles import anyone, viewer
from ureplicator_controller.api.http.load import asks_kafka
from ureplicator_controller.api.http.models.health import ControllerList, Health, Readiness
from ureplicator_controller.api.http.models.requests import Query
from ureplicator_controller.api.http.models.responses import JsonResult, responses
from ureplicator_controller.api.http.openapi import group
from ureplicator_controller.api.services.clusters import (
    SCRAPED_MAX_AGE_S,
    ClusterTopics,
    listed,
)
from ureplicator_controller.api.services.fleet_cache import FleetCache, FleetState
from ureplicator_controller.api.services.validation import compare
from ureplicator_controller.core.balance.pools import route_workers
from ureplicator_controller.core.state.validation_counts import ValidationCounts, counts_by_route

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_METRICS = {"text/plain": {"schema": {"type": "string"}}}


def blueprint(*, id: str, fleet: FleetCache, registry: CollectorRegistry) -> APIBlueprint:
    api = group("health", __name__)

    @api.get("/health", responses={HTTPStatus.OK: Health})
    @anyone
    def health() -> JsonResult:
        """Liveness: whether this process responds."""
        return {"status": "ok", "id": id}

    @api.get("/ready", responses=responses(Readiness))
    @anyone
    def ready() -> JsonResult:
        """Readiness: whether requests can be served, and which controller leads."""
        try:
            fleet_state = fleet.current()
        except Unavailable:  # addresses and reasons are not for everyone
            raise Unavailable("the log of this controller has the reason") from None
        leader = fleet_state.leader.id if fleet_state.leader else None
        controllers = sorted(fleet_state.controllers)
        return {"status": "ready", "id": id, "leader": leader, "controllers": controllers}

    @api.get("/controllers", responses=responses(ControllerList))
    @viewer
    def list_controllers(query: Query) -> JsonResult:
        """Live controllers, with the addresses that others reach them under."""
        fleet_state = fleet.current()
        leader = fleet_state.leader.id if fleet_state.leader else None
        return {
            "controllers": {
                name: {
                    "leads": name == leader,
                    "host": controller.host,
                    "port": controller.port,
                    "metricsPort": controller.metrics_port,
                    "version": controller.version,
                }
                for name, controller in sorted(fleet_state.controllers.items())
            }
        }

    @api.get("/metrics", responses={HTTPStatus.OK: {"content": _METRICS}}, validate_response=False)
    @viewer
    @asks_kafka
    def metrics() -> Response:
        """Metrics in the Prometheus text format."""
        return Response(generate_latest(registry), content_type=CONTENT_TYPE)

    return api


def count_requests(app: Flask, registry: CollectorRegistry) -> None:
    """Count requests by rule, not by path, and unknown methods as one: a counter for each topic, or for
    each path and method that a scanner tries, would grow without bound."""
    requests = CounterMetric(
        "ureplicator_http_requests",
        "HTTP requests by method, rule and status.",
        ["method", "path", "status"],
        registry=registry,
    )

    @app.after_request
    def count(response: Response) -> Response:
        rule = request.url_rule.rule if request.url_rule else "unknown"
        method = request.method if request.method in HTTPMethod.__members__ else "other"
        requests.labels(method, rule, str(response.status_code)).inc()
        return response


class FleetMetrics(Collector):
    """Gauges drawn from the present state of the fleet. `timeout_s`: for all clusters together."""

    def __init__(
        self,
        *,
        settings: Settings,
        fleet: FleetCache,
        clusters: Mapping[str, ClusterTopics],
        timeout_s: float,
    ) -> None:
        self._settings = settings
        self._fleet = fleet
        self._clusters = clusters
        self._timeout_s = timeout_s

    def collect(self) -> Iterable[Metric]:
        try:
            fleet_state = self._fleet.current()
        except Unavailable:
            yield _gauge("zookeeper_connected", "Whether ZooKeeper responds.", 0)
            return
        yield _gauge("zookeeper_connected", "Whether ZooKeeper responds.", 1)
        yield from _fleet_metrics(fleet_state)
        tallies = self._fleet.tallies(fleet_state)
        routes = [config.route for config in self._settings.routes]
        yield from _count_metrics(counts_by_route(fleet_state.snapshot, tallies, routes))
        yield self._paused_metrics(fleet_state)
        yield from self._worker_metrics(fleet_state)
        yield _limit_metrics(fleet_state)
        yield from self._source_metrics(fleet_state)

    def describe(self) -> Iterable[Metric]:
        """Nothing is read while the registry is being built."""
        return ()

    def _source_metrics(self, fleet_state: FleetState) -> Iterable[Metric]:
        """Source metrics; an unavailable cluster has no counts rather than wrong ones."""
        up = _family("source_up", "Whether the source cluster responds.", "route")
        missing = _family(
            "missing_topics",
            "Whitelisted topics that the source does not list: none, or no right to see it.",
            "route",
        )
        mismatched = _family(
            "mismatched_topics",
            "Whitelisted topics whose partition count differs at the source.",
            "route",
        )
        listed(self._clusters.values(), max_age_s=SCRAPED_MAX_AGE_S, timeout_s=self._timeout_s)
        for config in self._settings.routes:
            name = str(config.route)
            try:
                found, _ = compare(
                    fleet_state,
                    config.route,
                    self._clusters,
                    topics_of=lambda cluster, _: cluster.last(),
                )
            except OperatingError:
                up.add_metric([name], 0)
                continue
            up.add_metric([name], 1)
            missing.add_metric([name], len(found.missing))
            mismatched.add_metric([name], len(found.mismatched))
        return (up, missing, mismatched)

    def _paused_metrics(self, fleet_state: FleetState) -> Metric:
        paused = fleet_state.snapshot.switches.paused_routes
        states = {config.route: float(config.route in paused) for config in self._settings.routes}
        return _family("route_paused", "Whether operators paused the whole route.", "route", states)

    def _worker_metrics(self, fleet_state: FleetState) -> Iterable[Metric]:
        found = {
            config.route: route_workers(fleet_state.snapshot, config.route)
            for config in self._settings.routes
        }
        yield _family(
            "route_workers",
            "Live workers that may copy the route and are not drained.",
            "route",
            {route: workers.available for route, workers in found.items()},
        )
        yield _family(
            "route_min_workers",
            "Workers that the route asks for at least.",
            "route",
            {route: workers.wanted for route, workers in found.items()},
        )


def _fleet_metrics(fleet_state: FleetState) -> Iterable[Metric]:
    snapshot = fleet_state.snapshot
    yield _gauge(
        "leader_present", "Whether a controller leads.", int(fleet_state.leader is not None)
    )
    yield _gauge("controllers", "Live controllers.", len(fleet_state.controllers))
    yield _gauge("live_workers", "Live workers.", len(snapshot.sessions))
    yield _gauge(
        "unreadable_nodes",
        "Nodes in ZooKeeper that cannot be decoded.",
        len(snapshot.unreadable_nodes),
    )


def _count_metrics(counts: Mapping[Route, ValidationCounts]) -> Iterable[Metric]:
    """Whitelisted topics and partitions by route; ideal and external partitions by worker."""
    for name, help, field in (
        ("topics", "Whitelisted topics.", "topics"),
        ("error_topics", "Topics with a partition in error.", "error_topics"),
        (
            "mismatches",
            "Partitions whose external view differs from the ideal state, or whose target topic does harm.",
            "differing",
        ),
    ):
        found = {route: getattr(of_route, field) for route, of_route in counts.items()}
        yield _family(name, help, "route", found)
    partitions = GaugeMetricFamily(
        "ureplicator_partitions",
        "Whitelisted partitions by their owner's state.",
        labels=["route", "state"],
    )
    for route, of_route in counts.items():
        for state in ("online", "offline", "error"):
            partitions.add_metric([str(route), state], getattr(of_route, state))
    yield partitions
    for name, help, held in (
        ("worker_ideal_partitions", "in the ideal state of the worker", "ideal_state"),
        ("worker_external_partitions", "that the worker reports to hold", "external_view"),
    ):
        total: Counter[WorkerId] = Counter()
        for of_route in counts.values():
            total.update(getattr(of_route, held))
        yield _family(name, f"Partitions {help}.", "worker", total)


def _limit_metrics(fleet_state: FleetState) -> Metric:
    family = GaugeMetricFamily(
        "ureplicator_limit_bytes_per_second",
        "Byte limit that operators set, for a route, topic or worker.",
        labels=["kind", "name"],
    )
    for limited, rate in sorted(fleet_state.snapshot.switches.limits.items()):
        family.add_metric([limited.kind.value, limited.name], rate)
    return family


def _gauge(name: str, help: str, value: float) -> Metric:
    return GaugeMetricFamily(f"ureplicator_{name}", help, value=value)


def _family(
    name: str, help: str, label: str, values: Mapping[Any, float] | None = None
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"ureplicator_{name}", help, labels=[label])
    for key, value in sorted((values or {}).items()):
        family.add_metric([str(key)], value)
    return family
