"""What becomes of topics by what the Kafka clusters have: whitelisted, grown, stopped. Pure.

| seen                                                | done                                            |
|-----------------------------------------------------|-------------------------------------------------|
| a topic that the route's patterns want              | whitelisted (after the target topic was made)   |
| more partitions than are copied, all being wanted   | target and intent grown                         |
| an intent without the ids of its topics             | the ids noted                                   |
| the topic is gone, or has another id (either side)  | stopped: all partitions are let go              |
| the very topic that was there before                | the stop lifted                                 |
| a stopped topic was recreated, `on_gap` says go on  | the new id noted, the stop lifted               |

**No hasty word.** One broker may lag behind the others. That a topic is gone, has another id, or is
itself again is believed when two looks, CONFIRM_S apart, say the same. A cluster that is away, or
cannot tell about a topic, says nothing at all.

**From the first record.** When auto-whitelisting begins on a route, the topics that are there are
written down (the *baseline*), before any is whitelisted. Those start where the route's `start`
says. Any other topic came later, also while no controller ran, and begins at its first record.

**Never mixed.** Who copies under a stopped intent has the old topic's id in hand and fetches
nothing of the new one. A new id is noted only when nobody holds a partition any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property

from ureplicator_common.kafka import TopicInfo
from ureplicator_common.model import Route, RouteMemory, TopicIntent, TopicKey, TopicState
from ureplicator_common.znodes import MAX_PARTITIONS
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.topics.loops import ClusterTopic, copies_by_target, loop_reason
from ureplicator_controller.core.topics.rules import AutoWhitelist, TopicRules

CONFIRM_S = 2.0
"""Brokers hear of a change within milliseconds; twice this and a look stay below 10 s."""
ID_SHOWN = 8
"""Characters of an id in a baseline: 48 bits tell two topics of one name apart, and the node of
15,000 topics stays below the limit of a node."""
MAX_TOPIC_NAME = 249
"""Kafka's."""

Topics = Mapping[str, TopicInfo]
Unconfirmed = Mapping[TopicKey, tuple[str, float]]
"""What was seen of a topic that differs from what is noted, and since when (monotonic seconds)."""


@dataclass(frozen=True, slots=True)
class IntentChange:
    """An intent to be written. First the target topic must have `target_partitions` (0: as it is).

    `version` is that of the intent this was decided on; None: there is none.
    """

    key: TopicKey
    intent: TopicIntent
    version: int | None
    kind: str
    why: str
    target_partitions: int = 0
    source_partitions: int = 0


@dataclass(frozen=True, slots=True)
class TopicDecision:
    """`refused`: topics that cannot be copied as the route's rules want it, and why.

    `baselines`: what each route with auto-whitelisting shall remember.
    """

    changes: tuple[IntentChange, ...] = ()
    suspicions: Unconfirmed = field(default_factory=dict)
    refused: Mapping[TopicKey, str] = field(default_factory=dict)
    baselines: Mapping[Route, Mapping[str, str]] = field(default_factory=dict)


def reconcile_topics(
    rules: Sequence[TopicRules],
    snapshot: Snapshot,
    clusters: Mapping[str, Topics | None],
    suspicions: Unconfirmed,
    now_s: float,
) -> TopicDecision:
    """`clusters`: name -> its topics, None: it did not answer.

    Of a topic that an intent or a baseline names, absence there means that the cluster said so.
    """
    made = _Decider(rules, snapshot, clusters, suspicions, now_s)
    return made.run()


def expected_topics(rules: TopicRules, snapshot: Snapshot) -> tuple[set[str], set[str]]:
    """Source and target topics whose absence would mean something."""
    source, target = set(baseline_of(snapshot, rules.route) or ()), set()
    for key, stored in snapshot.topics.items():
        if key.route == rules.route:
            source.add(key.topic)
            target.add(stored.value.target_topic or key.topic)
    return source, target


def baseline_of(snapshot: Snapshot, route: Route) -> Mapping[str, str] | None:
    """None if auto-whitelisting never began."""
    stored = snapshot.memory.get(route)
    return stored.value.baseline if stored else None


def held_topics(snapshot: Snapshot) -> Set[TopicKey]:
    """Topics of which somebody is told to hold a partition, or says so."""
    told = (stored.value.entries for stored in snapshot.assignments.values())
    said = (stored.value.entries for stored in snapshot.current.values())
    return {partition.key for entries in (*told, *said) for partition in entries}


class _Decider:
    """The scratch pad of one decision."""

    def __init__(
        self,
        rules: Sequence[TopicRules],
        snapshot: Snapshot,
        clusters: Mapping[str, Topics | None],
        suspicions: Unconfirmed,
        now_s: float,
    ) -> None:
        self._rules = rules
        self._snapshot = snapshot
        self._clusters = clusters
        self._before = suspicions
        self._now_s = now_s
        self._suspicions: dict[TopicKey, tuple[str, float]] = {}
        self._refused: dict[TopicKey, str] = {}
        self._copied: dict[ClusterTopic, TopicKey] = copies_by_target(
            {key: stored.value for key, stored in snapshot.topics.items()}
        )

    def run(self) -> TopicDecision:
        baselines = {
            rules.route: baseline
            for rules in self._rules
            if rules.auto and (baseline := self._baseline(rules)) is not None
        }
        changes = [
            *(change for rules in self._rules for change in self._of_whitelisted(rules)),
            *(change for rules in self._rules for change in self._of_new(rules)),
        ]
        return TopicDecision(tuple(changes), self._suspicions, self._refused, baselines)

    @cached_property
    def _held(self) -> Set[TopicKey]:
        """Looked up at most once: it takes a walk over all that is held."""
        return held_topics(self._snapshot)

    # What is whitelisted.

    def _of_whitelisted(self, rules: TopicRules) -> Iterator[IntentChange]:
        source = self._clusters.get(rules.route.source)
        target = self._clusters.get(rules.route.target)
        for key, stored in sorted(self._snapshot.topics.items()):
            intent = stored.value
            if key.route != rules.route or intent.state is TopicState.DELETING:
                continue
            finding = _finding(key, intent, source, target)
            if finding is None:
                if key in self._before:
                    self._suspicions[key] = self._before[key]
            elif finding != intent.stopped:
                if self._is_confirmed(key, finding):
                    kind, why = ("stopped", finding) if finding else ("resumed", "as it was before")
                    changed = replace(intent, stopped=finding)
                    yield IntentChange(key, changed, stored.version, kind, why)
            elif intent.stopped:
                yield from self._followed(rules, key, stored.version, intent, source)
            else:
                yield from self._kept_up(rules, key, stored.version, intent, source, target)

    def _is_confirmed(self, key: TopicKey, finding: str) -> bool:
        before, since_s = self._before.get(key, (None, self._now_s))
        if before != finding:
            since_s = self._now_s
        self._suspicions[key] = (finding, since_s)
        return self._now_s - since_s >= CONFIRM_S

    def _followed(
        self,
        rules: TopicRules,
        key: TopicKey,
        version: int,
        intent: TopicIntent,
        source: Topics | None,
    ) -> Iterator[IntentChange]:
        """Go on with a recreated topic, if that is the policy: the worker then begins by it."""
        info = (source or {}).get(key.topic)
        recreated = _side("source topic", intent.source_topic_id, source, key.topic)
        if not (info and recreated and rules.adopts_recreated_topics):
            return
        if intent.whole and self._is_too_big(key, info):
            return
        if key in self._held:
            return
        adopted = replace(adopt_topics(intent, info, intent.target_topic_id), restarted=False)
        policy = rules.settings.on_gap
        yield IntentChange(
            key,
            adopted,
            version,
            "resumed",
            f"goes on with the new topic {info.topic_id} (on_gap: {policy})",
            target_partitions=adopted.partitions,
            source_partitions=info.partitions,
        )

    def _kept_up(
        self,
        rules: TopicRules,
        key: TopicKey,
        version: int,
        intent: TopicIntent,
        source: Topics | None,
        target: Topics | None,
    ) -> Iterator[IntentChange]:
        """Ids noted; then, since the target may refuse that, partitions added."""
        info = (source or {}).get(key.topic, TopicInfo(0))
        there = (target or {}).get(intent.target_topic or key.topic, TopicInfo(0))
        known = with_topic_ids(intent, info, there)
        grown = rules.auto_expand and known.whole and info.partitions > known.partitions
        if known != intent:
            yield IntentChange(key, known, version, "identified", "ids noted")
        elif grown and target is not None and not self._is_too_big(key, info):
            yield IntentChange(
                key,
                replace(intent, partitions=info.partitions),
                version,
                "expanded",
                f"the source has {info.partitions} partitions, not {intent.partitions}",
                target_partitions=info.partitions,
                source_partitions=info.partitions,
            )

    def _is_too_big(self, key: TopicKey, info: TopicInfo) -> bool:
        why = _why_too_big(info)
        if why:
            self._refused[key] = why
        return bool(why)

    # What is not whitelisted.

    def _baseline(self, rules: TopicRules) -> Mapping[str, str] | None:
        """What shall be remembered; None: nothing can be told now."""
        source = self._clusters.get(rules.route.source)
        if source is None or self._has_garbled_memory(rules.route):
            return None
        whitelisted = {key.topic for key in self._snapshot.topics if key.route == rules.route}
        before = baseline_of(self._snapshot, rules.route)
        if before is None:
            before = {topic: info.topic_id[:ID_SHOWN] for topic, info in source.items()}
        return {
            topic: id
            for topic, id in before.items()
            if topic not in whitelisted and _is_of(id, source.get(topic))
        }

    def _has_garbled_memory(self, route: Route) -> bool:
        end = f"/memory/{route}"
        return any(finding.path.endswith(end) for finding in self._snapshot.unreadable_nodes)

    def _of_new(self, rules: TopicRules) -> Iterator[IntentChange]:
        """Younger topics first: of those every second counts."""
        baseline = baseline_of(self._snapshot, rules.route)
        source = self._clusters.get(rules.route.source)
        target = self._clusters.get(rules.route.target)
        if rules.auto is None or baseline is None or source is None or target is None:
            return
        if self._has_garbled_memory(rules.route):
            return
        for topic in sorted(source, key=lambda topic: (topic in baseline, topic)):
            key = TopicKey(rules.route, topic)
            if not self._is_candidate(rules.auto, key, source[topic]):
                continue
            name = rules.settings.target_topic(topic)
            why = _why_too_big(source[topic]) or self._why_refused(rules.auto, key, name, target)
            if why:
                self._refused[key] = why
                continue
            self._copied[rules.route.target, name] = key
            yield _whitelisted(
                key, name, source[topic], old=_is_of(baseline.get(topic), source[topic])
            )

    def _is_candidate(self, auto: AutoWhitelist, key: TopicKey, info: TopicInfo) -> bool:
        seen = self._snapshot
        return (
            not info.trouble
            and key not in seen.topics
            and key not in seen.unreadable_topics
            and key not in seen.blacklist
            and auto.matches(key.topic)
        )

    def _why_refused(self, auto: AutoWhitelist, key: TopicKey, name: str, target: Topics) -> str:
        naming = [(rules.route, rules.settings) for rules in self._rules]
        back = loop_reason(key.route, key.topic, self._copied, naming)
        if back:
            return f"would go round in circles: {back}"
        if len(name) > MAX_TOPIC_NAME:
            return f"the name of its copy would have {len(name)} of {MAX_TOPIC_NAME} characters"
        taken = self._copied.get((key.route.target, name))
        if taken is not None:
            return f"{name} on {key.route.target} is already the target of {taken}"
        if auto.require_target and name not in target:
            return f"the target has no topic {name}, and the route requires it"
        return ""


def _finding(
    key: TopicKey, intent: TopicIntent, source: Topics | None, target: Topics | None
) -> str | None:
    """Why the topic must stop, "" if it need not; None if the clusters cannot tell."""
    name = intent.target_topic or key.topic
    sides = (
        _side("source topic", intent.source_topic_id, source, key.topic),
        _side(f"target topic {name}", intent.target_topic_id, target, name),
    )
    wrong = next((side for side in sides if side), "")
    return wrong or (None if None in sides else "")


def _side(what: str, id: str, topics: Topics | None, name: str) -> str | None:
    """The same of one cluster. A target that nobody ever saw there is not *deleted*."""
    info = topics.get(name) if topics is not None else None
    if topics is None or (info is not None and info.trouble):
        return None
    if info is None:
        return f"{what} was deleted" if id or what == "source topic" else ""
    if id and info.topic_id and id != info.topic_id:
        return f"{what} was recreated (was {id}, is {info.topic_id})"
    return ""


def _why_too_big(info: TopicInfo) -> str:
    """Its nodes could not be written."""
    if info.partitions <= MAX_PARTITIONS:
        return ""
    return f"it has {info.partitions} partitions, above the {MAX_PARTITIONS} that a topic may have"


def _is_of(id: str | None, info: TopicInfo | None) -> bool:
    """Whether a baseline's topic is the one that is there now."""
    if id is None or info is None:
        return False
    return bool(info.trouble) or info.topic_id.startswith(id)


def _whitelisted(key: TopicKey, name: str, info: TopicInfo, *, old: bool) -> IntentChange:
    intent = TopicIntent(
        partitions=info.partitions,
        initial_partitions=info.partitions if old else 0,
        target_topic=name,
        source_topic_id=info.topic_id,
        whole=True,
        restarted=True,
    )
    return IntentChange(
        key,
        intent,
        None,
        "whitelisted",
        f"{info.partitions} partitions, {'as the route starts' if old else 'from its first record'}",
        target_partitions=info.partitions,
        source_partitions=info.partitions,
    )


def with_topic_ids(intent: TopicIntent, source: TopicInfo, target: TopicInfo) -> TopicIntent:
    """With the ids that were missing. One that had none says nothing of its size either."""
    known = replace(intent, target_topic_id=intent.target_topic_id or target.topic_id)
    if known.source_topic_id or not source.topic_id:
        return known
    whole = intent.partitions >= source.partitions
    return replace(known, source_topic_id=source.topic_id, whole=whole)


def adopt_topics(intent: TopicIntent, source: TopicInfo, target_id: str) -> TopicIntent:
    """Go on with the topics that are there now, each partition from its first record."""
    count = source.partitions if intent.whole else min(intent.partitions, source.partitions)
    return replace(
        intent,
        partitions=count,
        initial_partitions=0,
        had_position=frozenset(),
        source_topic_id=source.topic_id,
        target_topic_id=target_id,
        restarted=True,
        stopped="",
    )


def route_memory(
    snapshot: Snapshot,
    route: Route,
    *,
    baseline: Mapping[str, str] | None,
    refused: Mapping[str, str],
) -> RouteMemory | None:
    """What to write for a route, None if that is what is there."""
    stored = snapshot.memory.get(route)
    before = stored.value if stored else RouteMemory()
    kept = before.baseline if baseline is None else baseline
    after = RouteMemory(baseline=kept, refused=refused)
    return None if after == before else after
