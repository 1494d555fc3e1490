"""The blacklist: whole topics of a route, and single partitions of whitelisted topics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ureplicator_common.config.route import RouteConfig
from ureplicator_common.coordination import Node
from ureplicator_common.coordination.edit import Edit
from ureplicator_common.model import TopicKey
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_controller.api.http.preconditions import ALWAYS, Precondition
from ureplicator_controller.api.http.problems import Problem, bad_request
from ureplicator_controller.api.services.blacklist_nodes import BlacklistNodes, request_id_of
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.api.services.intents import IntentStore
from ureplicator_controller.api.services.node_editor import NodeEditor
from ureplicator_controller.api.services.topic_checks import require_partition


class BlacklistService:
    """Changes the blacklist. Every call may raise Problem and Unavailable."""

    def __init__(
        self,
        *,
        fleet: FleetCache,
        editor: NodeEditor,
        intents: IntentStore,
        nodes: BlacklistNodes,
        new_id: Callable[[], str],
    ) -> None:
        self._paths = fleet.paths
        self._editor = editor
        self._intents = intents
        self._nodes = nodes
        self._new_id = new_id

    def set_topic(
        self, config: RouteConfig, topic: str, *, listed: bool, condition: Precondition = ALWAYS
    ) -> None:
        """Add a whole topic to the route's blacklist or remove it, whitelisted or not."""
        self._edit(TopicKey(config.route, topic), listed=listed, condition=condition)

    def set_partition(
        self,
        config: RouteConfig,
        topic: str,
        number: int,
        *,
        listed: bool,
        condition: Precondition = ALWAYS,
    ) -> TopicIntent:
        """Add one partition to the blacklist or remove it; returns the intent afterwards."""
        key = TopicKey(config.route, topic)

        def change(now: TopicIntent) -> TopicIntent:
            require_partition(key, now, number)
            if (number in now.blacklisted) == listed:
                raise _already_set(f"partition {number} of {topic}", listed=listed)
            return replace(now, blacklisted=now.blacklisted ^ {number})

        return self._intents.change(key, change, condition)

    def import_topic(self, key: TopicKey, *, dry_run: bool) -> bool:
        """Add a topic to the blacklist unless it is there; returns whether it was."""
        listed = self._nodes.contains(key)
        if not listed and not dry_run:
            self._edit(key, listed=True)
        return listed

    def _edit(self, key: TopicKey, *, listed: bool, condition: Precondition = ALWAYS) -> None:
        """The condition is about the topic's intent, which the transaction checks and does not change."""
        path, request_id = self._paths.blacklisted(key), self._new_id()

        def decide(node: Node | None) -> Edit[None]:
            required = self._intents.required(key, condition)
            if (node is not None) == listed:
                raise _already_set(f"topic {key.topic}", listed=listed)
            operations = self._nodes.add(key, request_id) if listed else self._nodes.remove(key)
            return Edit(None, (*required, *operations))

        def applied(node: Node | None) -> bool:
            return request_id_of(node) == request_id if listed else node is None

        self._editor.edit(path, decide, applied, also=(self._paths.topic(key),))


def _already_set(what: str, *, listed: bool) -> Problem:
    return bad_request(
        f"{what} is {'already' if listed else 'not'} blacklisted",
        field="opt",
        hint="GET /blacklist lists what is blacklisted",
    )
