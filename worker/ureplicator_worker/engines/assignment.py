"""Session and assignment of a worker as events, read from ZooKeeper.

Nothing is put before `start`: until the live node is ours, the assignment does not count.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from ureplicator_common import znodes
from ureplicator_common.contents import Assignment
from ureplicator_common.coordination import Coordination, SessionState, TreeCache, Unavailable
from ureplicator_worker.core.events import (
    AssignmentChanged,
    Event,
    SessionLost,
    SessionRestored,
    SessionSuspended,
)

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
