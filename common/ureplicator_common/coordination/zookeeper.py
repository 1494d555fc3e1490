"""`Coordination` on ZooKeeper, through kazoo; nothing else imports kazoo.

kazoo's own recipes and its retry helper are not used: `Lock.is_acquired` stays true after the
session is lost, and `retry` waits for the next connection and then writes under the *new* session.
What is left is a connection that reconnects by itself; these are its traps (2.11) and our answers:

* **A request made while reconnecting is queued** and sent later, under whatever session there is
  then. `_Client` refuses it: state and queue are looked at under the one lock under which the
  connection thread changes the state, so that a request is sent on the connection it was made on,
  or never.
* **The delay between two attempts to connect grows up to an hour.** Ours: `RECONNECT_DELAY_S`.
* **One silent host takes the whole session timeout** to be given up, and so does one that accepts
  the connection but not yet the session (as a starting server may). `_Handler` gives each a share.
* **The connection thread dies for good of an unexpected error** (an answer out of order). It is
  then started anew, with a new session.
* **LOST is only said by a server.** While none answers, kazoo says SUSPENDED, and so do we.
* **Listeners run in the connection thread**: ours only put into a queue, `_notify_loop` calls out.
* **A dead server keeps `stop()` waiting** for its answer: after `CLOSE_GRACE_S` we cut the
  connection.
* **Every request writes a byte into a socket pair and blocks when it is full**, at 278 bytes by
  Linux's default; `PIPELINE` keeps well below.
* Persistent watches do not exist in 2.11: tree caches set one-time watches again with every read.

Threads: kazoo's connection, watch and completion threads, one that calls listeners, one per tree cache.
A client must not be carried through a fork.
"""

from __future__ import annotations

import logging
import queue
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    ThrottledOpError,
)
from kazoo.handlers.threading import (
    AsyncResult,
    KazooTimeoutError,
    SequentialThreadingHandler,
)
from kazoo.protocol.states import EventType, KazooState, KeeperState, WatchedEvent, ZnodeStat
from kazoo.retry import KazooRetry

from ureplicator_common.coordination import (
    Check,
    Conflict,
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
    Why,
    check_size,
    describe,
    with_ancestors,
)
from ureplicator_common.coordination.tree_cache import WatchedTreeCache
from ureplicator_common.errors import ConfigurationError
from ureplicator_common.model import SessionId

log = logging.getLogger(__name__)

T = TypeVar("T")
_Listener = Callable[[SessionState], None]
_Change = tuple[SessionState, tuple[_Listener, ...]]

RECONNECT_DELAY_S = 1.0
CLOSE_GRACE_S = 2.0
LEAST_CONNECT_S = 1.0
"""For the connection, and again for the session. A third of the session timeout, shared by all hosts,
leaves time to try each of them before the session ends (silence was noticed after two thirds)."""
PIPELINE = 100
"""Requests of one bulk read under way; bulk reads take turns. With the leftovers of a connection
that was lost (at most as many) and one request per calling thread this stays under 278."""


_WHY: dict[type[Exception], Why] = {
    NoNodeError: Why.NO_NODE,
    BadVersionError: Why.WRONG_VERSION,
    NodeExistsError: Why.NODE_EXISTS,
    NotEmptyError: Why.HAS_CHILDREN,
    NoChildrenForEphemeralsError: Why.EPHEMERAL_PARENT,
}


class _NotSent(KazooException):
    """There is no connection: the request was not even queued."""


class _Handler(SequentialThreadingHandler):
    """kazoo's threads and sockets; connects within bounds, and can cut what is connected."""

    def __init__(self, *, connect_timeout_s: float) -> None:
        super().__init__()
        self._connect_timeout_s = connect_timeout_s
        self._socket: socket.socket | None = None
        self._settled = False
        self.closing = False
        self.last_error = "no address found"

    def create_connection(self, *args: Any, **kwargs: Any) -> socket.socket:
        if self.closing:
            raise ConnectionAbortedError("closing")
        kwargs["timeout"] = min(kwargs["timeout"], self._connect_timeout_s)
        self._settled = False
        try:
            self._socket = super().create_connection(*args, **kwargs)
        except OSError as error:
            self.last_error = str(error)
            raise
        self.last_error = "connected, but no answer"
        return self._socket

    def settled(self) -> None:
        """There is a session; from here on kazoo's own timeouts are right."""
        self._settled = True

    def select(
        self, rlist: Sequence[Any], wlist: Sequence[Any], xlist: Sequence[Any], timeout: float
    ) -> tuple[list[Any], list[Any], list[Any]]:
        if not self._settled:
            timeout = min(timeout, self._connect_timeout_s)
        return super().select(rlist, wlist, xlist, timeout)

    def create_socket_pair(self) -> tuple[socket.socket, socket.socket]:
        pair = super().create_socket_pair()
        for end in pair:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1024 * 1024)
        return pair

    def cut(self) -> None:
        """End what is connected, as if the server had done it."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


class _Client(KazooClient):
    """Never queues behind a reconnect; tells when its connection thread died."""

    def __init__(
        self, *, hosts: str, timeout: float, handler: _Handler, died: Callable[[], None]
    ) -> None:
        self._gate = threading.RLock()
        self._settled = handler.settled
        self._died = died
        retry = KazooRetry(
            max_tries=-1,
            delay=0.1,
            max_delay=RECONNECT_DELAY_S,
            sleep_func=handler.sleep_func,
        )
        super().__init__(hosts=hosts, timeout=timeout, handler=handler, connection_retry=retry)

    def _call(self, request: object, async_object: AsyncResult[object]) -> bool | None:
        with self._gate:
            if self._state != KeeperState.CONNECTED:
                async_object.set_exception(_NotSent("not connected"))
                return False
            return super()._call(request, async_object)

    def _session_callback(self, state: str) -> None:
        if state == KeeperState.CONNECTED:
            self._settled()
        with self._gate:
            super()._session_callback(state)
        if state == KeeperState.CLOSED and not self._stopped.is_set():
            self._died()


class _Reader:
    """Bulk reads for one tree cache, pipelined; its watches mark what to read again."""

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
        return [None if each is None else _node(*each) for each in found], list(names)

    def exists(self, path: str) -> bool:
        with _reading(path):
            answer = self._client.exists_async(path, self._event)
            return answer.get(timeout=self._request_timeout_s) is not None

    def _pipelined(
        self, paths: Sequence[str], ask: Callable[..., AsyncResult[T]]
    ) -> list[T | None]:
        found: list[T | None] = []
        for start in range(0, len(paths), PIPELINE):
            chunk = paths[start : start + PIPELINE]
            with self._turn, _reading(chunk[0]):
                answers = [ask(path, self._event) for path in chunk]
                found += [self._found(answer) for answer in answers]
        return found

    def _found(self, answer: AsyncResult[T]) -> T | None:
        try:
            return answer.get(timeout=self._request_timeout_s)
        except NoNodeError:
            return None

    def _event(self, event: WatchedEvent) -> None:
        """In kazoo's watch thread. NONE ends a connection: the next one reads everything."""
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

    `session_timeout_s` is what is asked for; servers bound it (2 to 20 times their tickTime). A
    silent server is noticed (SUSPENDED) after about two thirds of it. `request_timeout_s` bounds
    each request, by default by the session timeout; a write that takes longer has an unknown
    outcome.
    """

    def __init__(
        self, *, hosts: str, session_timeout_s: float, request_timeout_s: float | None = None
    ) -> None:
        self._hosts = hosts
        self._request_timeout_s = request_timeout_s or session_timeout_s
        share_s = session_timeout_s / (hosts.count(",") + 1) / 3
        self._handler = _Handler(connect_timeout_s=max(share_s, LEAST_CONNECT_S))
        self._listeners: tuple[_Listener, ...] = ()
        self._changes: queue.SimpleQueue[_Change | None] = queue.SimpleQueue()
        self._tree_caches: set[WatchedTreeCache] = set()
        self._tree_caches_lock = threading.Lock()
        self._bulk_turn = threading.Lock()
        self._lifecycle = threading.RLock()
        self._connected: threading.Event | None = None
        self._revivals: list[threading.Thread] = []
        self._closing = threading.Event()
        self._notifier = threading.Thread(
            target=self._notify_loop, name="zookeeper listeners", daemon=True
        )
        try:
            self._client = _Client(
                hosts=hosts, timeout=session_timeout_s, handler=self._handler, died=self._died
            )
        except ValueError as error:
            raise ConfigurationError(f"zookeeper.hosts {hosts!r}: {error}") from error
        self._client.add_listener(self._state_changed)

    def connect(self, timeout_s: float) -> None:
        """Start connecting, and wait for it. Raises Unavailable.

        It goes on trying in the background for ever, also after Unavailable: wait again, or
        `close`.
        """
        with self._lifecycle:
            if self._closing.is_set():
                raise Unavailable(f"ZooKeeper at {self._hosts}: closed")
            if self._connected is None:
                self._notifier.start()
                self._connected = self._client.start_async()
        if not self._connected.wait(timeout_s):
            raise Unavailable(
                f"no session with ZooKeeper at {self._hosts} within {timeout_s:g} s: "
                f"{self._handler.last_error}"
            )

    def session(self) -> SessionId | None:
        held = self._client.client_id
        return SessionId(held[0]) if held and held[0] else None

    def state(self) -> SessionState:
        if self._client.connected:
            return SessionState.CONNECTED
        if self._client.state == KazooState.LOST:
            return SessionState.LOST
        return SessionState.SUSPENDED

    def on_session(self, listener: _Listener) -> None:
        self._listeners += (listener,)

    def get(self, path: str) -> Node | None:
        try:
            with _reading(path):
                return _node(*self._answer(self._client.get_async(path)))
        except NoNodeError:
            return None

    def children(self, path: str) -> Sequence[str]:
        try:
            with _reading(path):
                names = self._answer(self._client.get_children_async(path))
                return sorted(names)
        except NoNodeError:
            return []

    def sync(self, path: str) -> None:
        with _reading(path):
            self._answer(self._client.sync_async(path))

    def transact(self, operations: Sequence[Operation]) -> None:
        if not operations:
            return
        check_size(operations)
        request = self._client.transaction()
        for operation in operations:
            _add(request, operation)
        try:
            results = self._answer(request.commit_async())
        except (_NotSent, ThrottledOpError) as error:
            raise Unavailable(f"{describe(operations)} was not sent: {_say(error)}") from error
        except (KazooException, KazooTimeoutError) as error:
            raise OutcomeUnknown(f"{describe(operations)}: {_say(error)}") from error
        _raise_refusal(operations, results)

    def ensure(self, path: str) -> None:
        """All ancestors at once: a connection's requests are done in order, so it is one trip."""
        with _reading(path):
            if self._answer(self._client.exists_async(path)) is not None:
                return
            answers = [self._client.create_async(each) for each in with_ancestors(path)]
            for answer in answers:
                self._created(answer, path)

    def tree_cache(self, root: str, changed: Callable[[], None]) -> TreeCache:
        reader = _Reader(
            client=self._client, turn=self._bulk_turn, request_timeout_s=self._request_timeout_s
        )
        cache = WatchedTreeCache(
            root, reader=reader, changed=changed, closed=lambda: self._drop_tree_cache(cache)
        )
        reader.cache = cache
        with self._tree_caches_lock:
            self._tree_caches.add(cache)
        cache.start()
        return cache

    def close(self) -> None:
        """Also ends every tree cache. Returns within about `CLOSE_GRACE_S` and `RECONNECT_DELAY_S`."""
        with self._lifecycle:
            if self._closing.is_set():
                return
            self._closing.set()
            self._stop_client()
        for cache in self._all_tree_caches():
            cache.close()
        self._changes.put(None)
        if self._connected is not None and self._notifier is not threading.current_thread():
            self._notifier.join()
        for revival in self._revivals:
            revival.join()

    def _stop_client(self) -> None:
        self._handler.closing = True
        if not self._client.connected:
            self._handler.cut()
        cutter = threading.Timer(CLOSE_GRACE_S, self._handler.cut)
        cutter.start()
        try:
            self._client.stop()
            self._client.close()
        finally:
            cutter.cancel()
            cutter.join()

    def _answer(self, result: AsyncResult[T]) -> T:
        return result.get(timeout=self._request_timeout_s)

    def _created(self, answer: AsyncResult[str], path: str) -> None:
        try:
            self._answer(answer)
        except NodeExistsError:
            return
        except NoNodeError as error:
            raise Unavailable(
                f"{path}: a parent vanished, or the chroot in {self._hosts} does not exist"
            ) from error

    def _all_tree_caches(self) -> list[WatchedTreeCache]:
        with self._tree_caches_lock:
            return list(self._tree_caches)

    def _drop_tree_cache(self, cache: WatchedTreeCache) -> None:
        with self._tree_caches_lock:
            self._tree_caches.discard(cache)

    def _state_changed(self, state: str) -> None:
        """In kazoo's connection thread."""
        if state == KazooState.CONNECTED:
            for cache in self._all_tree_caches():
                cache.mark_everything()
        self._changes.put((SessionState(state.lower()), self._listeners))

    def _notify_loop(self) -> None:
        for state, listeners in iter(self._changes.get, None):
            log.info("ZooKeeper at %s: %s", self._hosts, state.value)
            for listener in listeners:
                try:
                    listener(state)
                except Exception:
                    log.exception("session listener failed at %s", state)

    def _died(self) -> None:
        """In kazoo's connection thread, its last words."""
        log.error("the ZooKeeper connection thread died; starting another")
        revival = threading.Thread(target=self._revive, name="zookeeper revival", daemon=True)
        self._revivals = [each for each in self._revivals if each.is_alive()] + [revival]
        revival.start()

    def _revive(self) -> None:
        if self._closing.wait(RECONNECT_DELAY_S):
            return
        with self._lifecycle:
            if not self._closing.is_set():
                self._client.start_async()


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """kazoo's errors in a request that may simply be made again; a missing node is an answer."""
    try:
        yield
    except NoNodeError:
        raise
    except (KazooException, KazooTimeoutError) as error:
        raise Unavailable(f"{path}: {_say(error)}") from error


def _node(data: bytes, stat: ZnodeStat) -> Node:
    owner = SessionId(stat.ephemeralOwner)
    return Node(data, Stat(stat.version, stat.czxid, stat.mzxid, owner))


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
    """The one operation that failed has its own error; the others say "rolled back"."""
    for operation, result in zip(operations, results, strict=True):
        if isinstance(result, SessionExpiredError):
            raise Unavailable(f"{operation.path}: the session has expired")
        if isinstance(result, Exception) and not isinstance(
            result, RolledBackError | RuntimeInconsistency
        ):
            raise Conflict(operation, _why(operation, result))


def _why(operation: Operation, error: Exception) -> str:
    if isinstance(operation, Create) and isinstance(error, NoNodeError):
        return Why.NO_PARENT
    return _WHY.get(type(error), type(error).__name__)


def _say(error: Exception) -> str:
    """kazoo's errors often have no text of their own."""
    if isinstance(error, KazooTimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__
