"""Identity of this controller, and leader election.

    follower --(set epoch at the version read + create ephemeral `leader`, one transaction)--> leader
    leader --(session suspended, lost or replaced; a write refused by the epoch check)--> follower

Both operations of the transaction are needed. The ephemeral node shows the others who leads, and ends
with the session. But it proves nothing to a process that was frozen: the `leader` node of a successor
may have the version that the former leader remembers. The epoch is a persistent counter that only
grows: a leader that puts `Check(epoch, its version)` into each of its transactions may be a zombie for
any length of time and write nothing.

So a result of the past is never relied on. `epoch()` checks at each call that the session is still the
one that was elected, and ZooKeeper decides at every write.

Identity is id + session. A `controllers/<id>` node of another live session belongs to another process
with the same id, or to the former process of this controller: after one session timeout (plus the
rounding of the servers) only the first remains possible.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress

from ureplicator_common.clock import Clock
from ureplicator_common.coordination import (
    EXPIRY_ROUNDING_S,
    Conflict,
    Coordination,
    Create,
    Delete,
    Node,
    OutcomeUnknown,
    SessionState,
    Set,
)
from ureplicator_common.errors import PermanentError
from ureplicator_common.model import SessionId
from ureplicator_common.znode_contents import LiveController
from ureplicator_common.znodes.fleet import encode_controller
from ureplicator_common.znodes.paths import Paths

log = logging.getLogger(__name__)


class IdTaken(PermanentError):
    """Another live process has this controller's id."""


class Identity:
    """The ephemeral node `controllers/<id>`, held as long as the own session lives."""

    def __init__(
        self,
        coordination: Coordination,
        *,
        paths: Paths,
        controller: LiveController,
        clock: Clock,
        session_timeout_s: float,
    ) -> None:
        self._coordination = coordination
        self._path = paths.controller(controller.id)
        self._controller = controller
        self._clock = clock
        self._takeover_timeout_s = session_timeout_s + EXPIRY_ROUNDING_S
        self._claimed: SessionId | None = None
        self._taken_since_s: float | None = None

    def claim(self) -> bool:
        """Create the node. False while another session's node is in the way.

        Raises IdTaken when that node stays for longer than the node of a dead process could, and
        Unavailable.
        """
        session = _session(self._coordination)
        if session is None:
            return False
        if session == self._claimed:
            return True
        node = self._coordination.get(self._path)
        if node is not None and node.stat.owner == session:
            self._claimed, self._taken_since_s = session, None
            return True
        if node is not None:
            self._wait_or_raise()
            return False
        data = encode_controller(self._controller)
        with suppress(Conflict, OutcomeUnknown):  # the next call reads the owner
            self._coordination.transact([Create(self._path, data, ephemeral=True)])
        return False

    def _wait_or_raise(self) -> None:
        now_s = self._clock.monotonic_s()
        if self._taken_since_s is None:
            self._taken_since_s = now_s
            log.warning(
                "controller id %s is held by another session; waiting for that session to end",
                self._controller.id,
            )
        if now_s - self._taken_since_s > self._takeover_timeout_s:
            raise IdTaken(
                f"another live controller has the id {self._controller.id}: stop it, or start this"
                " one with another --id"
            )


class Leadership:
    """The election, and its result as long as it holds."""

    def __init__(
        self, coordination: Coordination, *, paths: Paths, controller: LiveController
    ) -> None:
        self._coordination = coordination
        self._paths = paths
        self.leader = controller.id
        self._data = encode_controller(controller)
        self._elected: tuple[SessionId, int] | None = None

    def epoch(self) -> int | None:
        """Version of the epoch node to check in every write; None: not the leader (any more)."""
        if self._elected is None:
            return None
        session, epoch = self._elected
        return epoch if session == _session(self._coordination) else None

    def is_vacant(self, nodes: Mapping[str, Node]) -> bool:
        """True if the cached tree shows no leader, or a leader node left over from this session."""
        leader = nodes.get(self._paths.leader)
        return leader is None or leader.stat.owner == _session(self._coordination)

    def attempt(self) -> bool:
        """Run for leader if the leader node does not exist. Raises Unavailable."""
        session = _session(self._coordination)
        if session is None:
            return False
        leader = self._coordination.get(self._paths.leader)
        if leader is not None:
            if leader.stat.owner == session:
                self._remove_own()
            return False
        before = self._coordination.get(self._paths.epoch)
        if before is None:
            self._coordination.ensure(self._paths.epoch)
            return False
        version = before.stat.version
        try:
            self._coordination.transact(
                [
                    Set(self._paths.epoch, b"", version),
                    Create(self._paths.leader, self._data, ephemeral=True),
                ]
            )
        except Conflict:
            return False
        except OutcomeUnknown:
            if not self._was_elected(session):
                return False
        if _session(self._coordination) != session:
            return False
        self._elected = (session, version + 1)
        log.info("leading with epoch %d", version + 1)
        return True

    def _was_elected(self, session: SessionId) -> bool:
        """Read back an unknown outcome: the node is created in the transaction that sets the epoch."""
        self._coordination.sync(self._paths.leader)
        leader = self._coordination.get(self._paths.leader)
        return leader is not None and leader.stat.owner == session

    def _remove_own(self) -> None:
        """Remove a leader node of this session that blocks every election: it does not lead."""
        log.warning("removing a stale leader node of the own session")
        with suppress(Conflict, OutcomeUnknown):
            self._coordination.transact([Delete(self._paths.leader)])

    def depose(self) -> None:
        """End the leadership: a write was refused by the epoch check, another leader was elected."""
        self._elected = None
        log.warning("deposed: another controller was elected with a newer epoch")

    def resign(self) -> None:
        """Delete the leader node for a clean stop. If that fails, it ends with the session."""
        if self.epoch() is None:
            return
        self._elected = None
        with suppress(Conflict, OutcomeUnknown):
            self._coordination.transact([Delete(self._paths.leader)])


def _session(coordination: Coordination) -> SessionId | None:
    """The session id while the connection is established; None otherwise."""
    if coordination.state() is not SessionState.CONNECTED:
        return None
    return coordination.session()
