"""Import of a topic from an export: the intent becomes what the export has, as far as it can.

What may be restored onto an existing topic is decided in `core.reporting.backup`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ureplicator_common.config.route import RouteConfig
from ureplicator_common.contents import TopicIntent
from ureplicator_common.coordination import Check, Coordination, Node, Operation, Set
from ureplicator_common.coordination.edit import Edit
from ureplicator_common.model import TopicKey
from ureplicator_common.znodes import UnreadableContent, decode_ideal, encode_intent
from ureplicator_controller.api.services.blacklist_nodes import BlacklistNodes
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.api.services.intents import IntentStore
from ureplicator_controller.api.services.topic_checks import (
    check_partition_count,
    require_not_deleting,
)
from ureplicator_controller.api.services.topic_clusters import TopicClusters
from ureplicator_controller.core.reporting.backup import (
    RestoredIntent,
    restored_intent,
    was_never_held,
)
from ureplicator_controller.core.topics.reconcile import held_topics


@dataclass(frozen=True, slots=True)
class Restoration:
    """The intent before and after, whether the topic was removed from the blacklist, and warnings
    about the target of a new one."""

    before: TopicIntent | None
    made: RestoredIntent
    unlisted: bool
    warnings: tuple[str, ...] = ()


class TopicImporter:
    """Restores topics. Every call may raise Problem, Unavailable and ClusterUnavailable."""

    def __init__(
        self,
        *,
        coordination: Coordination,
        fleet: FleetCache,
        intents: IntentStore,
        clusters: TopicClusters,
        blacklist: BlacklistNodes,
        new_id: Callable[[], str],
    ) -> None:
        self._coordination = coordination
        self._fleet = fleet
        self._intents = intents
        self._clusters = clusters
        self._blacklist = blacklist
        self._new_id = new_id

    def restore(
        self, config: RouteConfig, topic: str, wanted: TopicIntent, *, unlist: bool, dry_run: bool
    ) -> Restoration:
        """Restore a topic; `unlist`: remove it from the blacklist, too."""
        key = TopicKey(config.route, topic)
        before = self._intents.find(key)
        if before is not None:
            require_not_deleting(key, before)
        named = wanted.target_topic or (before.target_topic if before else "")
        wanted = replace(wanted, target_topic=self._clusters.target_topic(config, topic, named))
        made, _ = self._restored(key, before, wanted)
        unlisted = unlist and bool(self._blacklist.remove(key))
        done = Restoration(before, made, unlisted)
        self._prepare_target(key, before, made.intent, dry_run=dry_run)
        if dry_run:
            return done
        if before is None:
            intent = replace(made.intent, request_id=self._new_id())
            self._intents.create(key, intent, keep_blacklisted=not unlist)
        else:
            done = self._restore_existing(key, wanted, done, unlist=unlist)
        self._fleet.settle(self._fleet.paths.blacklisted(key))
        if before is not None:
            return done
        return replace(done, warnings=self._clusters.limit_warnings(key, wanted.target_topic))

    def _prepare_target(
        self, key: TopicKey, before: TopicIntent | None, after: TopicIntent, *, dry_run: bool
    ) -> None:
        if before is not None and after.partitions <= before.partitions:
            return
        source = self._clusters.find_in_source(key)
        check_partition_count(source, after.partitions, field="partitions")
        if not dry_run:
            target_topic = after.target_topic or key.topic
            self._clusters.ensure_target(key, target_topic, wanted=after.partitions, source=source)

    def _restore_existing(
        self, key: TopicKey, wanted: TopicIntent, done: Restoration, *, unlist: bool
    ) -> Restoration:
        """Restore a topic that is whitelisted; a worker may hold it since it was first read."""
        paths, request_id = self._fleet.paths, self._new_id()

        def decide(node: Node | None) -> Edit[Restoration]:
            before = require_not_deleting(key, self._intents.decoded(key, node))
            made, checks = self._restored(key, before, wanted)
            result = replace(done, made=made)
            unlisting = self._blacklist.remove(key) if unlist else ()
            if node is None or made.intent == before:
                return Edit(result, unlisting)
            data = encode_intent(replace(made.intent, request_id=request_id))
            written = Set(paths.topic(key), data, node.stat.version)
            return Edit(result, (written, *checks, *unlisting))

        also = (paths.ideal_topic(key), paths.blacklisted(key))
        return self._intents.edit(key, decide, request_id=request_id, also=also)

    def _restored(
        self, key: TopicKey, before: TopicIntent | None, wanted: TopicIntent
    ) -> tuple[RestoredIntent, Sequence[Operation]]:
        """The restored intent, and the checks under which it may be written."""
        path = self._fleet.paths.ideal_topic(key)
        node = self._coordination.get(path)
        try:
            ideal = decode_ideal(node.data) if node else None
        except UnreadableContent:
            return restored_intent(before, wanted, key.topic, never_held=False), ()
        is_held = key in held_topics(self._fleet.current().snapshot)
        never_held = not is_held and was_never_held(before, ideal)
        checks = (Check(path, node.stat.version),) if node else ()
        return restored_intent(before, wanted, key.topic, never_held=never_held), checks
