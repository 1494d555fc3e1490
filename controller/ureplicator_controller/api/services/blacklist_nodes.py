"""Nodes of the topic blacklist: one for each topic, whether the topic is whitelisted or not."""

from __future__ import annotations

from collections.abc import Sequence

from ureplicator_common.coordination import Coordination, Create, Delete, Node, Operation
from ureplicator_common.model import TopicKey
from ureplicator_common.znodes.codec import UnreadableContent
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.topics import decode_blacklisted, encode_blacklisted


class BlacklistNodes:
    """Reads these nodes and forms the operations on them. Every call may raise Unavailable."""

    def __init__(self, *, coordination: Coordination, paths: Paths) -> None:
        self._coordination = coordination
        self._paths = paths

    def contains(self, key: TopicKey) -> bool:
        path = self._paths.blacklisted(key)
        self._coordination.sync(path)
        return self._coordination.get(path) is not None

    def add(self, key: TopicKey, request_id: str) -> Sequence[Operation]:
        """Operations that add a topic; none if it is listed already."""
        path = self._paths.blacklisted(key)
        self._coordination.ensure(path.rpartition("/")[0])
        listed = self._coordination.get(path) is not None
        return () if listed else (Create(path, encode_blacklisted(request_id)),)

    def remove(self, key: TopicKey) -> Sequence[Operation]:
        """Operations that remove a topic; none if it is not listed."""
        path = self._paths.blacklisted(key)
        node = self._coordination.get(path)
        return (Delete(path, node.stat.version),) if node else ()


def request_id_of(node: Node | None) -> str:
    """The id of the request that added a topic; empty if there is none that can be read."""
    try:
        return decode_blacklisted(node.data) if node else ""
    except UnreadableContent:
        return ""
