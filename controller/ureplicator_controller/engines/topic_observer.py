"""Topic observer: polls the topics of the Kafka clusters, for the metrics and the topic reconciler.

One request per cluster and poll, however many routes and topics there are; one more where a topic that
matters is not in the list, since a list may come from a broker whose metadata lags behind. The observer
has a thread of its own, and nothing waits for it; clusters are read in parallel, so that unavailable
ones cost one timeout. An unavailable cluster leaves its own gauges at their last value, and is counted
as a failure. A difference is logged when it appears and when it is gone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence

from prometheus_client import Gauge

from ureplicator_common.clock import Clock
from ureplicator_common.coordination import Coordination, Unavailable
from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import ListedTopics, TopicAdmin, TopicInfo
from ureplicator_common.model import Route
from ureplicator_common.printable import listed
from ureplicator_common.znode_contents import Switches
from ureplicator_common.znodes.paths import Paths
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.topics.cluster_comparison import (
    ClusterComparison,
    compare_with_clusters,
)
from ureplicator_controller.core.topics.reconcile import expected_topics
from ureplicator_controller.core.topics.rules import TopicRules
from ureplicator_controller.engines.claims.between_fleets import FleetClaims
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_controller.engines.periodic_thread import PeriodicThread
from ureplicator_controller.engines.topic_reconciler import TopicReconciler, with_absent_confirmed

log = logging.getLogger(__name__)

POLL_INTERVAL_S = 4.0
"""A topic created or deleted at the source is acted on within 10 s: one poll, a second one CONFIRM_S
later to confirm a deletion, and the time that they take."""
FIRST_WITHIN_S = 0.5
"""Time after an election: topics that exist at the first poll of a new fleet are not new."""
MAX_LISTED = 5
"""Topics named in one log line."""


class TopicObserver:
    """The polling thread; `poll` is one round of it. It polls only while `seen` returns a snapshot.

    `rules`: of the configured routes.
    """

    def __init__(
        self,
        *,
        rules: Callable[[Switches], Sequence[TopicRules]],
        admins: Callable[[str], TopicAdmin],
        claims: FleetClaims,
        seen: Callable[[], tuple[int, Snapshot] | None],
        metrics: ControlMetrics,
        coordination: Coordination,
        paths: Paths,
        clock: Clock,
    ) -> None:
        self._rules = rules
        self._known: Sequence[TopicRules] = ()
        self._connect = admins
        self._claims = claims
        self._seen = seen
        self._metrics = metrics
        self._admins: dict[str, TopicAdmin] = {}
        self._reconciler = TopicReconciler(
            coordination,
            paths=paths,
            admins=self._admin,
            claims=claims,
            clock=clock,
            metrics=metrics,
        )
        self._down: dict[str, str] = {}
        self._found: dict[Route, ClusterComparison] = {}
        self._thread = PeriodicThread(
            self._round, name="topic observer", first_after_s=FIRST_WITHIN_S
        )

    def start(self) -> None:
        self._thread.start()

    def close(self, timeout_s: float = 1.0) -> None:
        """Stop; a thread that still waits for a cluster ends with the process."""
        if self._thread.stop(timeout_s):
            for admin in self._admins.values():
                admin.close()
            self._claims.close()

    def _round(self) -> float:
        try:
            return self.poll() or POLL_INTERVAL_S
        except Unavailable as error:
            log.debug("ZooKeeper: %s", error)  # the control loop logs it as a warning
        except Exception:
            log.exception("polling the Kafka clusters failed")
        return POLL_INTERVAL_S

    def poll(self) -> float:
        """Poll every cluster once; returns the wait until the next poll (0: the usual interval).

        Raises Unavailable.
        """
        seen = self._seen()
        if seen is None:
            self._reset()
            return FIRST_WITHIN_S
        epoch, snapshot = seen
        if snapshot.are_switches_readable or not self._known:
            self._known = self._rules(snapshot.switches)
        rules = self._known
        listed = self._list_topics(snapshot, rules)
        topics = {name: found.topics if found else None for name, found in listed.items()}
        for route in (rule.route for rule in rules):
            source, target = topics[route.source], topics[route.target]
            if source is not None:
                self._compare(route, snapshot, source, target)
        ids = {name: found.cluster_id for name, found in listed.items() if found}
        return self._reconciler.reconcile(epoch, snapshot, topics, rules, ids)

    def _list_topics(
        self, snapshot: Snapshot, rules: Sequence[TopicRules]
    ) -> dict[str, ListedTopics | None]:
        """Topics of every cluster, read in parallel; None: the cluster did not respond."""
        wanted: dict[str, set[str]] = {}
        for rule in rules:
            source, target = expected_topics(rule, snapshot)
            wanted.setdefault(rule.route.source, set()).update(source)
            wanted.setdefault(rule.route.target, set()).update(target)
        found: dict[str, ListedTopics | None] = dict.fromkeys(wanted)

        def read(name: str) -> None:
            found[name] = self._topics(name, wanted[name])

        threads = [
            threading.Thread(target=read, args=(name,), name=f"topics of {name}", daemon=True)
            for name in wanted
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    def _reset(self) -> None:
        """Remove the gauges: another controller leads, and exports them."""
        for route in self._found:
            for gauge in self._gauges():
                gauge.remove(str(route))
        self._found.clear()
        self._reconciler.reset()

    def _admin(self, name: str) -> TopicAdmin:
        if name not in self._admins:
            self._admins[name] = self._connect(name)
        return self._admins[name]

    def _topics(self, name: str, wanted: Collection[str]) -> ListedTopics | None:
        try:
            admin = self._admin(name)
            listed = with_absent_confirmed(admin.listing(), sorted(wanted), admin)
        except OperatingError as error:
            self._metrics.kafka_failures.labels(name).inc()
            if name not in self._down:
                log.warning("cluster %s: %s", name, error)
            self._down[name] = str(error)
            return None
        if self._down.pop(name, None) is not None:
            log.info("cluster %s is available again", name)
        return listed

    def _gauges(self) -> tuple[Gauge, ...]:
        metrics = self._metrics
        return (
            metrics.missing_topics,
            metrics.mismatched_topics,
            metrics.mismatched_topic_partitions,
            metrics.stopped_topics,
        )

    def _compare(
        self,
        route: Route,
        snapshot: Snapshot,
        source: Mapping[str, TopicInfo],
        target: Mapping[str, TopicInfo] | None,
    ) -> None:
        found = _differences(snapshot, route, source, target)
        figures = (
            len(found.missing),
            len(found.mismatched),
            sum(found.mismatched.values()),
            len(found.stopped),
        )
        for gauge, figure in zip(self._gauges(), figures, strict=True):
            gauge.labels(str(route)).set(figure)
        if found != self._found.get(route, ClusterComparison()):
            log.info("route %s: %s", route, _text(found))
        self._found[route] = found


def _differences(
    snapshot: Snapshot,
    route: Route,
    source: Mapping[str, TopicInfo],
    target: Mapping[str, TopicInfo] | None,
) -> ClusterComparison:
    """Source, target and whitelist compared; without findings at a target that is unavailable."""
    intents = {
        key.topic: stored.value for key, stored in snapshot.topics.items() if key.route == route
    }
    return compare_with_clusters(intents, source, target)


def _text(found: ClusterComparison) -> str:
    parts = [
        _listed("not in the source", found.missing),
        _listed("partition count differs at the source", sorted(found.mismatched)),
        _explained("not described by the source", found.source_findings),
        _listed("stopped", sorted(found.stopped)),
        _explained("wrong at the target", found.target_findings),
    ]
    return "; ".join(filter(None, parts)) or "source and target match the whitelist"


def _explained(what: str, findings: Mapping[str, str]) -> str:
    return _listed(what, [f"{topic} ({why})" for topic, why in sorted(findings.items())])


def _listed(what: str, topics: Sequence[str]) -> str:
    return f"{what}: {listed(topics, MAX_LISTED)}" if topics else ""
