"""Topic reconciler: carries out what `core.topics.reconcile` decides.

It creates and expands target topics, then writes intents. Only the leader's reconciler works; each
write is fenced by its epoch and names the version that it was decided on. So no write needs a retry
here: one that was refused, or whose outcome is unknown, is decided again in the next round, on the
state of that time.

A topic that fails (its target is refused, for example) blocks no other topic. It is retried with
backoff; it is logged once, and always stored in `memory/<route>`, where REST reads it. Work on Kafka
ends after MAX_KAFKA_WORK_S, so that a thousand new topics do not delay the detection of a deleted one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ureplicator_common.backoff import Backoff
from ureplicator_common.clock import Clock
from ureplicator_common.coordination import (
    Coordination,
    Operation,
    Unavailable,
    create_or_set,
)
from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import ListedTopics, TopicAdmin
from ureplicator_common.model import Route, TopicKey
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.routes import encode_memory
from ureplicator_common.znodes.topics import encode_intent
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.topics.baseline import changed_memory
from ureplicator_controller.core.topics.reconcile import (
    CONFIRM_S,
    IntentChange,
    TopicDecision,
    Unconfirmed,
    reconcile_topics,
)
from ureplicator_controller.core.topics.rules import TopicRules
from ureplicator_controller.core.topics.topic_ids import TopicInfos
from ureplicator_controller.engines.claims.between_fleets import FleetClaims
from ureplicator_controller.engines.claims.within_fleet import claim, ensure_parents
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_controller.engines.fenced_writer import FencedWriter, WriteOutcome
from ureplicator_controller.engines.target_limits import topic_warnings
from ureplicator_controller.engines.target_topics import TargetTopic, ensure_target, with_target

log = logging.getLogger(__name__)

RETRY_DELAYS_S = (5.0, 10.0, 20.0, 40.0, 60.0)
MAX_KAFKA_WORK_S = 2.0
UNFINISHED_S = 0.5
"""Time until the next round where work is left: the cached tree shows the own writes by then."""
MAX_REFUSALS_STORED = 500
"""Reasons stored per route: the node must stay small; the gauge counts all of them."""
MAX_LOGGED = 5
"""Topics logged in one round."""


@dataclass(frozen=True, slots=True)
class _Failure:
    backoff: Backoff
    retry_at_s: float
    why: str


class _Deposed(Exception):  # no error: the new leader continues
    """Another leader was elected."""


class TopicReconciler:
    """One per process, used by the topic observer's thread. `admins` belong to the caller."""

    def __init__(
        self,
        coordination: Coordination,
        *,
        paths: Paths,
        admins: Callable[[str], TopicAdmin],
        claims: FleetClaims,
        clock: Clock,
        metrics: ControlMetrics,
    ) -> None:
        self._coordination = coordination
        self._paths = paths
        self._rules: Sequence[TopicRules] = ()
        self._admins = admins
        self._fleet_claims = claims
        self._clock = clock
        self._metrics = metrics
        self._writer = FencedWriter(coordination, paths=paths, metrics=metrics)
        self._unconfirmed: Unconfirmed = {}
        self._failures: dict[TopicKey, _Failure] = {}
        self._oversized: set[Route] = set()

    def reset(self) -> None:
        """Drop all state: another controller leads."""
        self._unconfirmed = {}
        self._failures.clear()
        self._metrics.refused_topics.clear()

    def reconcile(
        self,
        epoch: int,
        snapshot: Snapshot,
        clusters: Mapping[str, TopicInfos | None],
        rules: Sequence[TopicRules],
        cluster_ids: Mapping[str, str],
    ) -> float:
        """One round; returns the seconds until the next one at the latest (0: no deadline).

        Raises Unavailable.
        """
        now_s = self._clock.monotonic_s()
        self._rules = rules
        decision = reconcile_topics(
            rules,
            snapshot,
            clusters,
            self._unconfirmed,
            now_s,
            wall_ms=self._clock.wall_ms(),
            cluster_ids=cluster_ids,
        )
        self._unconfirmed = decision.unconfirmed
        try:
            is_done = self._perform_all(decision.changes, epoch, until_s=now_s + MAX_KAFKA_WORK_S)
            is_done &= self._store_memories(decision, snapshot, epoch)
        except _Deposed:
            return 0.0
        if not is_done:
            return UNFINISHED_S
        return CONFIRM_S if decision.unconfirmed else 0.0

    def _perform_all(self, changes: Sequence[IntentChange], epoch: int, *, until_s: float) -> bool:
        """False if time ran out before all were done. Changes without work on target topics come first."""
        keys = {change.key for change in changes}
        self._failures = {key: why for key, why in self._failures.items() if key in keys}
        for change in sorted(changes, key=_has_work_on_target):
            now_s = self._clock.monotonic_s()
            if now_s >= until_s:
                return False
            failure = self._failures.get(change.key)
            if failure is None or now_s >= failure.retry_at_s:
                self._perform(change, epoch)
        return True

    def _perform(self, change: IntentChange, epoch: int) -> None:
        after, version = change.intent, change.version
        try:
            if change.deleted_id:
                version = self._delete_target(change, epoch)
                if version is None:
                    return
            if change.target_partitions:
                after = with_target(after, self._ensure_target(change))
            claims = self._claim(change) if change.version is None else ()
        except Unavailable:
            raise
        except OperatingError as error:
            self._fail(change, str(error))
            return
        intent = create_or_set(self._paths.topic(change.key), encode_intent(after), version)
        if not self._write(intent, *claims, epoch=epoch):
            return
        self._failures.pop(change.key, None)
        self._metrics.topic_changes.labels(change.kind).inc()
        level = logging.WARNING if change.intent.stopped else logging.INFO
        log.log(level, "topic %s %s: %s", change.key, change.kind, change.reason)
        if change.version is None:
            self._log_limits(change)

    def _delete_target(self, change: IntentChange, epoch: int) -> int | None:
        """The version of the intent after the target topic was deleted; None: nothing was deleted, since this
        process does not lead, or the intent has changed. Raises Unavailable, _Deposed and what the target
        raises.

        A deletion is not fenced, so the intent is written before, as it is: a leader that dies in between
        leaves it to the next one, which decides again.
        """
        assert change.known is not None
        assert change.version is not None
        path = self._paths.topic(change.key)
        same = create_or_set(path, encode_intent(change.known), change.version)
        if not self._write(same, epoch=epoch):
            return None
        self._admins(change.key.route.target).delete_topic(change.deleted_id)
        return change.version + 1

    def _log_limits(self, added: IntentChange) -> None:
        key = added.key
        for warning in topic_warnings(
            key.topic,
            added.intent.target_topic,
            source=self._admins(key.route.source),
            target=self._admins(key.route.target),
        ):
            log.warning("topic %s: %s", key, warning)

    def _claim(self, change: IntentChange) -> Sequence[Operation]:
        """The claim of a new intent on its target topic. Raises TargetTaken, Unavailable."""
        paths, key = self._paths, change.key
        ensure_parents(self._coordination, paths, key)
        return (claim(self._coordination, paths, key, change.intent.target_topic),)

    def _ensure_target(self, change: IntentChange) -> TargetTopic:
        route = change.key.route
        target_topic = change.intent.target_topic
        self._fleet_claims.take(change.key, target_topic)
        return ensure_target(
            target_topic,
            wanted=change.target_partitions,
            source_topic=change.key.topic,
            source_partitions=change.source_partitions,
            source=self._admins(route.source),
            target=self._admins(route.target),
            replication_factor=next(
                rules.replication_factor for rules in self._rules if rules.route == route
            ),
            known=change.known,
        )

    def _fail(self, change: IntentChange, why: str) -> None:
        self._metrics.topic_failures.labels(str(change.key.route)).inc()
        before = self._failures.get(change.key)
        backoff = (before.backoff if before else Backoff(RETRY_DELAYS_S)).failed()
        at_s = self._clock.monotonic_s() + backoff.delay_s
        self._failures[change.key] = _Failure(backoff, at_s, f"{change.kind} failed: {why}")

    def _write(self, *operations: Operation, epoch: int) -> bool:
        """True if the write is confirmed. Raises Unavailable, _Deposed."""
        written = self._writer.write(operations, epoch=epoch)
        if written is WriteOutcome.DEPOSED:
            raise _Deposed
        return written is WriteOutcome.DONE

    def _store_memories(self, decision: TopicDecision, snapshot: Snapshot, epoch: int) -> bool:
        """False if a first baseline was stored: auto-whitelisting can begin in the next round."""
        refused = dict(decision.refused)
        refused |= {key: failure.why for key, failure in self._failures.items()}
        has_begun = False
        for rules in self._rules:
            route = rules.route
            mine = {key.topic: why for key, why in sorted(refused.items()) if key.route == route}
            self._metrics.refused_topics.labels(str(route)).set(len(mine))
            kept = dict(list(mine.items())[:MAX_REFUSALS_STORED])
            has_begun |= self._store_memory(route, decision, snapshot, epoch, refused=kept)
        return not has_begun

    def _store_memory(
        self,
        route: Route,
        decision: TopicDecision,
        snapshot: Snapshot,
        epoch: int,
        *,
        refused: Mapping[str, str],
    ) -> bool:
        """True if a first baseline was stored. A memory too large for a node is logged once."""
        baseline = decision.baselines.get(route)
        memory = changed_memory(snapshot, route, baseline=baseline, refused=refused)
        if memory is None:
            return False
        stored = snapshot.memory.get(route)
        before = stored.value if stored else None
        path = self._paths.route_memory(route)
        try:
            data = encode_memory(memory)
        except ValueError as error:
            if route not in self._oversized:
                log.error("route %s: topics cannot be stored in ZooKeeper: %s", route, error)
            self._oversized.add(route)
            return False
        if not self._write(
            create_or_set(path, data, stored.version if stored else None), epoch=epoch
        ):
            return False
        self._log_refused(route, refused, before.refused if before else {})
        return baseline is not None and (before is None or before.baseline is None)

    def _log_refused(
        self, route: Route, refused: Mapping[str, str], before: Mapping[str, str]
    ) -> None:
        new = [topic for topic, why in refused.items() if before.get(topic) != why]
        for topic in new[:MAX_LOGGED]:
            log.warning("topic %s/%s: %s", route, topic, refused[topic])
        if len(new) > MAX_LOGGED:
            log.warning("route %s: %d more topics refused", route, len(new) - MAX_LOGGED)


def _has_work_on_target(change: IntentChange) -> bool:
    return change.target_partitions > 0 or bool(change.deleted_id)


def with_absent_confirmed(
    listed: ListedTopics, names: Sequence[str], admin: TopicAdmin
) -> ListedTopics:
    """A listing, completed by looking up those of `names` that it lacks, one by one: a topic that is
    still absent does not exist."""
    missing = [name for name in names if name not in listed.topics]
    if not missing:
        return listed
    return replace(listed, topics={**listed.topics, **admin.find(missing)})
