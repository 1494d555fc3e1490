"""A topic on its two clusters: looked up at the source, named and created at the target."""

from __future__ import annotations

from collections.abc import Mapping

from ureplicator_common.config.route import RouteConfig
from ureplicator_common.kafka import ClusterUnavailable, TopicInfo
from ureplicator_common.model import RouteSettings, TopicKey
from ureplicator_controller.api.http.models.requests import TopicPath
from ureplicator_controller.api.http.problems import conflict, not_found
from ureplicator_controller.api.services.clusters import ClusterTopics
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.api.services.topic_checks import target_conflict
from ureplicator_controller.core.topics.loops import copies_by_target, origins
from ureplicator_controller.engines.target_limits import topic_warnings
from ureplicator_controller.engines.target_topics import ensure_target


class TopicClusters:
    """Source and target of all routes. Every call may raise Problem and ClusterUnavailable."""

    def __init__(self, *, fleet: FleetCache, clusters: Mapping[str, ClusterTopics]) -> None:
        self._fleet = fleet
        self._clusters = clusters

    def find_in_source(self, key: TopicKey) -> TopicInfo:
        info = self._clusters[key.route.source].admin().find([key.topic]).get(key.topic)
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
        self, key: TopicKey, target_topic: str, *, wanted: int, source: TopicInfo
    ) -> bool:
        """Create the target topic, or expand it to `wanted` partitions. True if it was created."""
        return ensure_target(
            target_topic,
            wanted=wanted,
            source_topic=key.topic,
            source_partitions=source.partitions,
            source=self._clusters[key.route.source].admin(),
            target=self._clusters[key.route.target].admin(),
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
        """Name of the target topic: `named`, or by the route's naming as published by the leader
        (else as configured here). Raises Problem if that topic is another one's target, or its
        origin."""
        snapshot = self._fleet.current().snapshot
        published = snapshot.routes.get(config.route)
        settings: RouteSettings = published.value if published else config.settings
        name = TopicPath(topic=named or settings.target_topic(topic)).topic
        key = TopicKey(config.route, topic)
        copied = copies_by_target(
            {other: stored.value for other, stored in snapshot.topics.items() if other != key}
        )
        if (config.target, name) in copied:
            raise target_conflict(copied[config.target, name], name)
        if (config.target, name) in origins(config.source, topic, copied):
            raise conflict(
                f"replication loop: {topic} on {config.source} is a copy of {name} on"
                f" {config.target}, its records would be copied back",
                field="topic",
                hint="give the target topic another name by the route's naming",
            )
        return name
