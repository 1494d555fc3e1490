"""Read, change, write a node, so that a write whose answer got lost is neither lost nor made twice.

    read --> change(node) --> transact --> done
      ^                          |
      +---- Conflict there ------+   somebody else was faster: decide anew on what is there now
      |                          |
      +-- applied(node)? <-- OutcomeUnknown: sync, read back; applied means done

A write of unknown outcome can be read back with certainty: requests of one connection are done in
order, and after a reconnect the servers refuse what an older connection of the session still had
under way; `sync` before the read makes sure that the server asked is not behind.

`applied` usually compares a request id in the node. If the write was applied and then overwritten
by somebody else, its id is gone and it is made once more, on top of the other's: so `change` must
be a wish about the node as it is ("paused"), not a step that must not be done twice ("one more").
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

from ureplicator_common.clock import Clock, SystemClock
from ureplicator_common.coordination import (
    Conflict,
    Coordination,
    Node,
    Operation,
    OutcomeUnknown,
    Unavailable,
)
from ureplicator_common.errors import OperatingError

RETRY_DELAY_S = 0.1


def update(
    coordination: Coordination,
    path: str,
    change: Callable[[Node | None], Sequence[Operation]],
    applied: Callable[[Node | None], bool],
    *,
    timeout_s: float,
    meant: Callable[[Node | None], bool] = lambda node: True,
    also: Collection[str] = (),
    clock: Clock | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """Bring `path` to what `change` wishes; no operations from it mean that nothing is to be done.

    `change` may be called several times and may raise its own refusal, which passes through. `also`:
    other nodes that it reads and writes; what they conflict in is decided anew as well. `meant`: which
    node may be written onto at all.

    Raises Conflict when an operation on another path is refused (a lost leadership, say) or when
    `path` is still contended at the deadline, MovedOn when the node is not one that was meant,
    Unavailable when nothing was written, OutcomeUnknown when it cannot be known: the deadline passed
    before it could be read back, or a node that was not meant may hide what was written.
    """
    attempt = _Attempt(coordination, path, change, applied, meant, {path, *also})
    clock = clock or SystemClock()
    deadline_s = clock.monotonic_s() + timeout_s
    while True:
        try:
            attempt.run()
            return
        except (Conflict, Unavailable, OutcomeUnknown) as error:
            if not attempt.worth_another(error) or clock.monotonic_s() >= deadline_s:
                if attempt.unknown is None or attempt.unknown is error:
                    raise
                raise attempt.unknown from error
        wait(RETRY_DELAY_S)


class MovedOn(OperatingError):
    """The node is not one that the caller meant to write onto; nothing was written."""


class _Attempt:
    """Remembers the write whose outcome is still unknown."""

    def __init__(
        self,
        coordination: Coordination,
        path: str,
        change: Callable[[Node | None], Sequence[Operation]],
        applied: Callable[[Node | None], bool],
        meant: Callable[[Node | None], bool],
        ours: Collection[str],
    ) -> None:
        self._coordination = coordination
        self._path = path
        self._change = change
        self._applied = applied
        self._meant = meant
        self._ours = ours
        self.unknown: OutcomeUnknown | None = None

    def run(self) -> None:
        node = self._read()
        if self.unknown is not None and self._applied(node):
            return
        in_doubt, self.unknown = self.unknown, None
        if not self._meant(node):
            raise in_doubt or MovedOn(f"{self._path} is not what was meant")
        try:
            self._coordination.transact(self._change(node))
        except OutcomeUnknown as error:
            self.unknown = error
            raise

    def worth_another(self, error: Exception) -> bool:
        """Unavailable is the caller's to retry, unless a write of ours hangs in the air."""
        if isinstance(error, Conflict):
            return error.operation.path in self._ours
        return self.unknown is not None

    def _read(self) -> Node | None:
        if self.unknown is not None:
            self._coordination.sync(self._path)
        return self._coordination.get(self._path)
