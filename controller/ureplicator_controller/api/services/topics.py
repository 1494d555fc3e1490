"""Intents: how a topic is whitelisted, grown, paused and let go of.

The order is always the same: look at the intent, look at the source, bring the target up to it,
then write the intent in one transaction that names the version it was decided on. A request that
stops in between leaves at most an empty, or a wider, target topic, which the same request finds
and uses when it is made again. The leader acts on what is written; a 2xx means that it is,
durably.

On a route with auto-whitelisting, what operators delete would be whitelisted again at once: so it
also goes on the route's blacklist, and adding it by hand takes it off.

Decisions here read ZooKeeper itself, never the tree cache. Each write carries a request id, so that one
whose answer was lost is read back and not made twice (see `coordination.edit`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from ureplicator_common.config.route import RouteConfig
from ureplicator_common.coordination import (
    Check,
    Coordination,
    Create,
    Node,
    Operation,
    Set,
    create_or_set,
    version_of,
)
from ureplicator_common.coordination.edit import Edit, edit
from ureplicator_common.kafka import ClusterUnavailable, TopicInfo
from ureplicator_common.model import RouteSettings, TopicIntent, TopicKey, TopicState
from ureplicator_common.znodes import UnreadableContent, decode_ideal, encode_intent
from ureplicator_controller.api.http.preconditions import ALWAYS, Precondition
from ureplicator_controller.api.http.problems import conflict, not_found, precondition_failed
from ureplicator_controller.api.http.request_models import TopicPath
from ureplicator_controller.api.services.blacklist import TopicBlacklist, already_set
from ureplicator_controller.api.services.clusters import ClusterTopics
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.api.services.topic_checks import (
    check_partition_count,
    read_intent,
    require_absent,
    require_not_deleting,
    require_not_shrinking,
    require_partition,
    require_whitelisted,
    target_conflict,
)
from ureplicator_controller.core.reporting.backup import (
    RestoredIntent,
    restored_intent,
    was_never_held,
)
from ureplicator_controller.core.topics.loops import copies_by_target, origins
from ureplicator_controller.core.topics.reconcile import held_topics
from ureplicator_controller.core.topics.topic_ids import adopt_topics
from ureplicator_controller.engines.target_claims import TargetTaken, claim
from ureplicator_controller.engines.target_topics import ensure_target

WRITE_TIMEOUT_S = 1.5
"""How long a contended write, or one of unknown outcome, is tried: an answer comes within 2 s."""

Change = Callable[[TopicIntent | None], TopicIntent | None]
"""Intent as it is -> as it shall be; the same, or None: nothing is written. May raise a Problem."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Restoration:
    """What was there, what it became, and whether it was taken off the blacklist."""

    before: TopicIntent | None
    made: RestoredIntent
    taken_off: bool


class TopicService:
    """Writes intents for all routes."""

    def __init__(
        self,
        *,
        coordination: Coordination,
        fleet: FleetCache,
        clusters: Mapping[str, ClusterTopics],
        new_id: Callable[[], str],
    ) -> None:
        self._coordination = coordination
        self._fleet = fleet
        self._clusters = clusters
        self._new_id = new_id
        self._listed = TopicBlacklist(coordination, fleet.paths)

    def find(self, key: TopicKey, condition: Precondition = ALWAYS) -> TopicIntent | None:
        """As ZooKeeper has it now. Raises Unavailable, Problem."""
        path = self._fleet.paths.topic(key)
        self._coordination.sync(path)
        node = self._coordination.get(path)
        if not condition.allows_if_present(node):
            raise precondition_failed(f"{key} was changed since")
        return read_intent(key, node) if node else None

    def add(
        self,
        config: RouteConfig,
        topic: str,
        partitions: int | None,
        condition: Precondition = ALWAYS,
    ) -> TopicIntent:
        """Whitelist a topic, with all of the source's partitions unless told otherwise."""
        key = TopicKey(config.route, topic)
        require_absent(key, self.find(key))
        if condition.must_be_there:
            raise precondition_failed(f"{key} is not whitelisted")
        source = self._find_in_source(key)
        wanted = source.partitions if partitions is None else partitions
        check_partition_count(source, wanted)
        target_topic = self._target_topic(config, topic)
        self._ensure_target(key, target_topic, wanted=wanted, source=source)
        intent = TopicIntent(
            partitions=wanted,
            initial_partitions=wanted,
            target_topic=target_topic,
            source_topic_id=source.topic_id,
            whole=wanted == source.partitions,
            restarted=True,
            request_id=self._new_id(),
        )
        self._create(key, intent)
        return intent

    def restore(
        self, config: RouteConfig, topic: str, wanted: TopicIntent, *, off: bool, dry_run: bool
    ) -> Restoration:
        """Make a topic what an export says (`core.backup`); `off`: take it off the blacklist, too."""
        key = TopicKey(config.route, topic)
        there = self.find(key)
        if there is not None:
            require_not_deleting(key, there)
        named = wanted.target_topic or (there.target_topic if there else "")
        wanted = replace(wanted, target_topic=self._target_topic(config, topic, named))
        made, _ = self._restored(key, there, wanted)
        done = Restoration(there, made, taken_off=off and bool(self._listed.off(key)))
        after = made.intent
        if there is None or after.partitions > there.partitions:
            source = self._find_in_source(key)
            check_partition_count(source, after.partitions, field="partitions")
            if not dry_run:
                target_topic = after.target_topic or topic
                self._ensure_target(key, target_topic, wanted=after.partitions, source=source)
        if dry_run:
            return done
        if there is None:
            self._create(key, replace(after, request_id=self._new_id()), listed=not off)
        else:
            done = self._restore(key, wanted, done, off=off)
        self._fleet.settle(self._fleet.paths.blacklisted(key))
        return done

    def _restore(
        self, key: TopicKey, wanted: TopicIntent, done: Restoration, *, off: bool
    ) -> Restoration:
        """Of a topic that is there; what was done, since it may have been held meanwhile."""
        paths, request_id = self._fleet.paths, self._new_id()

        def decide(node: Node | None) -> Edit[Restoration]:
            there = require_not_deleting(key, read_intent(key, node) if node else None)
            made, looked_at = self._restored(key, there, wanted)
            result = replace(done, made=made)
            unlisting = self._listed.off(key) if off else ()
            if node is None or made.intent == there:
                return Edit(result, unlisting)
            data = encode_intent(replace(made.intent, request_id=request_id))
            written = Set(paths.topic(key), data, node.stat.version)
            return Edit(result, (written, *looked_at, *unlisting))

        others = (paths.ideal_topic(key), paths.blacklisted(key))
        return self._edit(key, decide, request_id=request_id, also=others)

    def _restored(
        self, key: TopicKey, there: TopicIntent | None, wanted: TopicIntent
    ) -> tuple[RestoredIntent, Sequence[Operation]]:
        """And what must still be so when it is written."""
        path = self._fleet.paths.ideal_topic(key)
        node = self._coordination.get(path)
        try:
            ideal = decode_ideal(node.data) if node else None
        except UnreadableContent:
            return restored_intent(there, wanted, key.topic, never_held=False), ()
        is_held = key in held_topics(self._fleet.current().snapshot)
        never_held = not is_held and was_never_held(there, ideal)
        checks = (Check(path, node.stat.version),) if node else ()
        return restored_intent(there, wanted, key.topic, never_held=never_held), checks

    def _create(self, key: TopicKey, intent: TopicIntent, *, listed: bool = False) -> None:
        """`listed`: on the blacklist it stays, if it is there."""
        paths = self._fleet.paths
        path, claimed = paths.topic(key), paths.target(key.route.target, intent.target_topic)

        def decide(node: Node | None) -> Edit[None]:
            require_absent(key, read_intent(key, node) if node else None)
            try:
                claiming = claim(self._coordination, paths, key, intent.target_topic)
            except TargetTaken as taken:
                raise target_conflict(taken.owner, intent.target_topic) from taken
            unlisting = () if listed else self._listed.off(key)
            return Edit(None, (Create(path, encode_intent(intent)), claiming, *unlisting))

        self._coordination.ensure(f"{paths.topics}/{key.route}")
        self._coordination.ensure(f"{paths.targets}/{key.route.target}")
        others = (claimed, paths.blacklisted(key))
        self._edit(key, decide, request_id=intent.request_id, also=others)

    def expand(
        self, config: RouteConfig, topic: str, partitions: int, condition: Precondition = ALWAYS
    ) -> TopicIntent:
        """More partitions of a whitelisted topic; as many as there are is no change."""
        key = TopicKey(config.route, topic)
        there = require_not_shrinking(key, self.find(key, condition), partitions)
        whole = there.whole
        if there.partitions < partitions:
            source = self._find_in_source(key)
            whole = partitions == source.partitions
            check_partition_count(source, partitions)
            target_topic = there.target_topic or topic
            self._ensure_target(key, target_topic, wanted=partitions, source=source)

        def change(now: TopicIntent | None) -> TopicIntent:
            grown = require_not_shrinking(key, now, partitions)
            if grown.partitions == partitions:
                return grown
            return replace(grown, partitions=partitions, whole=whole)

        self._write(key, change, request_id=self._new_id(), condition=condition)
        return replace(there, partitions=partitions)

    def delete(
        self,
        config: RouteConfig,
        topic: str,
        *,
        forget_positions: bool = False,
        condition: Precondition = ALWAYS,
    ) -> TopicIntent:
        """Let go of a topic; the leader removes its nodes when nobody copies it any more.

        Forgetting its positions can be asked for until then, and cannot be taken back.
        """
        key = TopicKey(config.route, topic)
        there = require_whitelisted(key, self.find(key, condition))
        request_id = self._new_id()

        def deleting(now: TopicIntent) -> TopicIntent:
            forget = forget_positions or now.forget_positions
            return replace(now, state=TopicState.DELETING, forget_positions=forget)

        def change(now: TopicIntent | None) -> TopicIntent | None:
            return deleting(now) if now is not None else None

        def also() -> Sequence[Operation]:
            return self._listed.on(key, request_id) if config.auto_whitelist.enabled else ()

        self._write(key, change, request_id=request_id, condition=condition, also=also)
        return deleting(there)

    def pause(
        self, config: RouteConfig, topic: str, condition: Precondition = ALWAYS
    ) -> TopicIntent:
        """Let go of all of a topic and keep its positions. Idempotent."""
        return self._set_state(config, topic, TopicState.PAUSED, condition)

    def _set_state(
        self, config: RouteConfig, topic: str, state: TopicState, condition: Precondition
    ) -> TopicIntent:
        key = TopicKey(config.route, topic)

        def change(there: TopicIntent) -> TopicIntent:
            return replace(there, state=state)

        return self._change(key, change, condition)

    def resume(
        self, config: RouteConfig, topic: str, *, restart: bool, condition: Precondition = ALWAYS
    ) -> TopicIntent:
        """Resume a topic that was paused; `restart`: one that was stopped. Idempotent.

        Restarted is with the topics of that name that exist now, from their first records.
        """
        key = TopicKey(config.route, topic)
        there = require_not_deleting(key, self.find(key, condition))
        if not there.stopped:
            return self._set_state(config, topic, TopicState.ACTIVE, condition)
        if not restart:
            raise conflict(
                f"{topic} was stopped: {there.stopped}",
                field="restart",
                hint='to copy what is there now, from its first record: {"restart": true}',
            )
        if key in held_topics(self._fleet.current().snapshot):
            raise conflict(
                f"{topic} is just being let go", field="topic", hint="try again in some seconds"
            )
        source = self._find_in_source(key)
        wanted = adopt_topics(there, source, "").partitions
        check_partition_count(source, wanted, field="topic")
        self._ensure_target(key, there.target_topic or topic, wanted=wanted, source=source)

        def change(now: TopicIntent) -> TopicIntent:
            adopted = adopt_topics(now, source, "") if now.stopped else now
            return replace(adopted, state=TopicState.ACTIVE)

        return self._change(key, change, condition)

    def blacklist_topic(
        self, config: RouteConfig, topic: str, *, listed: bool, condition: Precondition = ALWAYS
    ) -> None:
        """A whole topic on or off the route's blacklist, whitelisted or not."""
        key = TopicKey(config.route, topic)
        if self.find(key, condition) is None and condition.must_be_there:
            raise precondition_failed(f"{key} is not whitelisted")
        self._listed.change(
            key, listed=listed, request_id=self._new_id(), timeout_s=WRITE_TIMEOUT_S
        )
        self._fleet.settle(self._fleet.paths.blacklisted(key))

    def restore_listed(self, key: TopicKey, *, dry_run: bool) -> bool:
        """Put a topic on the blacklist, unless it is there; whether it was."""
        path = self._fleet.paths.blacklisted(key)
        self._coordination.sync(path)
        there = self._coordination.get(path) is not None
        if not there and not dry_run:
            self._listed.change(
                key, listed=True, request_id=self._new_id(), timeout_s=WRITE_TIMEOUT_S
            )
            self._fleet.settle(path)
        return there

    def blacklist(
        self,
        config: RouteConfig,
        topic: str,
        number: int,
        *,
        listed: bool,
        condition: Precondition = ALWAYS,
    ) -> TopicIntent:
        """One partition on or off the blacklist."""
        key = TopicKey(config.route, topic)

        def change(there: TopicIntent) -> TopicIntent:
            require_partition(key, there, number)
            if (number in there.blacklisted) == listed:
                raise already_set(f"partition {number} of {topic}", listed=listed)
            return replace(there, blacklisted=there.blacklisted ^ {number})

        return self._change(key, change, condition)

    def _change(
        self,
        key: TopicKey,
        change: Callable[[TopicIntent], TopicIntent],
        condition: Precondition,
    ) -> TopicIntent:
        """Of a topic that is there and stays; the intent afterwards."""
        self._coordination.sync(self._fleet.paths.topic(key))

        def of_one_that_stays(now: TopicIntent | None) -> TopicIntent:
            return change(require_not_deleting(key, now))

        changed = self._write(
            key, of_one_that_stays, request_id=self._new_id(), condition=condition
        )
        assert changed is not None
        return changed

    def _write(
        self,
        key: TopicKey,
        change: Change,
        *,
        request_id: str,
        condition: Precondition,
        also: Callable[[], Sequence[Operation]] = tuple,
    ) -> TopicIntent | None:
        """The intent that `change` returned. `also`: further operations of the same transaction."""
        path = self._fleet.paths.topic(key)

        def decide(node: Node | None) -> Edit[TopicIntent | None]:
            there = read_intent(key, node) if node else None
            wanted = change(there)
            if wanted is None or wanted == there:
                return Edit(wanted)
            data = encode_intent(replace(wanted, request_id=request_id))
            return Edit(wanted, (create_or_set(path, data, version_of(node)), *also()))

        listed = (self._fleet.paths.blacklisted(key),)
        return self._edit(key, decide, request_id=request_id, condition=condition, also=listed)

    def _edit(
        self,
        key: TopicKey,
        decide: Callable[[Node | None], Edit[T]],
        *,
        request_id: str,
        condition: Precondition = ALWAYS,
        also: Sequence[str] = (),
    ) -> T:
        path = self._fleet.paths.topic(key)

        def applied(node: Node | None) -> bool:
            return node is not None and read_intent(key, node).request_id == request_id

        result = edit(
            self._coordination,
            path,
            decide,
            applied,
            timeout_s=WRITE_TIMEOUT_S,
            expected=condition.allows_if_present,
            also=also,
        )
        self._fleet.settle(path)
        return result

    def _find_in_source(self, key: TopicKey) -> TopicInfo:
        info = self._clusters[key.route.source].admin().find([key.topic]).get(key.topic)
        if info is not None and info.trouble:
            raise ClusterUnavailable(f"{key.route.source}: {key.topic}: {info.trouble}")
        if info is None:
            raise not_found(
                f"there is no topic {key.topic} on the source cluster {key.route.source}",
                field="topic",
                hint="create it there first",
            )
        return info

    def _ensure_target(
        self, key: TopicKey, target_topic: str, *, wanted: int, source: TopicInfo
    ) -> None:
        ensure_target(
            target_topic,
            wanted=wanted,
            source_topic=key.topic,
            source_partitions=source.partitions,
            source=self._clusters[key.route.source].admin(),
            target=self._clusters[key.route.target].admin(),
        )

    def _target_topic(self, config: RouteConfig, topic: str, named: str = "") -> str:
        """By the published settings, else by our own, unless named; refused if it is another
        topic's target."""
        snapshot = self._fleet.current().snapshot
        published = snapshot.routes.get(config.route)
        settings: RouteSettings = published.value if published else config.settings
        name = TopicPath(topic=named or settings.target_topic(topic)).topic
        wished = TopicKey(config.route, topic)
        copied = copies_by_target(
            {key: stored.value for key, stored in snapshot.topics.items() if key != wished}
        )
        if (config.target, name) in copied:
            raise target_conflict(copied[config.target, name], name)
        if (config.target, name) in origins(config.source, topic, copied):
            raise conflict(
                f"{topic} on {config.source} is a copy of {name} on {config.target}: its records"
                " would go round in circles",
                field="topic",
                hint="give it another name by the route's naming",
            )
        return name
