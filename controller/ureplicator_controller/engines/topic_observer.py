"""Looks at the Kafka clusters every few seconds, for the figures and for the topic keeper.

One question per cluster and look, however many routes and topics there are; one more where a topic
that matters is not in the list, since a list may be that of a broker which lags behind. It has a
thread of its own, and nothing waits for it; clusters are asked at the same time, so that those which
are away cost one time-out. Such a cluster costs its own figures, which then keep their last value, and
a count of failures. A finding is logged when it appears and when it has gone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from prometheus_client import Gauge

from ureplicator_common.clock import Clock
from ureplicator_common.coordination import Coordination, Unavailable
from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import TopicAdmin, TopicInfo
from ureplicator_common.model import Route
from ureplicator_common.znodes import Paths
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.topics.reconcile import expected_topics
from ureplicator_controller.core.topics.rules import TopicRules
from ureplicator_controller.core.topics.validation import ClusterComparison, compare_with_clusters
from ureplicator_controller.engines.metrics import ControlMetrics
from ureplicator_controller.engines.topic_reconciler import TopicReconciler, with_absent_confirmed

log = logging.getLogger(__name__)

LOOK_S = 4.0
"""What appears or goes at the source is acted on within 10 s: one look, another one CONFIRM_S later
where something is gone, and the time that they take."""
SHOWN = 5
"""Topics named in one line of the log."""


class TopicObserver:
    """The thread; `look` is one round of it. It looks only while `seen` gives a snapshot."""

    def __init__(
        self,
        *,
        rules: Sequence[TopicRules],
        admins: Callable[[str], TopicAdmin],
        seen: Callable[[], tuple[int, Snapshot] | None],
        metrics: ControlMetrics,
        coordination: Coordination,
        paths: Paths,
        clock: Clock,
    ) -> None:
        self._rules = tuple(rules)
        self._routes = tuple(each.route for each in rules)
        self._connect = admins
        self._seen = seen
        self._metrics = metrics
        self._admins: dict[str, TopicAdmin] = {}
        self._reconciler = TopicReconciler(
            coordination,
            paths=paths,
            rules=rules,
            admins=self._admin,
            clock=clock,
            metrics=metrics,
        )
        self._down: dict[str, str] = {}
        self._found: dict[Route, ClusterComparison] = {}
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
        wait_s = LOOK_S
        while not self._stopping.wait(wait_s):
            wait_s = LOOK_S
            try:
                wait_s = self.look() or LOOK_S
            except Unavailable as error:
                log.debug("ZooKeeper: %s", error)  # the control loop says so already
            except Exception:
                log.exception("looking at the clusters failed")

    def look(self) -> float:
        """Look at every route once; when to look again (0: as usual). Raises Unavailable."""
        seen = self._seen()
        if seen is None:
            self._forget()
            return 0.0
        epoch, snapshot = seen
        answers = self._ask(snapshot)
        for route in self._routes:
            source, target = answers[route.source], answers[route.target]
            if source is not None:
                self._tell(route, snapshot, source, target)
        return self._reconciler.keep(epoch, snapshot, answers)

    def _ask(self, snapshot: Snapshot) -> dict[str, Mapping[str, TopicInfo] | None]:
        """Every cluster once, all at the same time; None: it did not answer."""
        wanted: dict[str, set[str]] = {}
        for rules in self._rules:
            source, target = expected_topics(rules, snapshot)
            wanted.setdefault(rules.route.source, set()).update(source)
            wanted.setdefault(rules.route.target, set()).update(target)
        answers: dict[str, Mapping[str, TopicInfo] | None] = dict.fromkeys(wanted)

        def ask(name: str) -> None:
            answers[name] = self._topics(name, wanted[name])

        threads = [
            threading.Thread(target=ask, args=(name,), name=f"topics of {name}", daemon=True)
            for name in wanted
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers

    def _forget(self) -> None:
        """Somebody else leads, and tells."""
        for route in self._found:
            for gauge in self._gauges():
                gauge.remove(str(route))
        self._found.clear()
        self._reconciler.forget()

    def _admin(self, name: str) -> TopicAdmin:
        if name not in self._admins:
            self._admins[name] = self._connect(name)
        return self._admins[name]

    def _topics(self, name: str, wanted: Collection[str]) -> Mapping[str, TopicInfo] | None:
        try:
            admin = self._admin(name)
            answer = with_absent_confirmed(admin.topics(), sorted(wanted), admin)
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
        return (
            metrics.missing_topics,
            metrics.mismatched_topics,
            metrics.mismatched_partitions,
            metrics.stopped_topics,
        )

    def _tell(
        self,
        route: Route,
        snapshot: Snapshot,
        source: Mapping[str, TopicInfo],
        target: Mapping[str, TopicInfo] | None,
    ) -> None:
        found = _compare(snapshot, route, source, target)
        figures = (
            len(found.missing),
            len(found.mismatched),
            sum(found.mismatched.values()),
            len(found.stopped),
        )
        for gauge, figure in zip(self._gauges(), figures, strict=True):
            gauge.labels(str(route)).set(figure)
        if found != self._found.get(route, ClusterComparison()):
            log.info("route %s: %s", route, _in_words(found))
        self._found[route] = found


def _compare(
    snapshot: Snapshot,
    route: Route,
    source: Mapping[str, TopicInfo],
    target: Mapping[str, TopicInfo] | None,
) -> ClusterComparison:
    """A target that is away leaves out what is wrong there, and nothing else."""
    intents = {
        key.topic: stored.value for key, stored in snapshot.topics.items() if key.route == route
    }
    found = compare_with_clusters(intents, source, target or {})
    return found if target is not None else replace(found, target_findings={})


def _in_words(found: ClusterComparison) -> str:
    parts = [
        _some("not in the source", found.missing),
        _some("of another size in the source", sorted(found.mismatched)),
        _some("stopped", sorted(found.stopped)),
        _some("not right in the target", sorted(found.target_findings)),
    ]
    return "; ".join(filter(None, parts)) or "source and target are as whitelisted"


def _some(what: str, topics: Sequence[str]) -> str:
    if not topics:
        return ""
    more = f" and {len(topics) - SHOWN} more" if len(topics) > SHOWN else ""
    return f"{what}: {', '.join(topics[:SHOWN])}{more}"
