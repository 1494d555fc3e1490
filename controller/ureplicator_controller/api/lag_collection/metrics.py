"""Lag of each topic as Prometheus gauges, from the same reports as `/offset`.

One series for each topic and figure, none for each partition: 10,000 partitions would overload the
scraper, and the topic's page has them. An unknown figure has no series rather than a false 0; the
number of partitions with unknown lag is itself a gauge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ureplicator_common.coordination import Unavailable
from ureplicator_controller.api.lag_collection.cache import LagCache
from ureplicator_controller.core.reporting.lag import LagSummary

_GAUGES: Mapping[str, tuple[str, Callable[[LagSummary], float | None]]] = {
    "lag_records": ("Lag in records, summed over the partitions.", lambda found: found.lag_records),
    "lag_seconds": (
        "Lag in seconds: the longest time a record has waited to be copied.",
        lambda found: found.lag_s,
    ),
    "retention_seconds": (
        "Seconds until retention at the source passes the first position.",
        lambda found: found.retention_s,
    ),
    "held_records": (
        "Offsets behind the stable end of the source, held by open transactions: not in the lag.",
        lambda found: found.held_records,
    ),
    "held_seconds": (
        "Longest time in which an open transaction has been seen to hold the end of a partition.",
        lambda found: found.held_s,
    ),
    "never_committed_partitions": (
        "Partitions without a committed position: copying has not begun.",
        lambda found: found.never_committed,
    ),
    "unknown_lag_partitions": (
        "Partitions whose lag is not known.",
        lambda found: found.unknown,
    ),
}


class LagMetrics(Collector):
    """Gauges drawn from the newest lag report."""

    def __init__(self, lag_cache: LagCache, *, timeout_s: float) -> None:
        self._lag_cache = lag_cache
        self._timeout_s = timeout_s

    def collect(self) -> Iterable[Metric]:
        try:
            report = self._lag_cache.report(timeout_s=self._timeout_s)
        except Unavailable:
            return
        if report is None:
            return
        yield GaugeMetricFamily(
            "ureplicator_lag_age_seconds",
            "Age of the lag figures.",
            value=self._lag_cache.age_s(report),
        )
        for name, (help, value) in _GAUGES.items():
            family = GaugeMetricFamily(f"ureplicator_{name}", help, labels=["route", "topic"])
            for key, summary in report.summaries.items():
                known = value(summary)
                if known is not None:
                    family.add_metric([str(key.route), key.topic], known)
            yield family

    def describe(self) -> Iterable[Metric]:
        """Nothing is collected while the registry is being built."""
        return ()
