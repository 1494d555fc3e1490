"""Import of a topic from an export: the intent becomes what the export has, as far as it can.

What may be imported onto an existing topic is decided in `core.reporting.export`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ureplicator_common.config.route import RouteConfig
from ureplicator_common.coordination import Check, Coordination, Node, Operation
from ureplicator_common.coordination import Set as SetNode
from ureplicator_common.coordination.edit import Edit
from ureplicator_common.kafka import TopicInfo
from ureplicator_common.model import TopicKey, TopicState
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_common.znodes.codec import UnreadableContent
from ureplicator_common.znodes.topics import decode_ideal, encode_intent
from ureplicator_controller.api.services.blacklist_nodes import BlacklistNodes
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.api.services.intents import IntentStore
from ureplicator_controller.api.services.topic_checks import (
    check_numbers,
    check_partition_count,
    require_changeable,
)
from ureplicator_controller.api.services.topic_clusters import TargetNames, TopicClusters
from ureplicator_controller.core.reporting.export import (
    ImportedIntent,
    imported_intent,
    wanted_intent,
    was_never_held,
)
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.topics.reconcile import held_topics
from ureplicator_controller.engines.target_topics import TargetTopic


@dataclass(frozen=True, slots=True)
class Picture:
    """The state that the imports of one request are judged by. What is written is checked in ZooKeeper."""

    snapshot: Snapshot
    names: TargetNames
    held: Set[TopicKey]


@dataclass(frozen=True, slots=True)
class ImportedTopic:
    """The intent before and after, whether the topic was removed from the blacklist, and warnings
    about the target of a new one. A new intent is shown as a dry run knows it: without the id of a target
    topic that was not given."""

    before: TopicIntent | None
    made: ImportedIntent
    unlisted: bool
    warnings: tuple[str, ...] = ()


class TopicImporter:
    """Imports topics. Every call may raise Problem, Unavailable and ClusterUnavailable."""

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

    def picture(self) -> Picture:
        """The fleet now, for the imports of one request."""
        snapshot = self._fleet.current().snapshot
        return Picture(snapshot, TargetNames(snapshot), held_topics(snapshot))

    def import_topic(
        self,
        config: RouteConfig,
        topic: str,
        given: Mapping[str, Any],
        *,
        unlist: bool,
        dry_run: bool,
        giver: str = "",
    ) -> ImportedTopic:
        """Bring a topic to the fields that are given; `unlist`: remove it from the blacklist, too; `giver`:
        the fleet that gives it up."""
        key = TopicKey(config.route, topic)
        done = self.import_one(
            config,
            topic,
            given,
            picture=self.picture(),
            source=partial(self._clusters.find_in_source, key),
            unlist=unlist,
            dry_run=dry_run,
            giver=giver,
        )
        if dry_run:
            return done
        self._fleet.settle(self._fleet.paths.blacklisted(key))
        if done.before is not None:
            return done
        warnings = self._clusters.limit_warnings(key, done.made.intent.target_topic)
        return replace(done, warnings=warnings)

    def without_writing(
        self, key: TopicKey, given: Mapping[str, Any], *, picture: Picture, unlist: bool
    ) -> ImportedTopic | None:
        """The outcome for a topic that is already as is wanted, as far as it can be; else None."""
        stored = picture.snapshot.topics.get(key)
        if stored is None or stored.value.state is TopicState.DELETING:
            return None
        before, ideal = stored.value, picture.snapshot.ideal.get(key)
        placed = ideal.value if ideal is not None else None
        never_held = key not in picture.held and was_never_held(before, placed)
        wanted = wanted_intent(before, given, None)
        made = imported_intent(before, wanted, never_held=never_held)
        is_unlisted = unlist and key in picture.snapshot.blacklist
        return None if is_unlisted or made.intent != before else ImportedTopic(before, made, False)

    def import_one(
        self,
        config: RouteConfig,
        topic: str,
        given: Mapping[str, Any],
        *,
        picture: Picture,
        source: Callable[[], TopicInfo],
        unlist: bool,
        dry_run: bool,
        giver: str = "",
    ) -> ImportedTopic:
        """Import one of several topics, without waiting for the cache, and without warnings.

        `source`: the topic at the source; it may raise.
        """
        key = TopicKey(config.route, topic)
        before = self._intents.find(key)
        if before is not None:
            require_changeable(key, before)
        named = given.get("target_topic") or (before.target_topic if before is not None else "")
        given = {**given, "target_topic": picture.names.target_topic(config, topic, named)}
        wanted = wanted_intent(before, given, source() if before is None else None)
        check_numbers(wanted)
        made, _ = self._imported(key, before, wanted, picture)
        unlisted = unlist and bool(self._blacklist.remove(key))
        prepare = partial(
            self._prepare_target, key, made.intent, source, before, dry_run=dry_run, giver=giver
        )
        if before is not None:
            if made.intent.partitions > before.partitions:
                prepare()
            done = ImportedTopic(before, made, unlisted)
            if dry_run:
                return done
            return self._import_existing(key, given, done, picture, unlist=unlist)
        target = prepare()
        if "target_created" not in given:
            made = replace(made, intent=replace(made.intent, target_created=target.is_created))
        if not dry_run:
            target_id = made.intent.target_topic_id or target.topic_id
            intent = replace(made.intent, target_topic_id=target_id, request_id=self._new_id())
            self._intents.create(key, intent, keep_blacklisted=not unlist)
        return ImportedTopic(before, made, unlisted)

    def _prepare_target(
        self,
        key: TopicKey,
        wanted: TopicIntent,
        source: Callable[[], TopicInfo],
        known: TopicIntent | None,
        *,
        dry_run: bool,
        giver: str,
    ) -> TargetTopic:
        """The target topic as it is, or would be, now."""
        found = source()
        check_partition_count(found, wanted.partitions, field="partitions")
        if dry_run:
            return self._clusters.planned_target(
                key, wanted.target_topic, wanted=wanted.partitions, known=known, giver=giver
            )
        return self._clusters.ensure_target(
            key,
            wanted.target_topic,
            wanted=wanted.partitions,
            source=found,
            known=known,
            giver=giver,
        )

    def _import_existing(
        self,
        key: TopicKey,
        given: Mapping[str, Any],
        done: ImportedTopic,
        picture: Picture,
        *,
        unlist: bool,
    ) -> ImportedTopic:
        """Import a topic that is whitelisted; a worker may hold it since it was first read."""
        paths, request_id = self._fleet.paths, self._new_id()

        def decide(node: Node | None) -> Edit[ImportedTopic]:
            before = require_changeable(key, self._intents.decoded(key, node))
            wanted = wanted_intent(before, given, None)
            made, checks = self._imported(key, before, wanted, picture)
            result = replace(done, made=made)
            unlisting = self._blacklist.remove(key) if unlist else ()
            if node is None or made.intent == before:
                return Edit(result, unlisting)
            data = encode_intent(replace(made.intent, request_id=request_id))
            written = SetNode(paths.topic(key), data, node.stat.version)
            return Edit(result, (written, *checks, *unlisting))

        also = (paths.ideal_topic(key), paths.blacklisted(key))
        written = self._intents.written(key, request_id)
        return self._intents.editor.edit(paths.topic(key), decide, written, also=also, latest=False)

    def _imported(
        self, key: TopicKey, before: TopicIntent | None, wanted: TopicIntent, picture: Picture
    ) -> tuple[ImportedIntent, Sequence[Operation]]:
        """The imported intent, and the checks under which it may be written."""
        path = self._fleet.paths.ideal_topic(key)
        node = self._coordination.get(path)
        try:
            ideal = decode_ideal(node.data) if node else None
        except UnreadableContent:
            return imported_intent(before, wanted, never_held=False), ()
        never_held = key not in picture.held and was_never_held(before, ideal)
        checks = (Check(path, node.stat.version),) if node else ()
        return imported_intent(before, wanted, never_held=never_held), checks
