"""Reconciliation of topics with the Kafka clusters: whitelisted, expanded, stopped, resumed. Pure.

| observed                                             | change                                         |
|------------------------------------------------------|------------------------------------------------|
| a topic that matches the route's patterns            | whitelisted (after the target topic is created)|
| more partitions than are copied, all being wanted    | target and intent expanded                     |
| an intent without the ids of its topics              | ids recorded                                   |
| the topic is gone, or has another id (either side)   | stopped: all partitions are released           |
| the source is another cluster                        | stopped: all partitions are released           |
| the same topic as before                             | resumed                                        |
| the source topic is gone for the grace of the route  | target topic deleted, if the route created it  |
| a stopped topic was recreated, and `on_gap` allows it| new id recorded, resumed                       |

**Confirmed twice.** One broker may lag behind the others. That a topic is gone, has another id, or is
the same again takes effect when two observations, CONFIRM_S apart, agree. A cluster that is unavailable,
or that reports trouble with a topic, changes nothing.

**From the first record.** See `baseline`: topics that exist when auto-whitelisting begins start at the
route's `start`, all later ones at their first record.

**Never mixed.** A worker that copies under a stopped intent has the old topic's id and fetches nothing of
the new topic. A new id is recorded only when no worker holds a partition any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property

from ureplicator_common.kafka import TopicInfo
from ureplicator_common.model import Route, TopicKey, TopicState
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.topics.auto_whitelist import (
    AutoWhitelisting,
    NewTopic,
    size_refusal,
)
from ureplicator_controller.core.topics.baseline import next_baseline, stored_baseline
from ureplicator_controller.core.topics.loops import copies_by_target
from ureplicator_controller.core.topics.rules import TopicRules
from ureplicator_controller.core.topics.source_deletion import (
    EMPTY,
    Outlook,
    Outlooks,
    is_source_gone,
)
from ureplicator_controller.core.topics.topic_ids import (
    TopicInfos,
    adopt_topics,
    other_cluster,
    source_stop_reason,
    stop_reason,
    with_topic_ids,
)

_DUE = "target topic is due to be deleted"
CONFIRM_S = 2.0
"""Brokers learn of a change within milliseconds. Twice this and an observation stay below 10 s."""

NO_IDS: Mapping[str, str] = {}
Unconfirmed = Mapping[TopicKey, tuple[str, float]]
"""Stop reason observed for a topic that differs from the stored one, and since when (monotonic seconds)."""


@dataclass(frozen=True, slots=True)
class IntentChange:
    """An intent to write, after its target topic has `target_partitions` (0: not changed).

    `known`: the intent before, where the target topic is changed or deleted.

    `version`: version of the intent that this was decided on; None: create it. `deleted_id`: id of the target
    topic, which is deleted before, and after `known` was written again: only a leader can.
    """

    key: TopicKey
    intent: TopicIntent
    version: int | None
    kind: str
    reason: str
    target_partitions: int = 0
    source_partitions: int = 0
    known: TopicIntent | None = None
    deleted_id: str = ""


@dataclass(frozen=True, slots=True)
class TopicDecision:
    """Result of one reconciliation.

    `unconfirmed`: to be passed to the next one. `refused`: topics that the route's rules want copied but
    that cannot be, with the reason. `baselines`: to be stored for each route with auto-whitelisting.
    """

    changes: tuple[IntentChange, ...] = ()
    unconfirmed: Unconfirmed = field(default_factory=dict)
    refused: Mapping[TopicKey, str] = field(default_factory=dict)
    baselines: Mapping[Route, Mapping[str, str]] = field(default_factory=dict)


def reconcile_topics(
    rules: Sequence[TopicRules],
    snapshot: Snapshot,
    clusters: Mapping[str, TopicInfos | None],
    unconfirmed: Unconfirmed,
    now_s: float,
    *,
    wall_ms: int,
    cluster_ids: Mapping[str, str] = NO_IDS,
) -> TopicDecision:
    """Decide the changes of all routes. `clusters`: name -> topics, None: it did not respond. `now_s`,
    `wall_ms`: the same moment by the monotonic and by the wall clock. `cluster_ids`: name -> own id of those
    that responded.

    If a topic of an intent or a baseline is missing there, the cluster itself reported it missing.
    """
    return _Reconciler(rules, snapshot, clusters, unconfirmed, now_s, wall_ms, cluster_ids).run()


def expected_topics(rules: TopicRules, snapshot: Snapshot) -> tuple[set[str], set[str]]:
    """Source and target topics of a route that must exist, or their absence has consequences."""
    source, target = set(stored_baseline(snapshot, rules.route) or ()), set()
    for key, stored in snapshot.topics.items():
        if key.route == rules.route:
            source.add(key.topic)
            target.add(stored.value.target_topic)
    return source, target


def held_topics(snapshot: Snapshot) -> Set[TopicKey]:
    """Topics with a partition that is in any assignment or current state."""
    assigned = (stored.value.entries for stored in snapshot.assignments.values())
    reported = (stored.value.entries for stored in snapshot.current.values())
    return {partition.key for entries in (*assigned, *reported) for partition in entries}


class _Reconciler:
    """Working state of one reconciliation."""

    def __init__(
        self,
        rules: Sequence[TopicRules],
        snapshot: Snapshot,
        clusters: Mapping[str, TopicInfos | None],
        unconfirmed: Unconfirmed,
        now_s: float,
        wall_ms: int,
        cluster_ids: Mapping[str, str],
    ) -> None:
        self._rules = rules
        self._snapshot = snapshot
        self._clusters = clusters
        self._unconfirmed_before = unconfirmed
        self._now_s = now_s
        self._wall_ms = wall_ms
        self._cluster_ids = cluster_ids
        self._unconfirmed: dict[TopicKey, tuple[str, float]] = {}
        self._refused: dict[TopicKey, str] = {}

    def run(self) -> TopicDecision:
        baselines = {
            rules.route: baseline
            for rules in self._rules
            if rules.auto and (baseline := self._next_baseline(rules.route)) is not None
        }
        changes = [
            *(change for rules in self._rules for change in self._whitelisted_changes(rules)),
            *self._new_topic_changes(),
        ]
        return TopicDecision(tuple(changes), self._unconfirmed, self._refused, baselines)

    def _next_baseline(self, route: Route) -> Mapping[str, str] | None:
        return next_baseline(self._snapshot, route, self._clusters.get(route.source))

    @cached_property
    def _held_topics(self) -> Set[TopicKey]:
        """Topics that are held, computed at most once: it iterates over all assignments and current
        states."""
        return held_topics(self._snapshot)

    # Topics that are whitelisted.

    def _whitelisted_changes(self, rules: TopicRules) -> Iterator[IntentChange]:
        source = self._clusters.get(rules.route.source)
        target = self._clusters.get(rules.route.target)
        outlooks = Outlooks(rules.source_deletion, self._snapshot, rules.route)
        for key, stored in sorted(self._snapshot.topics.items()):
            intent = stored.value
            if key.route != rules.route or not intent.state.has_copies:
                continue
            other = other_cluster(intent, self._cluster_ids.get(rules.route.source, ""))
            reason = other or stop_reason(key, intent, source, target)
            gone_ms = 0 if other else self._gone_ms(key, intent, source)
            if reason is None:
                self._keep_unconfirmed(key)
            elif reason != intent.stopped:
                if self._is_confirmed(key, reason):
                    yield _stop_or_resume(key, stored.version, intent, reason, gone_ms)
            elif gone_ms:
                yield from self._source_gone(rules, key, stored.version, intent, gone_ms, outlooks)
            elif intent.stopped and not other:
                yield from self._adopt_recreated(rules, key, stored.version, intent, source)
            elif not other:
                yield from self._expand(rules, key, stored.version, intent, source, target)

    def _keep_unconfirmed(self, key: TopicKey) -> None:
        """A cluster did not respond: what was observed before still counts, but for a deletion."""
        before = self._unconfirmed_before.get(key)
        if before is not None and before[0] != _DUE:
            self._unconfirmed[key] = before

    def _gone_ms(self, key: TopicKey, intent: TopicIntent, source: TopicInfos | None) -> int:
        """Time since which the source topic is gone; 0: it is not."""
        is_gone = is_source_gone(key, intent, source)
        return (intent.source_gone_ms or self._wall_ms) if is_gone else 0

    def _source_gone(
        self,
        rules: TopicRules,
        key: TopicKey,
        version: int,
        intent: TopicIntent,
        gone_ms: int,
        outlooks: Outlooks,
    ) -> Iterator[IntentChange]:
        """Mark the time, and delete the target topic when it is due."""
        if not intent.source_gone_ms:
            yield _stop_or_resume(key, version, intent, intent.stopped, gone_ms)
        elif self._is_due(rules, key, outlooks.of(intent)) and key not in self._held_topics:
            retired = replace(intent, state=TopicState.DELETING, forget_positions=True)
            yield IntentChange(
                key,
                retired,
                version,
                "deleted",
                f"deleted at the source; target topic {intent.target_topic} is deleted",
                known=intent,
                deleted_id=intent.target_topic_id,
            )

    def _is_due(self, rules: TopicRules, key: TopicKey, outlook: Outlook | None) -> bool:
        """True if the target topic is to be deleted now. Looks that count begin before the grace ends."""
        looked_s = max(CONFIRM_S, rules.source_deletion.looked_s)
        if outlook is None or not outlook.is_due(self._wall_ms + round(looked_s * 1_000)):
            return False
        if not self._clusters.get(rules.route.source):
            self._refused[key] = EMPTY
            return False
        is_seen = self._is_confirmed(key, _DUE, for_s=looked_s)
        return is_seen and outlook.is_due(self._wall_ms)

    def _is_confirmed(self, key: TopicKey, reason: str, *, for_s: float = CONFIRM_S) -> bool:
        """True if the reason has been observed for this time; keep it as unconfirmed."""
        before, since_s = self._unconfirmed_before.get(key, (None, self._now_s))
        if before != reason:
            since_s = self._now_s
        self._unconfirmed[key] = (reason, since_s)
        return self._now_s - since_s >= for_s

    def _adopt_recreated(
        self,
        rules: TopicRules,
        key: TopicKey,
        version: int,
        intent: TopicIntent,
        source: TopicInfos | None,
    ) -> Iterator[IntentChange]:
        """Continue with a recreated source topic if `on_gap` allows it; the worker applies the policy."""
        info = (source or {}).get(key.topic)
        is_recreated = bool(source_stop_reason(key, intent, source))
        if not (info and is_recreated and rules.adopts_recreated_topics):
            return
        if intent.whole and self._is_refused_for_size(key, info):
            return
        if key in self._held_topics:
            return
        adopted = replace(adopt_topics(intent, info, intent.target_topic_id), restarted=False)
        yield IntentChange(
            key,
            adopted,
            version,
            "resumed",
            f"continues with the new topic {info.topic_id} (on_gap: {rules.settings.on_gap})",
            target_partitions=adopted.partitions,
            source_partitions=info.partitions,
            known=intent,
        )

    def _expand(
        self,
        rules: TopicRules,
        key: TopicKey,
        version: int,
        intent: TopicIntent,
        source: TopicInfos | None,
        target: TopicInfos | None,
    ) -> Iterator[IntentChange]:
        """Record missing ids; after that add partitions, since the target may refuse them."""
        info = (source or {}).get(key.topic, TopicInfo(0))
        target_info = (target or {}).get(intent.target_topic, TopicInfo(0))
        known = with_topic_ids(intent, info, target_info)
        if known.source_topic_id == info.topic_id:
            source_id = known.source_cluster_id or self._noted_cluster(rules)
            known = replace(known, source_cluster_id=source_id)
        has_grown = rules.auto_expand and known.whole and info.partitions > known.partitions
        if known != intent:
            yield IntentChange(key, known, version, "identified", "ids recorded")
        elif has_grown and target is not None and not self._is_refused_for_size(key, info):
            yield IntentChange(
                key,
                replace(intent, partitions=info.partitions),
                version,
                "expanded",
                f"the source has {info.partitions} partitions, not {intent.partitions}",
                target_partitions=info.partitions,
                source_partitions=info.partitions,
                known=intent,
            )

    def _noted_cluster(self, rules: TopicRules) -> str:
        """The source's own id for topics that are seen there; "" on a route that deletes nothing."""
        if rules.source_deletion.grace_s is None:
            return ""
        return self._cluster_ids.get(rules.route.source, "")

    def _is_refused_for_size(self, key: TopicKey, info: TopicInfo) -> bool:
        refusal = size_refusal(info)
        if refusal:
            self._refused[key] = refusal
        return bool(refusal)

    # Topics that are not whitelisted yet.

    def _new_topic_changes(self) -> Iterator[IntentChange]:
        whitelisting = AutoWhitelisting(
            snapshot=self._snapshot,
            naming=[(rules.route, rules.settings) for rules in self._rules],
            copied=copies_by_target(self._snapshot),
        )
        for rules in self._rules:
            source = self._clusters.get(rules.route.source)
            target = self._clusters.get(rules.route.target)
            for new in whitelisting.new_topics(rules, source, target):
                if new.refusal:
                    self._refused[new.key] = new.refusal
                else:
                    yield _whitelist(new, self._noted_cluster(rules))


def _stop_or_resume(
    key: TopicKey, version: int, intent: TopicIntent, reason: str, gone_ms: int
) -> IntentChange:
    changed = replace(intent, stopped=reason, source_gone_ms=gone_ms)
    if reason:
        return IntentChange(key, changed, version, "stopped", reason)
    return IntentChange(key, changed, version, "resumed", "both topics are the same as before")


def _whitelist(new: NewTopic, source_cluster_id: str) -> IntentChange:
    count = new.info.partitions
    start = "from the route's start" if new.is_old else "from the first record"
    return IntentChange(
        new.key,
        replace(new.intent(), source_cluster_id=source_cluster_id),
        None,
        "whitelisted",
        f"{count} partitions, {start}",
        target_partitions=count,
        source_partitions=count,
    )
