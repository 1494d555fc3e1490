"""What we need of a coordination service, in our own words; `zookeeper` and `memory` provide it.

Rules that the callers rely on:

* A transaction is all or nothing, and each write names the version it was decided on (-1: any).
  A leader puts `Check(epoch, version it was elected with)` into every transaction: the epoch node is a
  persistent counter, so a former leader that thaws can never pass the check again.
* After a lost connection the outcome of a write is unknown (`OutcomeUnknown`): the caller reads back
  before it tries again. Nothing is retried behind the caller's back.
* Identity is id + session: an ephemeral node belongs to the session in its `Stat.owner`, and only while
  that equals one's own `session()` it is one's own. A recipe's "is acquired" proves nothing.
* SUSPENDED means that nothing is known; LOST that the session is gone, with its ephemeral nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from ureplicator_common.errors import OperatingError, TemporaryError
from ureplicator_common.model import SessionId


class SessionState(Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Stat:
    """`mzxid` grows with every change of the whole store; `owner` is 0 for a persistent node."""

    version: int
    czxid: int
    mzxid: int
    owner: SessionId


@dataclass(frozen=True, slots=True)
class Node:
    data: bytes
    stat: Stat


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    data: bytes
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    path: str
    data: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int = -1


@dataclass(frozen=True, slots=True)
class Check:
    path: str
    version: int


Operation = Create | Set | Delete | Check


class Unavailable(TemporaryError):
    """Not connected, or no quorum: nothing was done, or nothing is known (reads)."""


class OutcomeUnknown(TemporaryError):
    """The connection was lost while a write was under way: it may have happened. Read back."""


class Conflict(OperatingError):
    """A transaction was refused: `operation` found another version, a node, or none. Nothing was written."""

    def __init__(self, operation: Operation, why: str) -> None:
        super().__init__(f"{type(operation).__name__} {operation.path}: {why}")
        self.operation = operation
        self.why = why


class Mirror(Protocol):
    """A copy of a subtree that follows it by watches."""

    def nodes(self) -> Mapping[str, Node]:
        """Path -> node, all nodes at and below the root, as last heard. Never blocks.

        Raises Unavailable until the first complete load.
        """
        ...

    def refresh(self) -> None:
        """Read everything again (a lost watch must not blind us for ever). Raises Unavailable."""
        ...

    def close(self) -> None: ...


class Coordination(Protocol):
    def session(self) -> SessionId | None:
        """The session we hold, None while there is none (never connected, suspended or lost)."""
        ...

    def state(self) -> SessionState: ...

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        """Call `listener` at every change, from another thread; it must return at once."""
        ...

    def get(self, path: str) -> Node | None:
        """One node, None if it does not exist. Raises Unavailable."""
        ...

    def children(self, path: str) -> Sequence[str]:
        """Sorted names of the children; empty if the node does not exist. Raises Unavailable."""
        ...

    def sync(self, path: str) -> None:
        """Later reads see every write that was acknowledged before this call. Raises Unavailable."""
        ...

    def transact(self, operations: Sequence[Operation]) -> None:
        """All or nothing. Raises Conflict, OutcomeUnknown, Unavailable.

        Missing parents of a Create are a Conflict ("no parent"): see `ensure`.
        """
        ...

    def ensure(self, path: str) -> None:
        """Create a persistent empty node and its parents unless they exist. Raises Unavailable."""
        ...

    def mirror(self, root: str, changed: Callable[[], None]) -> Mirror:
        """Follow a subtree; `changed` is called from another thread after each change."""
        ...

    def close(self) -> None:
        """End the session at once: its ephemeral nodes go."""
        ...
