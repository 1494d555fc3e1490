"""Session and assignment of a worker as events; settings of routes and shares of byte limits for copiers.

All are read from ZooKeeper. Nothing is put before `start`: until the live node is ours, the assignment
does not count.

A copier gets the settings of a partition with its grant (`ownership_proof`), its shares before that, and
those that come later from here. All carry the zxid of the last write of their node as version, so their
order on the way does not matter. No copier misses a change: one that is not connected yet has to request
its first proof, and both are read after that.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from ureplicator_common.coordination import (
    Coordination,
    Node,
    SessionState,
    TreeCache,
    Unavailable,
)
from ureplicator_common.model import Route
from ureplicator_common.znode_contents import Assignment
from ureplicator_common.znodes.codec import UnreadableContent
from ureplicator_common.znodes.routes import decode_route
from ureplicator_common.znodes.workers import decode_assignment, decode_shares
from ureplicator_worker.core.events import (
    AssignmentChanged,
    Event,
    SessionLost,
    SessionRestored,
    SessionSuspended,
)
from ureplicator_worker.lifeline.messages import PublishedSettings, PublishedShares

logger = logging.getLogger(__name__)
Published = TypeVar("Published")


class AssignmentWatch:
    """Puts SessionRestored, SessionSuspended, SessionLost and AssignmentChanged."""

    def __init__(
        self, *, coordination: Coordination, path: str, put: Callable[[Event], None]
    ) -> None:
        self._coordination = coordination
        self._path = path
        self._put = put
        self._started = False
        self._cache: TreeCache | None = None

    def start(self) -> None:
        """The live node is ours."""
        self._started = True
        self.session_changed(self._coordination.state())
        self._cache = self._coordination.tree_cache(self._path, self._changed)
        self._changed()

    def session_changed(self, state: SessionState) -> None:
        session = self._coordination.session()
        if not self._started:
            return
        if state is SessionState.CONNECTED and session is not None:
            self._put(SessionRestored(session))
        elif state is SessionState.LOST:
            self._put(SessionLost())
        else:
            self._put(SessionSuspended())

    def read_again(self) -> None:
        """`refresh` in a thread: ZooKeeper may not respond."""
        threading.Thread(target=self.refresh, name="worker assignment", daemon=True).start()

    def close(self) -> None:
        if self._cache is not None:
            self._cache.close()

    def refresh(self) -> None:
        """Read the assignment now."""
        if self._cache is None:
            return
        try:
            self._cache.refresh()
        except Unavailable:
            return  # the next connection reads it anyway
        self._changed()

    def _changed(self) -> None:
        if self._cache is None:
            return
        try:
            node = self._cache.nodes().get(self._path)
        except Unavailable:
            return
        try:
            assignment = Assignment() if node is None else decode_assignment(node.data)
        except UnreadableContent as error:
            logger.error("%s cannot be read, the last assignment stays: %s", self._path, error)
            return
        zxid = -1 if node is None else node.stat.mzxid
        self._put(AssignmentChanged(assignment.entries, zxid))


class PublishedWatch(ABC, Generic[Published]):
    """`send` gets what the leader publishes at `path` or below it, and again when it changes."""

    def __init__(
        self, *, coordination: Coordination, path: str, send: Callable[[Published], None]
    ) -> None:
        self._coordination = coordination
        self._path = path
        self._send = send
        self._versions: dict[str, int] = {}
        self._lock = threading.Lock()
        self._cache: TreeCache | None = None

    def start(self) -> None:
        self._cache = self._coordination.tree_cache(self._path, self._changed)
        self._changed()

    def close(self) -> None:
        if self._cache is not None:
            self._cache.close()

    @abstractmethod
    def _decode(self, path: str, node: Node) -> Published | None:
        """None if nothing is published there. Raises ValueError."""

    def _changed(self) -> None:
        if self._cache is None:
            return
        try:
            nodes = self._cache.nodes()
        except Unavailable:
            return
        with self._lock:
            for path, node in nodes.items():
                if node.stat.mzxid > self._versions.get(path, -1):
                    self._take(path, node)

    def _take(self, path: str, node: Node) -> None:
        try:
            published = self._decode(path, node)
        except ValueError as error:
            logger.error("%s cannot be read, its last content stays: %s", path, error)
            return
        self._versions[path] = node.stat.mzxid
        if published is not None:
            self._send(published)


class RouteSettingsWatch(PublishedWatch[PublishedSettings]):
    """Settings of each route, in nodes below `path`."""

    def _decode(self, path: str, node: Node) -> PublishedSettings | None:
        if path == self._path:
            return None
        route = Route.parse(path.rpartition("/")[2])
        return PublishedSettings(route, node.stat.mzxid, decode_route(node.data))


class SharesWatch(PublishedWatch[PublishedShares]):
    """The worker's shares of byte limits, in one node."""

    def _decode(self, path: str, node: Node) -> PublishedShares:
        return published_shares(node)


def published_shares(node: Node) -> PublishedShares:
    """Raises UnreadableContent."""
    return PublishedShares(node.stat.mzxid, decode_shares(node.data))
