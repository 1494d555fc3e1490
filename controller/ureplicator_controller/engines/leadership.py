"""Who this controller is, and whether it leads.

    nobody leads --(set epoch at the version read + create ephemeral `leader`, one transaction)--> leads
    leads --(session suspended, lost, or another; a write refused by the epoch's check)--> does not

Both sides of the transaction matter. The ephemeral node tells the others who leads, and goes with
the session. But it proves nothing to a process that was frozen: a successor's `leader` node may
well have the version that the former leader remembers. The epoch is a persistent counter that only
grows: a leader that puts `Check(epoch, its version)` into each of its transactions can be a zombie
as long as it likes and write nothing.

So nothing is believed here that was true a moment ago. `epoch()` asks anew each time whether the
session is still the one that was elected, and the store has the last word at every write.

Identity is id + session. A `controllers/<id>` node of another session that lives is somebody else
with our id, or what is left of our own former process: after one session timeout (and what servers
round it up by) it must be the first.
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
from ureplicator_common.model import LiveController, SessionId
from ureplicator_common.znodes import Paths, encode_controller

log = logging.getLogger(__name__)


class IdTaken(PermanentError):
    """Another live process has our id."""


class Identity:
    """The node `controllers/<id>`, ours as long as our session lives."""

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
        """Make the node ours. False while somebody else's is in the way.

        Raises IdTaken when it stays there for longer than a dead process's node could, and
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
        with suppress(Conflict, OutcomeUnknown):  # the next call sees whose it is
            self._coordination.transact([Create(self._path, data, ephemeral=True)])
        return False

    def _wait_or_raise(self) -> None:
        now_s = self._clock.monotonic_s()
        if self._taken_since_s is None:
            self._taken_since_s = now_s
            log.warning("the id %s is taken; waiting for its session to end", self._controller.id)
        if now_s - self._taken_since_s > self._takeover_timeout_s:
            raise IdTaken(
                f"another live controller has the id {self._controller.id}: stop it, or give this"
                " one another --id"
            )


class Leadership:
    """The election, and what is left of its result."""

    def __init__(
        self, coordination: Coordination, *, paths: Paths, controller: LiveController
    ) -> None:
        self._coordination = coordination
        self._paths = paths
        self.leader = controller.id
        self._data = encode_controller(controller)
        self._elected: tuple[SessionId, int] | None = None

    def epoch(self) -> int | None:
        """Version of the epoch node to check in every write; None if we do not lead (any more)."""
        if self._elected is None:
            return None
        session, epoch = self._elected
        return epoch if session == _session(self._coordination) else None

    def is_vacant(self, nodes: Mapping[str, Node]) -> bool:
        """Worth an attempt, as far as a tree cache shows: nobody leads, or our own node is left over."""
        leader = nodes.get(self._paths.leader)
        return leader is None or leader.stat.owner == _session(self._coordination)

    def attempt(self) -> bool:
        """Become leader if nobody is. Raises Unavailable."""
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
        """Read back a lost answer: the node is created in the same transaction as the epoch."""
        self._coordination.sync(self._paths.leader)
        leader = self._coordination.get(self._paths.leader)
        return leader is not None and leader.stat.owner == session

    def _remove_own(self) -> None:
        """We do not lead, but our session's node says so: nobody else could be elected."""
        log.warning("removing a leader node of our own session that leads to nothing")
        with suppress(Conflict, OutcomeUnknown):
            self._coordination.transact([Delete(self._paths.leader)])

    def depose(self) -> None:
        """The store refused our epoch: somebody else was elected."""
        self._elected = None
        log.warning("not leading any more: another epoch has begun")

    def resign(self) -> None:
        """Make room at once, for a clean end. Whatever fails here ends with the session."""
        if self.epoch() is None:
            return
        self._elected = None
        with suppress(Conflict, OutcomeUnknown):
            self._coordination.transact([Delete(self._paths.leader)])


def _session(coordination: Coordination) -> SessionId | None:
    """Our session if it is certain at this moment."""
    if coordination.state() is not SessionState.CONNECTED:
        return None
    return coordination.session()
