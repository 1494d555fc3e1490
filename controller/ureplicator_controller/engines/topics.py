"""Looks at the Kafka clusters every few seconds: what is whitelisted and not there, or of another
size.

One question per cluster and look, however many routes and topics there are. It has a thread of its
own, and nothing waits for it: a cluster that is away costs its own figures, which then keep their
last value, and a count of failures. A finding is logged when it appears and when it has gone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from prometheus_client import Gauge

from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import TopicAdmin, TopicInfo
from ureplicator_common.model import Route
from ureplicator_controller.core.difference import Difference, difference
from ureplicator_controller.core.snapshot import Snapshot
from ureplicator_controller.engines.metrics import ControlMetrics

log = logging.getLogger(__name__)

LOOK_S = 5.0
"""A new partition at the source shows within 10 s: one look, and the time that it takes."""
SHOWN = 5
"""Topics named in one line of the log."""


class TopicObserver:
    """The thread; `look` is one round of it. It looks only while `seen` gives a snapshot."""

    def __init__(
        self,
        *,
        routes: Sequence[Route],
        admins: Callable[[str], TopicAdmin],
        seen: Callable[[], Snapshot | None],
        metrics: ControlMetrics,
    ) -> None:
        self._routes = tuple(routes)
        self._connect = admins
        self._seen = seen
        self._metrics = metrics
        self._admins: dict[str, TopicAdmin] = {}
        self._down: dict[str, str] = {}
        self._found: dict[Route, Difference] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="topic observer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, timeout_s: float = 1.0) -> None:
        """One that waits for a cluster is left to its wait: it ends with the process."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        if not self._thread.is_alive():
            for admin in self._admins.values():
                admin.close()

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_S):
            try:
                self.look()
            except Exception:
                log.exception("looking at the clusters failed")

    def look(self) -> None:
        """Compare every route once."""
        snapshot = self._seen()
        if snapshot is None:
            self._forget()
            return
        names = {name for route in self._routes for name in (route.source, route.target)}
        answers = {name: self._topics(name) for name in sorted(names)}
        for route in self._routes:
            source, target = answers[route.source], answers[route.target]
            if source is not None:
                self._tell(route, _compare(snapshot, route, source, target))

    def _forget(self) -> None:
        """Somebody else leads, and tells."""
        for route in self._found:
            for gauge in self._gauges():
                gauge.remove(str(route))
        self._found.clear()

    def _topics(self, name: str) -> Mapping[str, TopicInfo] | None:
        try:
            if name not in self._admins:
                self._admins[name] = self._connect(name)
            answer = self._admins[name].topics()
        except OperatingError as error:
            self._metrics.kafka_failures.labels(name).inc()
            if name not in self._down:
                log.warning("cluster %s: %s", name, error)
            self._down[name] = str(error)
            return None
        if self._down.pop(name, None) is not None:
            log.info("cluster %s answers again", name)
        return answer

    def _gauges(self) -> tuple[Gauge, ...]:
        metrics = self._metrics
        return metrics.missing_topics, metrics.mismatched_topics, metrics.mismatched_partitions

    def _tell(self, route: Route, found: Difference) -> None:
        figures = (
            len(found.missing),
            len(found.mismatched),
            sum(found.mismatched.values()),
        )
        for gauge, figure in zip(self._gauges(), figures, strict=True):
            gauge.labels(str(route)).set(figure)
        if found != self._found.get(route, Difference()):
            log.info("route %s: %s", route, _in_words(found))
        self._found[route] = found


def _compare(
    snapshot: Snapshot,
    route: Route,
    source: Mapping[str, TopicInfo],
    target: Mapping[str, TopicInfo] | None,
) -> Difference:
    """A target that is away leaves out what is wrong there, and nothing else."""
    intents = {
        key.topic: stored.value for key, stored in snapshot.topics.items() if key.route == route
    }
    found = difference(intents, source, target or {})
    return found if target is not None else replace(found, target_findings={})


def _in_words(found: Difference) -> str:
    parts = [
        _some("not in the source", found.missing),
        _some("of another size in the source", sorted(found.mismatched)),
        _some("not right in the target", sorted(found.target_findings)),
    ]
    return "; ".join(filter(None, parts)) or "source and target are as whitelisted"


def _some(what: str, topics: Sequence[str]) -> str:
    if not topics:
        return ""
    more = f" and {len(topics) - SHOWN} more" if len(topics) > SHOWN else ""
    return f"{what}: {', '.join(topics[:SHOWN])}{more}"
