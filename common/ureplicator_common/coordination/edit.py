"""Read-decide-write of a node that neither loses nor repeats a write whose response was lost.

    read --> decide(node) --> transact --> done
      ^                          |
      +-------- Conflict --------+   another writer was faster: decide again on the node as it is now
      |                          |
      +-- applied(node)? <-- OutcomeUnknown: sync, read back; applied means done

The outcome of a write whose response was lost can be read back with certainty. Requests of one
connection are processed in order, and after a reconnect the servers refuse what an older connection
of the session had in flight. `sync` before the read makes sure that the server is not behind.

`applied` usually compares a request id in the node. If the write was applied and then overwritten by
another writer, its id is gone and the edit is made once more, on top of the other one. So a decision
must be idempotent ("paused"), not a step that must not happen twice ("one more").
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

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

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Edit(Generic[T]):
    """Decision about a node: the result for the caller, and the operations that make it true.

    No operations: the node is as it should be, nothing is written.
    """

    result: T
    operations: Sequence[Operation] = ()


def edit(
    coordination: Coordination,
    path: str,
    decide: Callable[[Node | None], Edit[T]],
    applied: Callable[[Node | None], bool],
    *,
    timeout_s: float,
    expected: Callable[[Node | None], bool] = lambda node: True,
    also: Collection[str] = (),
    clock: Clock | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> T:
    """Write what `decide` decides about `path`; return the result of the decision that holds.

    `decide` may be called several times and may raise a refusal, which passes through. `also`: other
    nodes that it reads and writes; a conflict in them leads to a new decision too. `expected`: the
    nodes that may be written at all (a precondition of the caller).

    Raises Conflict when an operation on another path is refused (a lost leadership, say) or when
    `path` is still contended at the deadline, UnexpectedNode when the node is not an expected one,
    Unavailable when nothing was written, OutcomeUnknown when the outcome cannot be known: the
    deadline passed before the read back, or an unexpected node may hide what was written.
    """
    attempts = _Attempts(coordination, path, decide, applied, expected, {path, *also})
    clock = clock or SystemClock()
    deadline_s = clock.monotonic_s() + timeout_s
    while True:
        try:
            return attempts.run_once()
        except (Conflict, Unavailable, OutcomeUnknown) as error:
            if not attempts.can_retry(error) or clock.monotonic_s() >= deadline_s:
                unknown = attempts.unknown_outcome
                if unknown is None or unknown is error:
                    raise
                raise unknown from error
        wait(RETRY_DELAY_S)


class UnexpectedNode(OperatingError):
    """The node is not one that the caller expected; nothing was written."""


@dataclass(frozen=True, slots=True)
class _InDoubt(Generic[T]):
    """A write whose outcome is unknown, and the result it would have."""

    error: OutcomeUnknown
    result: T


class _Attempts(Generic[T]):
    """Attempts at one edit. Remembers a write of unknown outcome from one attempt to the next."""

    def __init__(
        self,
        coordination: Coordination,
        path: str,
        decide: Callable[[Node | None], Edit[T]],
        applied: Callable[[Node | None], bool],
        expected: Callable[[Node | None], bool],
        edited_paths: Collection[str],
    ) -> None:
        self._coordination = coordination
        self._path = path
        self._decide = decide
        self._applied = applied
        self._expected = expected
        self._edited_paths = edited_paths
        self._in_doubt: _InDoubt[T] | None = None

    @property
    def unknown_outcome(self) -> OutcomeUnknown | None:
        return self._in_doubt.error if self._in_doubt else None

    def run_once(self) -> T:
        node = self._read()
        if self._in_doubt is not None and self._applied(node):
            return self._in_doubt.result
        unknown, self._in_doubt = self.unknown_outcome, None
        if not self._expected(node):
            raise unknown or UnexpectedNode(f"{self._path} is not the node that was expected")
        decided = self._decide(node)
        try:
            self._coordination.transact(decided.operations)
        except OutcomeUnknown as error:
            self._in_doubt = _InDoubt(error, decided.result)
            raise
        return decided.result

    def can_retry(self, error: Exception) -> bool:
        """Unavailable is the caller's to retry, unless the outcome of a write is unknown."""
        if isinstance(error, Conflict):
            return error.operation.path in self._edited_paths
        return self._in_doubt is not None

    def _read(self) -> Node | None:
        if self._in_doubt is not None:
            self._coordination.sync(self._path)
        return self._coordination.get(self._path)
