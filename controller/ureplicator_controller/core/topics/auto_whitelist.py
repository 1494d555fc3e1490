"""Auto-whitelisting: new source topics that match a route's patterns, and the refused ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ureplicator_common.kafka import TopicInfo
from ureplicator_common.model import Route, RouteSettings, TopicKey
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_common.znodes.topics import MAX_TOPIC_PARTITIONS
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.topics.baseline import (
    is_memory_unreadable,
    is_same_topic,
    stored_baseline,
)
from ureplicator_controller.core.topics.loops import ClusterTopic, loop_reason
from ureplicator_controller.core.topics.rules import AutoWhitelist, TopicRules
from ureplicator_controller.core.topics.topic_ids import TopicInfos

MAX_TOPIC_NAME = 249
"""Kafka's limit in characters."""
_HEARTBEATS = AutoWhitelist(())


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A source topic to whitelist, or one that was refused. `refusal` "": it may be whitelisted.

    `is_old`: it is in the baseline, so it starts at the route's `start`.
    """

    key: TopicKey
    target_topic: str
    info: TopicInfo
    is_old: bool
    refusal: str = ""

    def intent(self) -> TopicIntent:
        """Intent to create."""
        return TopicIntent(
            partitions=self.info.partitions,
            initial_partitions=self.info.partitions if self.is_old else 0,
            target_topic=self.target_topic,
            source_topic_id=self.info.topic_id,
            whole=True,
            restarted=True,
        )


class AutoWhitelisting:
    """Whitelisting of new topics on all routes, in one decision.

    `copied`: topics on target clusters, with what is copied to them; each new topic is added.
    """

    def __init__(
        self,
        *,
        snapshot: Snapshot,
        naming: Iterable[tuple[Route, RouteSettings]],
        copied: dict[ClusterTopic, TopicKey],
    ) -> None:
        self._snapshot = snapshot
        self._naming = tuple(naming)
        self._copied = copied

    def new_topics(
        self, rules: TopicRules, source: TopicInfos | None, target: TopicInfos | None
    ) -> Iterator[NewTopic]:
        """Matching topics of one route. Those not in the baseline come first: they lose most by waiting."""
        if source is not None and target is not None:
            yield from self._heartbeats(rules, source, target)
        baseline = stored_baseline(self._snapshot, rules.route)
        if rules.auto is None or baseline is None or source is None or target is None:
            return
        if is_memory_unreadable(self._snapshot, rules.route):
            return
        for topic in sorted(source, key=lambda topic: (topic in baseline, topic)):
            key = TopicKey(rules.route, topic)
            if rules.auto.matches(topic) and self._is_candidate(key, source[topic]):
                yield self._judge(rules, rules.auto, key, source[topic], baseline, target)

    def _heartbeats(
        self, rules: TopicRules, source: TopicInfos, target: TopicInfos
    ) -> Iterator[NewTopic]:
        """The topic of the route's own heartbeats, copied from its first record."""
        key, info = TopicKey(rules.route, rules.heartbeat_topic), source.get(rules.heartbeat_topic)
        if info is not None and self._is_candidate(key, info):
            yield self._judge(rules, _HEARTBEATS, key, info, {}, target)

    def _is_candidate(self, key: TopicKey, info: TopicInfo) -> bool:
        snapshot = self._snapshot
        return (
            not info.error
            and key not in snapshot.topics
            and key not in snapshot.unreadable_topics
            and key not in snapshot.blacklist
        )

    def _judge(
        self,
        rules: TopicRules,
        auto: AutoWhitelist,
        key: TopicKey,
        info: TopicInfo,
        baseline: Mapping[str, str],
        target: TopicInfos,
    ) -> NewTopic:
        name = rules.settings.target_topic(key.topic)
        refusal = size_refusal(info) or self._refusal(auto, key, name, target)
        if not refusal:
            self._copied[rules.route.target, name] = key
        is_old = is_same_topic(baseline.get(key.topic), info)
        return NewTopic(key, name, info, is_old, refusal)

    def _refusal(self, auto: AutoWhitelist, key: TopicKey, name: str, target: TopicInfos) -> str:
        """Reason why a topic must not be whitelisted; "" if it may be."""
        loop = loop_reason(key.route, key.topic, self._copied, self._naming)
        if loop:
            return f"replication loop: {loop}"
        if len(name) > MAX_TOPIC_NAME:
            return f"its target topic's name would have {len(name)} of {MAX_TOPIC_NAME} characters"
        taken = self._copied.get((key.route.target, name))
        if taken is not None:
            return f"{name} on {key.route.target} is already the target of {taken}"
        if auto.require_target and name not in target:
            return f"the target has no topic {name}, and the route requires it"
        return ""


def size_refusal(info: TopicInfo) -> str:
    """Reason why a topic is too big for its nodes; "" if it is not."""
    if info.partitions <= MAX_TOPIC_PARTITIONS:
        return ""
    return f"it has {info.partitions} partitions, more than the maximum of {MAX_TOPIC_PARTITIONS}"
