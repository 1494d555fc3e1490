"""Cost of the copy of each route in the last day, as Prometheus gauges.

Counters of each worker are in its own metrics; these are for a Prometheus that keeps less than a day, and
have the processor time by route.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ureplicator_common.clock import Clock
from ureplicator_controller.api.services.timeline.store import (
    TimelineStore,
    TimelineUnavailable,
    kept_from_ms,
)


class UsageMetrics(Collector):
    def __init__(self, *, store: TimelineStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def collect(self) -> Iterable[Metric]:
        try:
            found = self._store.usage(from_ms=kept_from_ms(self._clock.wall_ms()))
        except TimelineUnavailable:
            return
        families = {
            "bytes": _family("day_bytes", "Bytes copied in the last day, as they travel."),
            "records": _family("day_records", "Records copied in the last day."),
            "cpu": _family("day_cpu_seconds", "Processor time of its workers in the last day."),
            "cost": _family(
                "core_hours_per_tb", "Core-hours for 10^12 copied bytes, in the last day."
            ),
        }
        for route_cost in found:
            labels, cost = [str(route_cost.route)], route_cost.cost
            families["bytes"].add_metric(labels, cost.bytes)
            families["records"].add_metric(labels, cost.records)
            families["cpu"].add_metric(labels, cost.cpu_s)
            if cost.core_hours_per_tb is not None:
                families["cost"].add_metric(labels, cost.core_hours_per_tb)
        yield from families.values()

    def describe(self) -> Iterable[Metric]:
        """Nothing is collected while the registry is being built."""
        return ()


def _family(name: str, help: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"ureplicator_route_{name}", help, labels=["route"])
