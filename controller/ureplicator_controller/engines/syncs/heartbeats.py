"""Heartbeats of a route: sent to its source by the leader, copied as any topic, read at its target.

One thread for each route that has them. It runs in every controller, and acts only while this one leads. The
age of the newest heartbeat at the target covers the whole path, also while all other topics are quiet. An age
that cannot be read goes on growing from the last one that was: a target that does not respond is not fresh.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from ureplicator_common.clock import Clock
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.errors import OperatingError
from ureplicator_common.heartbeats import CONFIGS, heartbeat_topic
from ureplicator_common.kafka import TopicAdmin, TopicAlreadyExists
from ureplicator_common.kafka.heartbeats import Heartbeats
from ureplicator_common.model import TopicKey
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_controller.engines.periodic_thread import PeriodicThread
from ureplicator_controller.engines.syncs.ends import Ends
from ureplicator_controller.engines.syncs.reports import Reports
from ureplicator_controller.engines.syncs.thread import STOP_TIMEOUT_S, Seen

log = logging.getLogger(__name__)

ON_TIME, LATE, UNKNOWN = "on time", "late", "not at the target yet"
LATE_S = 10.0
"""Age from which a heartbeat is late, unless ten intervals are longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatClusters:
    """Both ends of a route, connected when this process leads for the first time."""

    admin: Callable[[], TopicAdmin]
    source: Callable[[], Heartbeats]
    target: Callable[[], Heartbeats]


class HeartbeatThread:
    """The thread of one route; `run_once` is one round of it, for tests to call."""

    def __init__(
        self,
        *,
        fleet: str,
        config: RouteConfig,
        clusters: HeartbeatClusters,
        seen: Seen,
        clock: Clock,
        metrics: ControlMetrics,
        reports: Reports,
    ) -> None:
        self._config = config
        self._topic = heartbeat_topic(fleet=fleet, route=config.route)
        self._clusters = clusters
        self._seen = seen
        self._clock = clock
        self._metrics = metrics
        self._reports = reports
        self._ends = Ends(clusters.source, clusters.target)
        self._created_in: int | None = None
        self._newest_ms: int | None = None
        self._failure = ""
        interval_s = config.heartbeats.interval_s
        self._late_s = max(LATE_S, 10 * interval_s)
        self._thread = PeriodicThread(
            self.run_once, name=f"heartbeats of {config.route}", first_after_s=interval_s
        )

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop; a thread that still waits for a cluster ends with the process."""
        if self._thread.stop(STOP_TIMEOUT_S):
            self._ends.close()

    def run_once(self) -> float:
        """One round; returns the wait until the next one."""
        seen = self._seen()
        if seen is None:
            self._reset()
            return self._config.heartbeats.interval_s
        try:
            self._beat(*seen)
        except Exception as error:  # without this thread a late copy would be unnoticed
            log.exception("%s: heartbeats failed", self._config.route)
            self._reports.failed(seen[0], f"{type(error).__name__}: {error}")
        return self._config.heartbeats.interval_s

    def _reset(self) -> None:
        """Another controller leads: it exports the age."""
        if self._newest_ms is not None:
            self._metrics.heartbeat_age_seconds.remove(str(self._config.route))
        self._newest_ms = self._created_in = None

    def _beat(self, epoch: int, snapshot: Snapshot) -> None:
        failures = [
            str(error)
            for step in (self._send, self._read)
            if (error := self._tried(step, epoch, snapshot)) is not None
        ]
        age_s = self._age_s()
        if age_s is not None:
            self._metrics.heartbeat_age_seconds.labels(str(self._config.route)).set(age_s)
        state = UNKNOWN if age_s is None else LATE if age_s > self._late_s else ON_TIME
        reason = "; ".join(failures)
        self._log(reason)
        self._reports.passed(epoch, {state: 1}, reason, age_s=age_s)

    def _tried(
        self, step: Callable[[int, Snapshot], None], epoch: int, snapshot: Snapshot
    ) -> OperatingError | None:
        """Each end by itself: one that does not respond hides nothing of the other."""
        try:
            step(epoch, snapshot)
        except OperatingError as error:
            self._metrics.heartbeat_failures.labels(str(self._config.route)).inc()
            return error
        return None

    def _send(self, epoch: int, snapshot: Snapshot) -> None:
        """Send a record. After a failure the topic is created again: it may have been deleted."""
        source, _ = self._ends.opened()
        if self._created_in != epoch:
            self._create()
        self._created_in = None
        source.send(self._topic, self._clock.wall_ms())
        self._created_in = epoch

    def _create(self) -> None:
        admin = self._clusters.admin()
        try:
            admin.create_topic(self._topic, partitions=1, configs=CONFIGS)
        except TopicAlreadyExists:
            return
        finally:
            admin.close()

    def _read(self, epoch: int, snapshot: Snapshot) -> None:
        """Nothing before the topic is whitelisted, which the topic reconciler does."""
        stored = snapshot.topics.get(TopicKey(self._config.route, self._topic))
        if stored is None:
            return
        _, target = self._ends.opened()
        found = target.newest_ms(stored.value.target_topic)
        if found is not None:
            self._newest_ms = max(found, self._newest_ms or 0)

    def _age_s(self) -> float | None:
        if self._newest_ms is None:
            return None
        return max(0, self._clock.wall_ms() - self._newest_ms) / 1_000

    def _log(self, failure: str) -> None:
        if failure and failure != self._failure:
            log.warning("%s: heartbeats: %s", self._config.route, failure)
        self._failure = failure
