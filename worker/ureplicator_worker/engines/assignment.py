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
from collections.abc import Callable

from ureplicator_common import znodes
from ureplicator_common.contents import Assignment
from ureplicator_common.coordination import (
    Coordination,
    Node,
    SessionState,
    TreeCache,
    Unavailable,
)
from ureplicator_common.model import Route
from ureplicator_worker.core.events import (
    AssignmentChanged,
    Event,
    SessionLost,
    SessionRestored,
    SessionSuspended,
)
from ureplicator_worker.lifeline.messages import PublishedSettings, PublishedShares

logger = logging.getLogger(__name__)


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
            assignment = Assignment() if node is None else znodes.decode_assignment(node.data)
        except znodes.UnreadableContent as error:
            logger.error("%s cannot be read, the last assignment stays: %s", self._path, error)
            return
        zxid = -1 if node is None else node.stat.mzxid
        self._put(AssignmentChanged(assignment.entries, zxid))


class RouteSettingsWatch:
    """`send` gets the settings of each route, and again when they change."""

    def __init__(
        self,
        *,
        coordination: Coordination,
        paths: znodes.Paths,
        send: Callable[[PublishedSettings], None],
    ) -> None:
        self._coordination = coordination
        self._root = paths.routes
        self._send = send
        self._versions: dict[Route, int] = {}
        self._lock = threading.Lock()
        self._cache: TreeCache | None = None

    def start(self) -> None:
        self._cache = self._coordination.tree_cache(self._root, self._changed)
        self._changed()

    def close(self) -> None:
        if self._cache is not None:
            self._cache.close()

    def _changed(self) -> None:
        if self._cache is None:
            return
        try:
            nodes = self._cache.nodes()
        except Unavailable:
            return
        with self._lock:
            for path, node in nodes.items():
                if path != self._root:
                    self._take(path, node)

    def _take(self, path: str, node: Node) -> None:
        try:
            route = Route.parse(path.rpartition("/")[2])
            if node.stat.mzxid <= self._versions.get(route, -1):
                return
            settings = znodes.decode_route(node.data)
        except ValueError as error:
            logger.error("%s cannot be read, its last settings stay: %s", path, error)
            return
        self._versions[route] = node.stat.mzxid
        self._send(PublishedSettings(route, node.stat.mzxid, settings))


class SharesWatch:
    """`send` gets the worker's shares of byte limits, and again when they change."""

    def __init__(
        self,
        *,
        coordination: Coordination,
        path: str,
        send: Callable[[PublishedShares], None],
    ) -> None:
        self._coordination = coordination
        self._path = path
        self._send = send
        self._cache: TreeCache | None = None

    def start(self) -> None:
        self._cache = self._coordination.tree_cache(self._path, self._changed)
        self._changed()

    def close(self) -> None:
        if self._cache is not None:
            self._cache.close()

    def _changed(self) -> None:
        """Copiers ignore what they know already."""
        if self._cache is None:
            return
        try:
            node = self._cache.nodes().get(self._path)
            if node is not None:
                self._send(published_shares(node))
        except Unavailable:
            return
        except znodes.UnreadableContent as error:
            logger.error("%s cannot be read, the last shares stay: %s", self._path, error)


def published_shares(node: Node) -> PublishedShares:
    """Raises UnreadableContent."""
    return PublishedShares(node.stat.mzxid, znodes.decode_shares(node.data))
