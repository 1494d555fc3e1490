"""How far behind each topic is, as gauges for Prometheus, from the same looks as `/offset`.

One series for each topic and figure, none for each partition: a fleet of 10,000 partitions would fill
the scraper, and the page of the topic has them. What is not known has no series, rather than a false 0;
how many partitions that concerns is itself a gauge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ureplicator_common.coordination import Unavailable
from ureplicator_controller.api.lag.cache import LagCache
from ureplicator_controller.core.reporting.lag import LagSummary, summarise

_GAUGES: Mapping[str, tuple[str, Callable[[LagSummary], float | None]]] = {
    "lag_records": ("Sum of the partitions' lags.", lambda found: found.lag_records),
    "lag_seconds": ("Longest that a record has waited for its copy.", lambda found: found.lag_s),
    "retention_seconds": (
        "Until the source's retention passes the first position.",
        lambda found: found.retention_s,
    ),
    "never_committed_partitions": (
        "Partitions without a position: copying has not begun.",
        lambda found: found.never_committed,
    ),
    "unknown_lag_partitions": ("Partitions whose lag is not known.", lambda found: found.unknown),
}


class LagMetrics(Collector):
    """Gauges drawn from the newest look."""

    def __init__(self, progress: LagCache) -> None:
        self._progress = progress

    def collect(self) -> Iterable[Metric]:
        try:
            report = self._progress.report()
        except Unavailable:
            return
        if report is None:
            return
        yield GaugeMetricFamily(
            "ureplicator_lag_age_seconds",
            "How long ago the lags were looked at.",
            value=self._progress.age_s(report),
        )
        found = {key: summarise(of.values()) for key, of in report.topics.items()}
        for name, (help, value) in _GAUGES.items():
            family = GaugeMetricFamily(f"ureplicator_{name}", help, labels=["route", "topic"])
            for key, summary in found.items():
                known = value(summary)
                if known is not None:
                    family.add_metric([str(key.route), key.topic], known)
            yield family

    def describe(self) -> Iterable[Metric]:
        """Nothing is asked while the registry is being built."""
        return ()
