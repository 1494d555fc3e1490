"""Whitelisting of topics: intents are added, expanded, paused, resumed and deleted.

The order is always the same: read the intent, read the source, bring the target up to it, then write
the intent in one transaction that names the version it was decided on. A request that stops in between
leaves at most an empty or a wider target topic, which the same request finds and uses when it is
repeated. The leader acts on the written intent; a 2xx means that it is written durably.

On a route with auto-whitelisting, a deleted topic would be whitelisted again at once. So it is also
added to the route's blacklist, and adding it by hand removes it from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ureplicator_common.config.route import RouteConfig
from ureplicator_common.coordination import Operation
from ureplicator_common.model import TopicKey, TopicState
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_controller.api.http.preconditions import ALWAYS, Precondition
from ureplicator_controller.api.http.problems import conflict, precondition_failed
from ureplicator_controller.api.services.blacklist_nodes import BlacklistNodes
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.api.services.intents import IntentStore
from ureplicator_controller.api.services.topic_checks import (
    check_partition_count,
    require_absent,
    require_changeable,
    require_not_shrinking,
    require_whitelisted,
)
from ureplicator_controller.api.services.topic_clusters import TopicClusters
from ureplicator_controller.core.topics.reconcile import held_topics
from ureplicator_controller.core.topics.topic_ids import adopt_topics
from ureplicator_controller.engines.target_topics import TargetTopic, with_target


class TopicService:
    """Whitelists topics on all routes. Every call may raise Problem, Unavailable and
    ClusterUnavailable."""

    def __init__(
        self,
        *,
        fleet: FleetCache,
        intents: IntentStore,
        clusters: TopicClusters,
        blacklist: BlacklistNodes,
        new_id: Callable[[], str],
    ) -> None:
        self._fleet = fleet
        self._intents = intents
        self._clusters = clusters
        self._blacklist = blacklist
        self._new_id = new_id

    def add(
        self,
        config: RouteConfig,
        topic: str,
        partitions: int | None,
        condition: Precondition = ALWAYS,
        *,
        raise_partitions: bool = False,
    ) -> tuple[TopicIntent, TargetTopic]:
        """Whitelist a topic; None: with all partitions of the source. `raise_partitions`: a target topic that
        exists with fewer gets as many."""
        key = TopicKey(config.route, topic)
        require_absent(key, self._intents.find(key))
        if condition.must_exist:
            raise precondition_failed(f"{key} is not whitelisted")
        source = self._clusters.find_in_source(key)
        wanted = source.partitions if partitions is None else partitions
        check_partition_count(source, wanted)
        target_topic = self._clusters.target_topic(config, topic)
        target = self._clusters.ensure_target(
            key, target_topic, wanted=wanted, source=source, raise_partitions=raise_partitions
        )
        intent = TopicIntent(
            partitions=wanted,
            initial_partitions=wanted,
            target_topic=target_topic,
            source_topic_id=source.topic_id,
            target_topic_id=target.topic_id,
            target_created=target.is_created,
            whole=wanted == source.partitions,
            restarted=True,
            request_id=self._new_id(),
        )
        self._intents.create(key, intent)
        return intent, target

    def limit_warnings(
        self, config: RouteConfig, topic: str, added: TopicIntent
    ) -> tuple[str, ...]:
        """Warnings about the target of a topic that was added: the topic is copied in any case."""
        key = TopicKey(config.route, topic)
        warnings = self._clusters.limit_warnings(key, added.target_topic)
        published = self._fleet.current().snapshot.routes.get(key.route)
        if added.target_created or not (published and published.value.has_same_offsets(topic)):
            return warnings
        name = added.target_topic
        return (*warnings, f"target topic {name} exists: offsets are the same only if it is empty")

    def expand(
        self,
        config: RouteConfig,
        topic: str,
        partitions: int,
        condition: Precondition = ALWAYS,
        *,
        raise_partitions: bool = False,
    ) -> TopicIntent:
        """Copy more partitions of a whitelisted topic; the present number changes nothing.
        `raise_partitions`: as of `add`."""
        key = TopicKey(config.route, topic)
        before = require_not_shrinking(
            key, self._intents.find(key, condition), partitions, self._intents.known
        )
        whole = before.whole
        if before.partitions < partitions:
            source = self._clusters.find_in_source(key)
            whole = partitions == source.partitions
            check_partition_count(source, partitions)
            self._clusters.ensure_target(
                key,
                before.target_topic,
                wanted=partitions,
                source=source,
                known=before,
                raise_partitions=raise_partitions,
            )

        def change(now: TopicIntent) -> TopicIntent:
            require_not_shrinking(key, now, partitions)
            if now.partitions == partitions:
                return now
            return replace(now, partitions=partitions, whole=whole)

        self._intents.change(key, change, condition)
        return replace(before, partitions=partitions)

    def delete(
        self,
        key: TopicKey,
        *,
        is_auto_whitelisted: bool,
        forget_positions: bool = False,
        condition: Precondition = ALWAYS,
    ) -> TopicIntent:
        """Stop copying a topic; the leader removes its nodes when no worker holds it any more.

        Until then the deletion of its positions can be requested; that request cannot be revoked.
        """
        before = require_whitelisted(key, self._intents.find(key, condition), self._intents.known)

        def deleting(now: TopicIntent) -> TopicIntent:
            forget = forget_positions or now.forget_positions
            return replace(now, state=TopicState.DELETING, forget_positions=forget)

        def change(now: TopicIntent | None) -> TopicIntent | None:
            return deleting(now) if now is not None else None

        def listing(request_id: str) -> Sequence[Operation]:
            return self._blacklist.add(key, request_id) if is_auto_whitelisted else ()

        self._intents.write(key, change, condition, listing)
        return deleting(before)

    def pause(
        self, config: RouteConfig, topic: str, condition: Precondition = ALWAYS
    ) -> TopicIntent:
        """Release all partitions of a topic and keep their positions. Idempotent."""
        return self._set_state(config, topic, TopicState.PAUSED, condition)

    def resume(
        self, config: RouteConfig, topic: str, *, restart: bool, condition: Precondition = ALWAYS
    ) -> TopicIntent:
        """Resume a paused topic; with `restart`, one that the leader stopped. Idempotent.

        A restart copies the topics that have this name now, from their first records.
        """
        key = TopicKey(config.route, topic)
        before = require_changeable(key, self._intents.find(key, condition), self._intents.known)
        if not before.stopped:
            return self._set_state(config, topic, TopicState.ACTIVE, condition)
        if not restart:
            raise conflict(
                f"{topic} was stopped: {before.stopped}",
                field="restart",
                hint='to copy the present topic from its first record, send {"restart": true}',
            )
        return self._restart(key, before, condition)

    def _restart(self, key: TopicKey, stopped: TopicIntent, condition: Precondition) -> TopicIntent:
        if key in held_topics(self._fleet.current().snapshot):
            raise conflict(
                f"workers are still releasing {key.topic}",
                field="topic",
                hint="repeat the request in some seconds",
            )
        source = self._clusters.find_in_source(key)
        wanted = adopt_topics(stopped, source, "").partitions
        check_partition_count(source, wanted, field="topic")
        target = self._clusters.ensure_target(
            key, stopped.target_topic, wanted=wanted, source=source, known=stopped
        )

        def change(now: TopicIntent) -> TopicIntent:
            adopted = adopt_topics(now, source, target.topic_id) if now.stopped else now
            return replace(with_target(adopted, target), state=TopicState.ACTIVE)

        return self._intents.change(key, change, condition)

    def _set_state(
        self, config: RouteConfig, topic: str, state: TopicState, condition: Precondition
    ) -> TopicIntent:
        key = TopicKey(config.route, topic)
        return self._intents.change(key, lambda now: replace(now, state=state), condition)
