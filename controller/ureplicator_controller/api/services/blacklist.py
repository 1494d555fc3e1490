"""Topics on a route's blacklist: a node for each, whether the topic is whitelisted or not."""

from __future__ import annotations

from collections.abc import Sequence

from ureplicator_common.coordination import Coordination, Create, Delete, Node, Operation
from ureplicator_common.coordination.edit import Edit, edit
from ureplicator_common.model import TopicKey
from ureplicator_common.znodes import (
    Paths,
    UnreadableContent,
    decode_blacklisted,
    encode_blacklisted,
)
from ureplicator_controller.api.http.problems import Problem, bad_request


class TopicBlacklist:
    """Reads and writes these nodes. Every call may raise Unavailable."""

    def __init__(self, coordination: Coordination, paths: Paths) -> None:
        self._coordination = coordination
        self._paths = paths

    def change(self, key: TopicKey, *, listed: bool, request_id: str, timeout_s: float) -> None:
        """On or off the list. Raises Problem if it is so already."""
        path = self._paths.blacklisted(key)

        def decide(node: Node | None) -> Edit[None]:
            if (node is not None) == listed:
                raise already_set(f"topic {key.topic}", listed=listed)
            return Edit(None, self.on(key, request_id) if listed else self.off(key))

        def applied(node: Node | None) -> bool:
            return (_wrote(node) == request_id) if listed else node is None

        self._coordination.sync(path)
        edit(self._coordination, path, decide, applied, timeout_s=timeout_s)

    def on(self, key: TopicKey, request_id: str) -> Sequence[Operation]:
        """What puts a topic on the list, if it is not there."""
        path = self._paths.blacklisted(key)
        self._coordination.ensure(path.rpartition("/")[0])
        there = self._coordination.get(path)
        return () if there else (Create(path, encode_blacklisted(request_id)),)

    def off(self, key: TopicKey) -> Sequence[Operation]:
        path = self._paths.blacklisted(key)
        there = self._coordination.get(path)
        return (Delete(path, there.stat.version),) if there else ()


def already_set(what: str, *, listed: bool) -> Problem:
    return bad_request(
        f"{what} is {'already' if listed else 'not'} blacklisted",
        field="opt",
        hint="GET /blacklist lists those that are",
    )


def _wrote(node: Node | None) -> str:
    """Whose request put a topic on the list."""
    try:
        return decode_blacklisted(node.data) if node else ""
    except UnreadableContent:
        return ""
