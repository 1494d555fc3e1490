"""Pages of a worker: `/status` as JSON, `/metrics` for Prometheus, `/health` and `/ready` for probes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any
from wsgiref.types import WSGIApplication

from prometheus_client.core import Metric

from ureplicator_common._version import __version__
from ureplicator_common.model import WorkerId
from ureplicator_common.pages.web import ok_if, role_pages
from ureplicator_worker.engines import metric_families as families
from ureplicator_worker.engines import worker_metrics as telemetry
from ureplicator_worker.engines.copier_inbox import CopierInbox
from ureplicator_worker.engines.event_loop import EventLoop
from ureplicator_worker.engines.publisher import NodePublisher
from ureplicator_worker.engines.spark import SparkEngine
from ureplicator_worker.engines.watchdog import Watchdog
from ureplicator_worker.engines.worker_metrics import Telemetry
from ureplicator_worker.lifeline.messages import CopierId


class Pages:
    """Reads what the engines show of themselves; `collect` makes it a Prometheus collector."""

    def __init__(
        self,
        *,
        fleet: str,
        worker: WorkerId,
        loop: EventLoop,
        watchdog: Watchdog,
        publisher: NodePublisher,
        inbox: CopierInbox,
        spark: SparkEngine,
        telemetry: Telemetry,
    ) -> None:
        self._fleet = fleet
        self._worker = worker
        self._loop = loop
        self._watchdog = watchdog
        self._publisher = publisher
        self._inbox = inbox
        self._spark = spark
        self._telemetry = telemetry

    def by_path(self) -> Mapping[str, WSGIApplication]:
        return role_pages(
            fleet=self._fleet,
            status=self.status,
            health=self.health,
            ready=self.ready,
            metrics=self,
        )

    def collect(self) -> Iterable[Metric]:
        state = self._loop.state
        yield from telemetry.state_metrics(state)
        yield from self._telemetry.metrics(state.held)
        measures = self._telemetry.measures()
        yield from families.process_metrics(measures, jvm_pid=self._spark.jvm_pid)

    def status(self) -> tuple[HTTPStatus, Mapping[str, Any]]:
        shown = telemetry.status(self._loop.state, self._telemetry)
        pids = dict(self._inbox.pids)
        for slot in shown["slots"]:
            slot["pid"] = pids.get(CopierId(slot["slot"], slot["run"]), 0)
        return HTTPStatus.OK, {
            "id": self._worker,
            "fleet": self._fleet,
            "version": __version__,
            "pid": os.getpid(),
            "sparkUi": self._spark.ui_url,
            "registered": self._publisher.registered,
            **shown,
        }

    def health(self) -> tuple[HTTPStatus, Mapping[str, Any]]:
        """503 if the loop does not step."""
        healthy = self._watchdog.healthy
        body = {"healthy": healthy, "lastStepSeconds": round(self._watchdog.idle_s, 3)}
        return ok_if(healthy), body

    def ready(self) -> tuple[HTTPStatus, Mapping[str, Any]]:
        """503 until the worker is registered and all of its copiers are connected."""
        slots = self._loop.state.slots
        copiers = sum(slot.connected_s is not None for slot in slots)
        ready = self._publisher.registered and copiers == len(slots)
        body = {"ready": ready, "registered": self._publisher.registered, "copiers": copiers}
        return ok_if(ready), body
