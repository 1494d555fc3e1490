"""Audits of the topics as Prometheus gauges, by route: a series for each topic would be one too many.

The topics are in `GET /audits`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ureplicator_common.audits.standing import AuditState
from ureplicator_common.config.settings import Settings
from ureplicator_common.coordination import Unavailable
from ureplicator_controller.api.services.audit_standings import Standings
from ureplicator_controller.api.services.fleet_cache import FleetCache

_STATES = {
    AuditState.NEVER: "never_verified",
    AuditState.VERIFIED: "verified",
    AuditState.STALE: "stale",
    AuditState.DIFFERING: "differing",
}


class AuditMetrics(Collector):
    def __init__(
        self, *, settings: Settings, fleet: FleetCache, standings: Standings, timeout_s: float
    ) -> None:
        self._timeout_s = timeout_s
        self._routes = [config.route for config in settings.routes]
        self._fleet = fleet
        self._standings = standings

    def collect(self) -> Iterable[Metric]:
        try:
            fleet_state = self._fleet.current()
            topics = fleet_state.snapshot.topics
            found = self._standings.of(fleet_state, topics, timeout_s=self._timeout_s)
        except Unavailable:
            return
        now_ms = self._standings.now_ms
        states = GaugeMetricFamily(
            "ureplicator_audit_topics",
            "Topics by the state of their audit.",
            labels=["route", "state"],
        )
        seconds = GaugeMetricFamily(
            "ureplicator_audit_seconds_since_verified",
            "Age of the oldest comparison of any partition of the route.",
            labels=["route"],
        )
        behind = GaugeMetricFamily(
            "ureplicator_audit_behind_offsets",
            "Source offsets copied and not verified.",
            labels=["route"],
        )
        for route in self._routes:
            mine = [standing for key, standing in found.items() if key.route == route]
            counts = Counter(standing.state for standing in mine)
            for state, name in _STATES.items():
                states.add_metric([str(route), name], counts[state])
            times_ms = [
                standing.verified_ms for standing in mine if standing.verified_ms is not None
            ]
            if times_ms:
                seconds.add_metric([str(route)], max(0, now_ms - min(times_ms)) / 1_000)
            known = [
                standing.behind_offsets for standing in mine if standing.behind_offsets is not None
            ]
            if known:
                behind.add_metric([str(route)], sum(known))
        auditors = GaugeMetricFamily(
            "ureplicator_auditors",
            "Live auditors.",
            value=len(fleet_state.snapshot.audits.auditors),
        )
        yield from (states, seconds, behind, auditors)

    def describe(self) -> Iterable[Metric]:
        """Nothing is collected while the registry is being built."""
        return ()
