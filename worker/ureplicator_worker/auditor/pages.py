"""Pages of an auditor: `/status` as JSON, `/metrics` for Prometheus, `/health` and `/ready` for probes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any
from wsgiref.types import WSGIApplication

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from ureplicator_common._version import __version__
from ureplicator_common.clock import Clock
from ureplicator_common.pages.web import ok_if, role_pages
from ureplicator_worker.auditor.failures import Failures
from ureplicator_worker.auditor.following import RouteFollower
from ureplicator_worker.auditor.on_demand import SparkOnDemand
from ureplicator_worker.auditor.requests import RequestedAudits

MAX_FAILING = 20
"""Failing topics on `/status`; all of them are counted."""


class AuditorPages:
    """`collect` makes it a Prometheus collector."""

    def __init__(
        self,
        *,
        id: str,
        fleet: str,
        requests: RequestedAudits,
        followers: Sequence[RouteFollower],
        spark: SparkOnDemand,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._id = id
        self._fleet = fleet
        self._requests = requests
        self._followers = followers
        self._spark = spark
        self.registered = False

    def by_path(self) -> Mapping[str, WSGIApplication]:
        return role_pages(
            fleet=self._fleet,
            status=self.status,
            health=lambda: (HTTPStatus.OK, {"healthy": True}),
            ready=self.ready,
            metrics=self,
        )

    def status(self) -> tuple[HTTPStatus, Mapping[str, Any]]:
        return HTTPStatus.OK, {
            "id": self._id,
            "fleet": self._fleet,
            "version": __version__,
            "pid": os.getpid(),
            "registered": self.registered,
            "spark": {"running": self._spark.is_running, "starts": self._spark.starts},
            "audits": self._requests.counts,
            "requests": self._failing(self._requests.failures),
            "routes": {
                str(follower.route): {
                    "passes": follower.passes,
                    "error": follower.error,
                    "passedOffsets": follower.passed,
                    "comparedOffsets": follower.compared,
                    "differences": follower.differences,
                    "topics": self._failing(follower.failures),
                }
                for follower in self._followers
            },
        }

    def _failing(self, failures: Failures[Any]) -> Mapping[str, Any]:
        """The first ones by name, with the reason and when each is tried again."""
        failing, now_s = failures.failing, self._clock.monotonic_s()
        return {
            "failing": len(failing),
            "failures": failures.total,
            "first": {
                str(key): {
                    "reason": failure.reason,
                    "failures": failure.backoff.failures,
                    "retryInSeconds": round(max(0.0, failure.retry_s - now_s)),
                }
                for key, failure in sorted(failing.items())[:MAX_FAILING]
            },
        }

    def ready(self) -> tuple[HTTPStatus, Mapping[str, Any]]:
        return ok_if(self.registered), {"ready": self.registered}

    def collect(self) -> Iterable[Metric]:
        return auditor_metrics(self._requests.counts, self._followers)


def auditor_metrics(
    audits: Mapping[str, int], followers: Sequence[RouteFollower]
) -> Iterable[Metric]:
    """`audits`: outcome (`done`, `cancelled`, `not_verified`, `failed`) -> requested audits that ended so."""
    ended = CounterMetricFamily(
        "ureplicator_auditor_audits",
        "Requested audits that ended on this auditor, by outcome.",
        labels=["outcome"],
    )
    for outcome, number in audits.items():
        ended.add_metric([outcome], number)
    yield ended
    for name, help in _FOLLOWED.items():
        family = CounterMetricFamily(f"ureplicator_auditor_{name}", help, labels=["route"])
        for follower in followers:
            family.add_metric([str(follower.route)], getattr(follower, name.split("_")[0]))
        yield family
    yield from _failure_metrics(followers)


def _failure_metrics(followers: Sequence[RouteFollower]) -> Iterable[Metric]:
    failures = CounterMetricFamily(
        "ureplicator_auditor_failures",
        "Comparisons behind the copy that failed.",
        labels=["route"],
    )
    failing = GaugeMetricFamily(
        "ureplicator_auditor_failing_topics",
        "Topics whose comparison behind the copy failed and is tried again later.",
        labels=["route"],
    )
    for follower in followers:
        failures.add_metric([str(follower.route)], follower.failures.total)
        failing.add_metric([str(follower.route)], len(follower.failures.failing))
    yield from (failures, failing)


_FOLLOWED = {
    "passes": "Passes over the topics of a route, behind its copy.",
    "passed_offsets": "Source offsets passed behind the copy.",
    "compared_offsets": "Source offsets of them that were compared.",
    "differences": "Differences found behind the copy.",
}
