"""Interface of the coordination service; `zookeeper` and `memory` implement it.

Rules that callers rely on:

* A transaction is all or nothing, and each write names the version it was decided on (-1: any). A
  leader puts `Check(epoch, version it was elected with)` into every transaction: the epoch node is
  a persistent counter, so a former leader that was suspended can never pass the check again.
* After a lost connection the outcome of a write is unknown (`OutcomeUnknown`): the caller reads
  back before it retries (`edit`). No implementation retries on its own.
* Identity is id + session: an ephemeral node belongs to the session in its `Stat.owner`. It is one's
  own only while that equals one's own `session()`. A lock recipe's "is acquired" proves nothing.
* SUSPENDED means that nothing is known: requests fail at once, and the servers may or may not have
  expired the session meanwhile, however long it lasts. LOST means that the session is known to be
  gone, with its ephemeral nodes. Only a server can report that: without any server the state stays
  SUSPENDED without end. A process that must stop by the session timeout has to time SUSPENDED itself.
* A session can be replaced between two calls: compare `session()` before and after, or `Stat.owner`.
* A read is as fresh as the server that served it, never older than what this client saw before on
  the same session. `sync` first where that is not enough.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Protocol

from ureplicator_common.errors import OperatingError, TemporaryError
from ureplicator_common.model import SessionId

TRANSACTION_LIMIT_BYTES = 768 * 1024
"""Size limit of one transaction. The server drops the connection of a client that sends more than
1,048,575 bytes (jute.maxbuffer): the same transaction would fail again and again without an error."""

EXPIRY_ROUNDING_S = 3.0
"""Servers end sessions in steps of their tickTime (2 s by default): a dead process's node may remain
this much longer than its session timeout."""

_OPERATION_OVERHEAD_BYTES = 96
"""Headers, version, flags and access list of one operation on the wire: about 70, rounded up."""


class SessionState(Enum):
    """State of the session. LOST is also the state before the first connection and after `close`."""

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


def version_of(node: Node | None) -> int | None:
    """Version to pass to `create_or_set`."""
    return node.stat.version if node is not None else None


def create_or_set(path: str, data: bytes, version: int | None) -> Create | Set:
    """Create the node if it was absent (`version` None), else set it at the version that was read."""
    return Create(path, data) if version is None else Set(path, data, version)


def check_size(operations: Sequence[Operation]) -> None:
    """Raise ValueError for a transaction that would make the server drop the connection."""
    size = sum(
        len(operation.path) + len(getattr(operation, "data", b"")) + _OPERATION_OVERHEAD_BYTES
        for operation in operations
    )
    if size > TRANSACTION_LIMIT_BYTES:
        raise ValueError(f"a transaction of {size} bytes is above {TRANSACTION_LIMIT_BYTES}")


class Unavailable(TemporaryError):
    """The service is not connected, or has no quorum. Nothing was written; a read has no result."""


class OutcomeUnknown(TemporaryError):
    """The connection was lost while a write was in flight: it may have been applied. Read back."""


def no_leaf(_: str) -> bool:
    """The leaves of a tree in which each node may have children."""
    return False


def describe(operations: Sequence[Operation]) -> str:
    """Text for errors: `Set /a/b and 2 more`."""
    first = operations[0]
    more = f" and {len(operations) - 1} more" if len(operations) > 1 else ""
    return f"{type(first).__name__} {first.path}{more}"


def with_ancestors(path: str) -> list[str]:
    """`/a/b` -> `/a`, `/a/b`."""
    names = path.strip("/").split("/")
    return ["/" + "/".join(names[: depth + 1]) for depth in range(len(names))]


class ConflictReason(StrEnum):
    """Cause of a refused operation: `Conflict.reason`."""

    NO_NODE = "no such node"
    WRONG_VERSION = "another version"
    NODE_EXISTS = "exists already"
    NO_PARENT = "no parent"
    HAS_CHILDREN = "has children"
    EPHEMERAL_PARENT = "the parent is ephemeral"


class Conflict(OperatingError):
    """A transaction was refused because of `operation`, its first that failed. Nothing was written.

    `reason` is a `ConflictReason`, or the server's name of the error where there is none for it.
    """

    def __init__(self, operation: Operation, reason: str) -> None:
        super().__init__(f"{type(operation).__name__} {operation.path}: {reason}")
        self.operation = operation
        self.reason = reason


class TreeCache(Protocol):
    """Copy of a subtree, kept up to date by watches.

    It is not one instant of the store: two nodes of one transaction may appear one after the other.
    Each node is a state that existed, and decisions are safe because each write names the version it
    was decided on. While suspended it keeps the last state; after each new connection it reads
    everything again.
    """

    def nodes(self) -> Mapping[str, Node]:
        """Path -> node, all nodes at and below the root, as last read. Never blocks.

        Raises Unavailable until the first complete load.
        """
        ...

    def refresh(self, paths: Collection[str] | None = None) -> None:
        """Read everything again, or these paths, in case a watch was lost. Raises Unavailable.

        Blocks; `nodes()` has the result when it returns, and `changed` is called if it differs. With paths,
        what watches have reported so far is read as well.
        """
        ...

    def verify(self, count: int) -> None:
        """Compare the next `count` nodes with the servers, in turn, and read again what differs, in case a
        watch was lost. Returns at once; `changed` is called if anything differs."""
        ...

    def is_current(self) -> bool:
        """False from the loss of a connection until everything was read over a new one. Never blocks.

        The first requests of a new connection may be answered before: until then `nodes()` is the state
        from before the outage.
        """
        ...

    def close(self) -> None: ...


class Coordination(Protocol):
    def session(self) -> SessionId | None:
        """The current session, None without one (never connected, suspended or lost)."""
        ...

    def state(self) -> SessionState: ...

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        """Call `listener` at every change, from another thread; it must return at once.

        Changes are passed one by one, in order, so `state()` may be ahead of a listener.
        """
        ...

    def get(self, path: str) -> Node | None:
        """One node, None if it does not exist. Raises Unavailable."""
        ...

    def children(self, path: str) -> Sequence[str]:
        """Sorted names of the children; empty if the node does not exist. Raises Unavailable."""
        ...

    def sync(self, path: str) -> None:
        """Later reads see every write acknowledged before this call. Raises Unavailable."""
        ...

    def read(self, paths: Sequence[str]) -> Sequence[Node | None]:
        """`sync`, then `get` of each in this order, in the time of one request. Raises Unavailable."""
        ...

    def transact(self, operations: Sequence[Operation]) -> None:
        """All or nothing. Raises Conflict, OutcomeUnknown, Unavailable (nothing was sent).

        Missing parents of a Create are a Conflict ("no parent"): see `ensure`. Without operations it
        does nothing. ValueError for too many at once: see `check_size`.
        """
        ...

    def ensure(self, path: str) -> None:
        """Create a persistent empty node and its parents unless they exist. Raises Unavailable."""
        ...

    def tree_cache(
        self, root: str, changed: Callable[[], None], *, is_leaf: Callable[[str], bool] = no_leaf
    ) -> TreeCache:
        """Cache a subtree; `changed` is called from another thread after each change.

        Several changes may be one call. The first load is followed by a call, even if it was empty.
        `is_leaf` names nodes that never have children: none below them is seen.
        """
        ...

    def close(self) -> None:
        """End the session and its ephemeral nodes at once; while suspended, after the timeout."""
        ...
