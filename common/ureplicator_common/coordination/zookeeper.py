"""`Coordination` on ZooKeeper: requests, transactions and tree caches over a `ZooKeeperConnection`.

Only this module and `connection` import kazoo. Persistent watches do not exist in kazoo 2.11: tree caches
set one-time watches again with every read. Threads: those of the connection, and one per tree cache.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    ThrottledOpError,
)
from kazoo.handlers.threading import AsyncResult, KazooTimeoutError
from kazoo.protocol.states import EventType, WatchedEvent, ZnodeStat
from kazoo.security import CREATOR_ALL_ACL

from ureplicator_common.config.clusters import ZookeeperSettings, ZookeeperTlsSettings
from ureplicator_common.coordination import (
    Check,
    Conflict,
    ConflictReason,
    Create,
    Delete,
    Node,
    Operation,
    OutcomeUnknown,
    SessionState,
    Set,
    Stat,
    TreeCache,
    Unavailable,
    check_size,
    describe,
    no_leaf,
    with_ancestors,
)
from ureplicator_common.coordination.connection import Listener, NotSent, ZooKeeperConnection
from ureplicator_common.coordination.tree_cache import WatchedTreeCache
from ureplicator_common.model import SessionId
from ureplicator_common.portions import portions

T = TypeVar("T")

PIPELINE = 100
"""Requests of one bulk read in flight; bulk reads take turns. With the leftovers of a lost connection (at
most as many) and one request per calling thread this stays under 278 (see `connection`)."""

_REASONS: dict[type[Exception], ConflictReason] = {
    NoNodeError: ConflictReason.NO_NODE,
    BadVersionError: ConflictReason.WRONG_VERSION,
    NodeExistsError: ConflictReason.NODE_EXISTS,
    NotEmptyError: ConflictReason.HAS_CHILDREN,
    NoChildrenForEphemeralsError: ConflictReason.EPHEMERAL_PARENT,
}


class _Reader:
    """Pipelined bulk reads for one tree cache; its watches mark what to read again."""

    def __init__(
        self, *, client: KazooClient, turn: threading.Lock, request_timeout_s: float
    ) -> None:
        self._client = client
        self._turn = turn
        self._request_timeout_s = request_timeout_s
        self.cache: WatchedTreeCache | None = None

    def read(
        self, contents: Sequence[str], children: Sequence[str]
    ) -> tuple[list[Node | None], list[Sequence[str] | None]]:
        found = self._pipelined(contents, self._client.get_async)
        names = self._pipelined(children, self._client.get_children_async)
        return [None if reply is None else _node(*reply) for reply in found], list(names)

    def check(self, paths: Sequence[str]) -> list[tuple[Stat, int] | None]:
        found = self._pipelined(paths, self._client.exists_async)
        return [None if stat is None else (_stat(stat), stat.numChildren) for stat in found]

    def exists(self, path: str) -> bool:
        with _reading(path):
            response = self._client.exists_async(path, self._event)
            return response.get(timeout=self._request_timeout_s) is not None

    def _pipelined(
        self, paths: Sequence[str], send: Callable[..., AsyncResult[T]]
    ) -> list[T | None]:
        return _pipelined(
            paths,
            lambda path: send(path, self._event),
            turn=self._turn,
            timeout_s=self._request_timeout_s,
        )

    def _event(self, event: WatchedEvent) -> None:
        """Mark the path of an event. It runs in kazoo's watch thread. NONE ends a connection: the next
        one reads everything."""
        if event.type == EventType.NONE or event.path is None or self.cache is None:
            return
        whole = event.type in (EventType.CREATED, EventType.DELETED)
        self.cache.mark(
            event.path,
            contents=whole or event.type == EventType.CHANGED,
            children=whole or event.type == EventType.CHILD,
        )


class ZooKeeperCoordination:
    """See `Coordination`. Call `connect` first, `close` last.

    `session_timeout_s` is a request; servers bound it (2 to 20 times their tickTime). A silent server
    is noticed (SUSPENDED) after about two thirds of it. `request_timeout_s` bounds each request, by
    default by the session timeout; a write that takes longer has an unknown outcome. `digest`, `tls`:
    see `ZooKeeperConnection`.
    """

    def __init__(
        self,
        *,
        hosts: str,
        session_timeout_s: float,
        request_timeout_s: float | None = None,
        digest: str = "",
        tls: ZookeeperTlsSettings | None = None,
    ) -> None:
        self._hosts = hosts
        self._request_timeout_s = request_timeout_s or session_timeout_s
        self._tree_caches: set[WatchedTreeCache] = set()
        self._tree_caches_lock = threading.Lock()
        self._bulk_turn = threading.Lock()
        self._connection = ZooKeeperConnection(
            hosts=hosts,
            session_timeout_s=session_timeout_s,
            on_change=self._connection_changed,
            digest=digest,
            tls=tls,
        )
        self._client = self._connection.client

    def connect(self, timeout_s: float) -> None:
        """Start connecting and wait for a session. Raises Unavailable.

        Attempts continue in the background, also after Unavailable: call it again, or `close`.
        """
        self._connection.connect(timeout_s)

    def session(self) -> SessionId | None:
        return self._connection.session()

    def state(self) -> SessionState:
        return self._connection.state()

    def on_session(self, listener: Listener) -> None:
        self._connection.on_session(listener)

    def get(self, path: str) -> Node | None:
        with _reading(path):
            reply = _found(self._client.get_async(path), self._request_timeout_s)
        return None if reply is None else _node(*reply)

    def children(self, path: str) -> Sequence[str]:
        try:
            with _reading(path):
                names = self._wait(self._client.get_children_async(path))
                return sorted(names)
        except NoNodeError:
            return []

    def sync(self, path: str) -> None:
        with _reading(path):
            self._wait(self._client.sync_async(path))

    def read(self, paths: Sequence[str]) -> Sequence[Node | None]:
        """The server processes the requests of a connection in order."""
        with _reading(paths[0]):
            synced = self._client.sync_async(paths[0])
        replies = _pipelined(
            paths,
            self._client.get_async,
            turn=self._bulk_turn,
            timeout_s=self._request_timeout_s,
        )
        with _reading(paths[0]):
            self._wait(synced)
        return [None if reply is None else _node(*reply) for reply in replies]

    def transact(self, operations: Sequence[Operation]) -> None:
        if not operations:
            return
        check_size(operations)
        request = self._client.transaction()
        for operation in operations:
            _add(request, operation)
        try:
            results = self._wait(request.commit_async())
        except (NotSent, ThrottledOpError) as error:
            raise Unavailable(f"{describe(operations)} was not sent: {_text(error)}") from error
        except (KazooException, KazooTimeoutError) as error:
            raise OutcomeUnknown(f"{describe(operations)}: {_text(error)}") from error
        _raise_refusal(operations, results)

    def ensure(self, path: str) -> None:
        """All ancestors at once: requests of one connection are processed in order, so it is one
        round trip."""
        with _reading(path):
            if self._wait(self._client.exists_async(path)) is not None:
                return
            responses = [self._client.create_async(ancestor) for ancestor in with_ancestors(path)]
            for response in responses:
                self._created(response, path)

    def is_open(self, path: str) -> bool:
        """True if everyone may do something with the node; False also if there is none."""
        try:
            with _reading(path):
                acls, _ = self._wait(self._client.get_acls_async(path))
        except NoNodeError:
            return False
        return any(acl.id.scheme == "world" for acl in acls)

    def protect(self, path: str) -> bool:
        """Give the node to the user of `digest` alone; False if there is none."""
        try:
            with _reading(path):
                self._wait(self._client.set_acls_async(path, CREATOR_ALL_ACL))
        except NoNodeError:
            return False
        return True

    def tree_cache(
        self, root: str, changed: Callable[[], None], *, is_leaf: Callable[[str], bool] = no_leaf
    ) -> TreeCache:
        reader = _Reader(
            client=self._client, turn=self._bulk_turn, request_timeout_s=self._request_timeout_s
        )
        cache = WatchedTreeCache(
            root,
            reader=reader,
            changed=changed,
            closed=self._forget_tree_cache,
            is_leaf=is_leaf,
        )
        reader.cache = cache
        with self._tree_caches_lock:
            self._tree_caches.add(cache)
        cache.start()
        return cache

    def close(self) -> None:
        """Close the connection and every tree cache. Returns within about `CLOSE_GRACE_S` and
        `RECONNECT_DELAY_S`."""
        if not self._connection.stop():
            return
        for cache in self._all_tree_caches():
            cache.close()
        self._connection.join()

    def _wait(self, response: AsyncResult[T]) -> T:
        return response.get(timeout=self._request_timeout_s)

    def _created(self, response: AsyncResult[str], path: str) -> None:
        try:
            self._wait(response)
        except NodeExistsError:
            return
        except NoNodeError as error:
            raise Unavailable(
                f"{path}: a parent vanished, or the chroot in {self._hosts} does not exist"
            ) from error

    def _all_tree_caches(self) -> list[WatchedTreeCache]:
        with self._tree_caches_lock:
            return list(self._tree_caches)

    def _forget_tree_cache(self, cache: WatchedTreeCache) -> None:
        with self._tree_caches_lock:
            self._tree_caches.discard(cache)

    def _connection_changed(self, connected: bool) -> None:
        """Tell all that follow the connection. It runs in kazoo's connection thread."""
        for cache in self._all_tree_caches():
            cache.connection_changed(connected=connected)


def open_coordination(
    settings: ZookeeperSettings, *, request_timeout_s: float | None = None
) -> ZooKeeperCoordination:
    """A client by the configuration, not connected yet. Raises ConfigurationError."""
    return ZooKeeperCoordination(
        hosts=settings.hosts,
        session_timeout_s=settings.session_timeout_s,
        request_timeout_s=request_timeout_s,
        digest=settings.digest(),
        tls=settings.tls,
    )


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """kazoo's errors in a request that may simply be repeated; a missing node is a response."""
    try:
        yield
    except NoNodeError:
        raise
    except (KazooException, KazooTimeoutError) as error:
        raise Unavailable(f"{path}: {_text(error)}") from error


def _pipelined(
    paths: Sequence[str],
    send: Callable[[str], AsyncResult[T]],
    *,
    turn: threading.Lock,
    timeout_s: float,
) -> list[T | None]:
    """Send many reads at once, portion by portion; None for a node that is not there. Raises Unavailable."""
    replies: list[T | None] = []
    for chunk in portions(paths, PIPELINE):
        with turn, _reading(chunk[0]):
            responses = [send(path) for path in chunk]
            replies += [_found(response, timeout_s) for response in responses]
    return replies


def _found(response: AsyncResult[T], timeout_s: float) -> T | None:
    try:
        return response.get(timeout=timeout_s)
    except NoNodeError:
        return None


def _node(data: bytes, stat: ZnodeStat) -> Node:
    return Node(data, _stat(stat))


def _stat(stat: ZnodeStat) -> Stat:
    return Stat(stat.version, stat.czxid, stat.mzxid, SessionId(stat.ephemeralOwner))


def _add(request: TransactionRequest, operation: Operation) -> None:
    match operation:
        case Create(path, data, ephemeral):
            request.create(path, data, ephemeral=ephemeral)
        case Set(path, data, version):
            request.set_data(path, data, version)
        case Delete(path, version):
            request.delete(path, version)
        case Check(path, version):
            request.check(path, version)


def _raise_refusal(operations: Sequence[Operation], results: Sequence[object]) -> None:
    """The one operation that failed has its own error; the others are "rolled back"."""
    for operation, result in zip(operations, results, strict=True):
        if isinstance(result, SessionExpiredError):
            raise Unavailable(f"{operation.path}: the session has expired")
        if isinstance(result, NoAuthError):
            raise Unavailable(f"{operation.path}: {_text(result)}")
        if isinstance(result, Exception) and not isinstance(
            result, RolledBackError | RuntimeInconsistency
        ):
            raise Conflict(operation, _reason(operation, result))


def _reason(operation: Operation, error: Exception) -> str:
    if isinstance(operation, Create) and isinstance(error, NoNodeError):
        return ConflictReason.NO_PARENT
    return _REASONS.get(type(error), type(error).__name__)


def _text(error: Exception) -> str:
    """kazoo's errors often have no text of their own."""
    if isinstance(error, KazooTimeoutError):
        return "no response in time"
    if isinstance(error, NoAuthError):
        return "the node belongs to another user: see zookeeper.digest_file"
    return str(error) or type(error).__name__
