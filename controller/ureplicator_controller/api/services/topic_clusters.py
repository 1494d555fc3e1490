"""A topic on its two clusters: looked up at the source, named and created at the target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from ureplicator_common.config.route import RouteConfig
from ureplicator_common.kafka import ClusterUnavailable, TopicInfo, TopicRefused
from ureplicator_common.model import Route, TopicKey
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_controller.api.http.models.requests import TopicPath
from ureplicator_controller.api.http.problems import conflict, not_found
from ureplicator_controller.api.services.clusters import ClusterTopics
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.api.services.topic_checks import target_conflict
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.syncs.topics import route_settings
from ureplicator_controller.core.topics.loops import copies_by_target, origins
from ureplicator_controller.core.topics.partition_counts import may_raise, narrow_target
from ureplicator_controller.engines.claims.between_fleets import ClaimRefused, FleetClaims
from ureplicator_controller.engines.target_limits import (
    TOPIC_TIMEOUT_S,
    check_limits,
    topic_warnings,
)
from ureplicator_controller.engines.target_topics import TargetTopic, ensure_target


class TargetNames:
    """Names of target topics, judged by the topics of one snapshot.

    It costs a pass over all topics to make: requests about many topics share one.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._copied = copies_by_target(snapshot)

    def target_topic(self, config: RouteConfig, topic: str, named: str = "") -> str:
        """Name of the target topic: `named`, or by the route's naming as published by the leader
        (else as configured here). Raises Problem if that topic is another one's target, or its
        origin."""
        settings = route_settings(self._snapshot, config.route, config.settings)
        name = TopicPath(topic=named or settings.target_topic(topic)).topic
        key = TopicKey(config.route, topic)
        owner = self._copied.get((config.target, name), key)
        if owner != key:
            raise target_conflict(owner, name)
        if (config.target, name) in origins(config.source, topic, self._copied):
            raise conflict(
                f"replication loop: {topic} on {config.source} is a copy of {name} on"
                f" {config.target}, its records would be copied back",
                field="topic",
                hint="give the target topic another name by the route's naming",
            )
        return name


class TopicClusters:
    """Source and target of all routes. Every call may raise Problem and ClusterUnavailable. `replication`:
    replicas of target topics that are created, by route."""

    def __init__(
        self,
        *,
        fleet: FleetCache,
        clusters: Mapping[str, ClusterTopics],
        replication: Mapping[Route, int],
        claims: FleetClaims,
    ) -> None:
        self._claims = claims
        self._fleet = fleet
        self._clusters = clusters
        self._replication = replication

    def find_in_source(self, key: TopicKey) -> TopicInfo:
        return self.find_all_in_source(key.route, [key.topic])[key.topic]()

    def find_all_in_source(
        self, route: Route, topics: Sequence[str]
    ) -> Mapping[str, Callable[[], TopicInfo]]:
        """Topics at the source, by one request. What is found of a topic, or its Problem, comes with the
        call of its value."""
        found = self._clusters[route.source].admin().find(topics) if topics else {}
        return {
            topic: partial(self._found, TopicKey(route, topic), found.get(topic))
            for topic in topics
        }

    def _found(self, key: TopicKey, info: TopicInfo | None) -> TopicInfo:
        if info is not None and info.error:
            raise ClusterUnavailable(f"{key.route.source}: {key.topic}: {info.error}")
        if info is None:
            raise not_found(
                f"topic {key.topic} does not exist on the source cluster {key.route.source}",
                field="topic",
                hint="create the topic there first",
            )
        return info

    def ensure_target(
        self,
        key: TopicKey,
        target_topic: str,
        *,
        wanted: int,
        source: TopicInfo,
        known: TopicIntent | None = None,
        raise_partitions: bool = False,
        giver: str = "",
    ) -> TargetTopic:
        """Claim the target topic; create it, or expand it to `wanted` partitions, if it may be.

        `known`, `raise_partitions`: as of the function of this name. `giver`: a fleet that gives the target
        topic up.
        """
        with _refused_as_conflict():
            self._claims.take(key, target_topic, giver=giver)
        return ensure_target(
            target_topic,
            wanted=wanted,
            source_topic=key.topic,
            source_partitions=source.partitions,
            source=self._clusters[key.route.source].admin(),
            target=self._clusters[key.route.target].admin(),
            replication_factor=self._replication[key.route],
            known=known,
            raise_partitions=raise_partitions,
        )

    def planned_target(
        self,
        key: TopicKey,
        target_topic: str,
        *,
        wanted: int,
        known: TopicIntent | None,
        giver: str = "",
    ) -> TargetTopic:
        """Target topic that `ensure_target` would return, without an id if it would be created. Nothing is
        written. Raises TopicRefused."""
        with _refused_as_conflict():
            self._claims.check(key, target_topic, giver=giver)
        found = self._clusters[key.route.target].admin().find([target_topic]).get(target_topic)
        if found and found.partitions < wanted and not may_raise(known, found):
            raise TopicRefused(narrow_target(target_topic, found, wanted))
        return TargetTopic(found.topic_id if found else "", is_created=found is None)

    def all_limit_warnings(
        self, route: Route, targets: Mapping[str, str]
    ) -> tuple[Mapping[str, tuple[str, ...]], str]:
        """`limit_warnings` of several topics (source -> target topic) by topic, by two requests; and why
        topics were not checked."""
        return check_limits(
            targets,
            source=self._clusters[route.source].admin(),
            target=self._clusters[route.target].admin(),
            timeout_s=TOPIC_TIMEOUT_S,
        )

    def limit_warnings(self, key: TopicKey, target_topic: str) -> tuple[str, ...]:
        """Limits by which the target topic refuses records of the source, or why they were not checked."""
        return topic_warnings(
            key.topic,
            target_topic,
            source=self._clusters[key.route.source].admin(),
            target=self._clusters[key.route.target].admin(),
        )

    def target_topic(self, config: RouteConfig, topic: str, named: str = "") -> str:
        """The target topic as of `TargetNames`, by the topics of now."""
        return TargetNames(self._fleet.current().snapshot).target_topic(config, topic, named)


@contextmanager
def _refused_as_conflict() -> Iterator[None]:
    """Raise Problem for a target topic of another fleet."""
    try:
        yield
    except ClaimRefused as refused:
        raise conflict(
            str(refused),
            field="topic",
            hint="stop it there, or rename the target here; if that fleet is gone, DELETE /claims/{topic}",
        ) from refused
