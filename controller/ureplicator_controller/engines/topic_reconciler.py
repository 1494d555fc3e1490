"""Does what `core.topic_life` decides: makes and grows target topics, then writes intents.

Only the leader's keeper works, each write is fenced by its epoch and names the version that it was
decided on. So nothing here needs an answer: what was refused, or had no answer, is decided anew at
the next look, on what is there then.

A topic that fails (its target is refused, say) stops no other. It is tried again after RETRY_S,
each time a little later, and is told once in the log, always in `memory/<route>`, where REST finds
it. Work on Kafka ends after BUSY_S, so that a thousand new topics do not hide a deleted one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ureplicator_common.clock import Clock
from ureplicator_common.coordination import (
    Check,
    Conflict,
    Coordination,
    Operation,
    OutcomeUnknown,
    Unavailable,
)
from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import TopicAdmin
from ureplicator_common.model import Route, TopicKey
from ureplicator_common.znodes import Paths, encode_intent, encode_memory
from ureplicator_controller.core.planning.steps import write
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.topics.reconcile import (
    CONFIRM_S,
    IntentChange,
    TopicDecision,
    Topics,
    Unconfirmed,
    reconcile_topics,
    route_memory,
)
from ureplicator_controller.core.topics.rules import TopicRules
from ureplicator_controller.engines.metrics import ControlMetrics
from ureplicator_controller.engines.target_claims import claim
from ureplicator_controller.engines.target_topics import ensure_target

log = logging.getLogger(__name__)

RETRY_S = (5.0, 10.0, 20.0, 40.0, 60.0)
BUSY_S = 2.0
SOON_S = 0.5
"""Until the next look where something was left undone: the tree cache shows our own writes by then."""
REFUSED_KEPT = 500
"""Reasons that are remembered per route: the node must stay small; the gauge counts them all."""
SHOWN = 5
"""Topics named in the log at once."""


@dataclass(frozen=True, slots=True)
class _Failure:
    times: int
    retry_at_s: float
    why: str


class _Deposed(Exception):  # no error: somebody else does the rest
    """Another leader was elected."""


class TopicReconciler:
    """One per process, of the topic observer's thread. `admins` are kept by the caller."""

    def __init__(
        self,
        coordination: Coordination,
        *,
        paths: Paths,
        rules: Sequence[TopicRules],
        admins: Callable[[str], TopicAdmin],
        clock: Clock,
        metrics: ControlMetrics,
    ) -> None:
        self._coordination = coordination
        self._paths = paths
        self._rules = tuple(rules)
        self._admins = admins
        self._clock = clock
        self._metrics = metrics
        self._suspicions: Unconfirmed = {}
        self._failures: dict[TopicKey, _Failure] = {}
        self._too_big: set[Route] = set()

    def forget(self) -> None:
        """Somebody else leads."""
        self._suspicions = {}
        self._failures.clear()
        self._metrics.refused_topics.clear()

    def keep(self, epoch: int, snapshot: Snapshot, clusters: Mapping[str, Topics | None]) -> float:
        """One round; when the next is due at the latest, in seconds (0: whenever it is).

        Raises Unavailable.
        """
        now_s = self._clock.monotonic_s()
        decision = reconcile_topics(self._rules, snapshot, clusters, self._suspicions, now_s)
        self._suspicions = decision.suspicions
        try:
            is_done = self._perform_all(decision.changes, epoch, until_s=now_s + BUSY_S)
            is_done &= self._remember_all(decision, snapshot, epoch)
        except _Deposed:
            return 0.0
        if not is_done:
            return SOON_S
        return CONFIRM_S if decision.suspicions else 0.0

    def _perform_all(self, changes: Sequence[IntentChange], epoch: int, *, until_s: float) -> bool:
        """False: the time was too short for all of them. What needs no work on Kafka comes first."""
        keys = {change.key for change in changes}
        self._failures = {key: why for key, why in self._failures.items() if key in keys}
        for change in sorted(changes, key=lambda change: change.target_partitions > 0):
            now_s = self._clock.monotonic_s()
            if now_s >= until_s:
                return False
            failure = self._failures.get(change.key)
            if failure is None or now_s >= failure.retry_at_s:
                self._perform(change, epoch)
        return True

    def _perform(self, change: IntentChange, epoch: int) -> None:
        try:
            if change.target_partitions:
                self._bring_target(change)
            claims = self._claim(change) if change.version is None else ()
        except Unavailable:
            raise
        except OperatingError as error:
            self._fail(change, str(error))
            return
        intent = write(self._paths.topic(change.key), encode_intent(change.intent), change.version)
        if not self._write(intent, *claims, epoch=epoch):
            return
        self._failures.pop(change.key, None)
        self._metrics.topic_changes.labels(change.kind).inc()
        level = logging.WARNING if change.intent.stopped else logging.INFO
        log.log(level, "topic %s %s: %s", change.key, change.kind, change.why)

    def _claim(self, change: IntentChange) -> Sequence[Operation]:
        """Of a new intent: nobody else may have the target. Raises TargetTaken, Unavailable."""
        paths, key = self._paths, change.key
        self._coordination.ensure(f"{paths.topics}/{key.route}")
        self._coordination.ensure(f"{paths.targets}/{key.route.target}")
        return (claim(self._coordination, paths, key, change.intent.target_topic),)

    def _bring_target(self, change: IntentChange) -> None:
        route = change.key.route
        ensure_target(
            change.intent.target_topic or change.key.topic,
            wanted=change.target_partitions,
            source_topic=change.key.topic,
            source_partitions=change.source_partitions,
            source=self._admins(route.source),
            target=self._admins(route.target),
        )

    def _fail(self, change: IntentChange, why: str) -> None:
        self._metrics.topic_failures.labels(str(change.key.route)).inc()
        before = self._failures.get(change.key)
        times = before.times if before else 0
        wait_s = RETRY_S[min(times, len(RETRY_S) - 1)]
        at_s = self._clock.monotonic_s() + wait_s
        self._failures[change.key] = _Failure(times + 1, at_s, f"{change.kind} failed: {why}")

    def _write(self, *operations: Operation, epoch: int) -> bool:
        """Whether it is certain that it was written. Raises Unavailable, _Deposed."""
        check = Check(self._paths.epoch, epoch)
        try:
            self._coordination.transact([check, *operations])
        except Conflict as conflict:
            if conflict.operation == check:
                raise _Deposed from conflict
            log.info("conflict, deciding again: %s", conflict)
            return False
        except OutcomeUnknown as error:
            log.warning("a write had no answer, deciding again: %s", error)
            return False
        self._metrics.writes.inc(len(operations))
        return True

    def _remember_all(self, decision: TopicDecision, snapshot: Snapshot, epoch: int) -> bool:
        """False: a baseline was begun, and whitelisting can begin now."""
        refused = dict(decision.refused)
        refused |= {key: failure.why for key, failure in self._failures.items()}
        has_begun = False
        for rules in self._rules:
            route = rules.route
            mine = {key.topic: why for key, why in sorted(refused.items()) if key.route == route}
            self._metrics.refused_topics.labels(str(route)).set(len(mine))
            kept = dict(list(mine.items())[:REFUSED_KEPT])
            has_begun |= self._remember(route, decision, snapshot, epoch, refused=kept)
        return not has_begun

    def _remember(
        self,
        route: Route,
        decision: TopicDecision,
        snapshot: Snapshot,
        epoch: int,
        *,
        refused: Mapping[str, str],
    ) -> bool:
        """Whether a baseline was begun. What does not fit into a node is told, once."""
        baseline = decision.baselines.get(route)
        memory = route_memory(snapshot, route, baseline=baseline, refused=refused)
        if memory is None:
            return False
        stored = snapshot.memory.get(route)
        before = stored.value if stored else None
        path = self._paths.route_memory(route)
        try:
            data = encode_memory(memory)
        except ValueError as error:
            if route not in self._too_big:
                log.error("route %s: topics cannot be remembered: %s", route, error)
            self._too_big.add(route)
            return False
        if not self._write(write(path, data, stored.version if stored else None), epoch=epoch):
            return False
        self._tell(route, refused, before.refused if before else {})
        return baseline is not None and (before is None or before.baseline is None)

    def _tell(self, route: Route, refused: Mapping[str, str], before: Mapping[str, str]) -> None:
        new = [topic for topic, why in refused.items() if before.get(topic) != why]
        for topic in new[:SHOWN]:
            log.warning("topic %s/%s: %s", route, topic, refused[topic])
        if len(new) > SHOWN:
            log.warning("route %s: %d more topics refused", route, len(new) - SHOWN)


def with_absent_confirmed(topics: Topics, names: Sequence[str], admin: TopicAdmin) -> Topics:
    """A list, and by name whatever of `names` it lacks: absence then is the cluster's own word."""
    missing = [name for name in names if name not in topics]
    return {**topics, **admin.find(missing)} if missing else topics
