"""Topic intents in ZooKeeper: read, created and changed under a precondition.

Decisions read ZooKeeper itself, never the cached tree.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from ureplicator_common.coordination import (
    Check,
    Coordination,
    Create,
    Node,
    Operation,
    create_or_set,
    version_of,
)
from ureplicator_common.coordination.edit import Edit
from ureplicator_common.model import TopicKey
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_common.znodes.topics import decode_intent, encode_intent
from ureplicator_controller.api.http.preconditions import ALWAYS, Precondition
from ureplicator_controller.api.http.problems import precondition_failed
from ureplicator_controller.api.services.blacklist_nodes import BlacklistNodes
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.api.services.node_editor import NodeEditor, decoded
from ureplicator_controller.api.services.topic_checks import (
    require_absent,
    require_changeable,
    target_conflict,
)
from ureplicator_controller.engines.claims.within_fleet import TargetTaken, claim, ensure_parents

Change = Callable[[TopicIntent | None], TopicIntent | None]
"""Intent before -> after. The same intent, or None: nothing is written. May raise a Problem."""


class IntentStore:
    """Reads and writes `topics/<route>/<topic>`. Every call may raise Problem and Unavailable."""

    def __init__(
        self,
        *,
        coordination: Coordination,
        fleet: FleetCache,
        editor: NodeEditor,
        blacklist: BlacklistNodes,
        new_id: Callable[[], str],
    ) -> None:
        self._coordination = coordination
        self._fleet = fleet
        self._paths = fleet.paths
        self.editor = editor
        self._blacklist = blacklist
        self._new_id = new_id

    @property
    def known(self) -> Collection[TopicKey]:
        """Topics of the cached tree, to compare names with."""
        return self._fleet.current().snapshot.topics.keys()

    def find(self, key: TopicKey, condition: Precondition = ALWAYS) -> TopicIntent | None:
        """The intent as ZooKeeper has it now."""
        path = self._paths.topic(key)
        self._coordination.sync(path)
        node = self._coordination.get(path)
        if not condition.allows_if_present(node):
            raise precondition_failed(f"the intent of {key} has changed")
        return self.decoded(key, node)

    def required(self, key: TopicKey, condition: Precondition) -> Sequence[Operation]:
        """Operations that refuse a transaction unless the intent is still as the condition has it."""
        if condition == ALWAYS:
            return ()
        path = self._paths.topic(key)
        node = self._coordination.get(path)
        if node is None:
            raise precondition_failed(f"{key} is not whitelisted")
        if not condition.allows(node):
            raise precondition_failed(f"the intent of {key} has changed")
        return (Check(path, node.stat.version),)

    def create(self, key: TopicKey, intent: TopicIntent, *, keep_blacklisted: bool = False) -> None:
        """Create the intent with its claim on the target topic, and take the topic off the blacklist
        unless `keep_blacklisted`."""
        paths, path = self._paths, self._paths.topic(key)

        def decide(node: Node | None) -> Edit[None]:
            require_absent(key, self.decoded(key, node))
            try:
                claiming = claim(self._coordination, paths, key, intent.target_topic)
            except TargetTaken as taken:
                raise target_conflict(taken.owner, intent.target_topic) from taken
            unlisting = () if keep_blacklisted else self._blacklist.remove(key)
            return Edit(None, (Create(path, encode_intent(intent)), claiming, *unlisting))

        ensure_parents(self._coordination, paths, key)
        also = (paths.target(key.route.target, intent.target_topic), paths.blacklisted(key))
        written = self.written(key, intent.request_id)
        self.editor.edit(path, decide, written, also=also, latest=False)

    def change(
        self,
        key: TopicKey,
        change: Callable[[TopicIntent], TopicIntent],
        condition: Precondition,
    ) -> TopicIntent:
        """Change the intent of a topic that is not being deleted; returns the intent afterwards."""

        def checked(now: TopicIntent | None) -> TopicIntent:
            return change(require_changeable(key, now, self.known))

        changed = self.write(key, checked, condition)
        assert changed is not None
        return changed

    def write(
        self,
        key: TopicKey,
        change: Change,
        condition: Precondition,
        more: Callable[[str], Sequence[Operation]] = lambda request_id: (),
    ) -> TopicIntent | None:
        """The intent that `change` returned. `more`: further operations of the same transaction."""
        path, request_id = self._paths.topic(key), self._new_id()

        def decide(node: Node | None) -> Edit[TopicIntent | None]:
            before = self.decoded(key, node)
            after = change(before)
            if after is None or after == before:
                return Edit(after)
            data = encode_intent(replace(after, request_id=request_id))
            return Edit(after, (create_or_set(path, data, version_of(node)), *more(request_id)))

        return self.editor.edit(
            path,
            decide,
            self.written(key, request_id),
            expected=condition.allows_if_present,
            also=(self._paths.blacklisted(key),),
        )

    def written(self, key: TopicKey, request_id: str) -> Callable[[Node | None], bool]:
        """Test that a node holds an intent as this request wrote it."""

        def test(node: Node | None) -> bool:
            intent = self.decoded(key, node)
            return intent is not None and intent.request_id == request_id

        return test

    def decoded(self, key: TopicKey, node: Node | None) -> TopicIntent | None:
        return decoded(self._paths.topic(key), node, decode_intent) if node else None
