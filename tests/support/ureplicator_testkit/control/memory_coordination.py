"""In-memory coordination service for tests: one `MemoryStore`, one `MemoryCoordination` per process.

It behaves like the real one (the same contract tests run over both) and fails on demand:

| fault                               | call                                                      |
|-------------------------------------|-----------------------------------------------------------|
| session expires under a live client | `client.expire()`: LOST; `client.restore()`: a new one    |
| client cut off, or frozen           | `client.suspend()`, `client.restore()`                    |
| ... for longer than its session     | `client.suspend()`, `client.expire()`, `client.restore()` |
| next requests fail                  | `client.fail_next(count)`: Unavailable, nothing done      |
| response of the next write is lost  | `client.lose_next_response(applied=...)`: OutcomeUnknown  |
| watches late, or lost               | `client.hold_watches()`, then `release_` or `drop_`       |
| server of the client lags behind    | `client.fall_behind()`, then `client.catch_up()`          |

Nothing happens without a call and there is no thread: before a transaction returns, it updates every
tree cache that watches its paths and calls `changed`, in the caller's thread and without the store's
lock. So a run over this store is a function of the calls made. It may be shared between threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

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
from ureplicator_common.model import SessionId

NO_SESSION = SessionId(0)
_FIRST_SESSION = 0x1000
_ROOT = Node(b"", Stat(version=0, czxid=0, mzxid=0, owner=NO_SESSION))


class MemoryStore:
    """The server: tree, zxid, sessions, and the clients that watch."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._nodes: dict[str, Node] = {"/": _ROOT}
        self._zxid = 0
        self._last_session = _FIRST_SESSION
        self._sessions: set[SessionId] = set()
        self._clients: list[MemoryCoordination] = []

    def expire(self, session: SessionId) -> None:
        """End a session: its ephemeral nodes are removed now, its client is notified when connected."""
        with self.lock:
            self._sessions.discard(session)
            owned = [path for path, node in self._nodes.items() if node.stat.owner == session]
            if owned:
                self._zxid += 1
            for path in owned:
                del self._nodes[path]
            clients = list(self._clients)
        for client in clients:
            client.session_ended(session)
        self._notify(owned)

    def alive(self, session: SessionId) -> bool:
        with self.lock:
            return session in self._sessions

    def open_session(self) -> SessionId:
        with self.lock:
            self._last_session += 1
            session = SessionId(self._last_session)
            self._sessions.add(session)
            return session

    def attach(self, client: MemoryCoordination) -> None:
        with self.lock:
            self._clients.append(client)

    def detach(self, client: MemoryCoordination) -> None:
        with self.lock:
            self._clients.remove(client)

    def node(self, path: str) -> Node | None:
        with self.lock:
            return self._nodes.get(path)

    def children(self, path: str) -> list[str]:
        with self.lock:
            return sorted(_name(node) for node in self._nodes if _parent(node) == path)

    def subtree(self, root: str) -> dict[str, Node]:
        prefix = f"{root.rstrip('/')}/"  # once: histories of fleets read thousands of trees
        with self.lock:
            return {at: node for at, node in self._nodes.items() if f"{at}/".startswith(prefix)}

    def apply(self, session: SessionId, operations: Sequence[Operation]) -> None:
        """All or nothing, under one zxid; each operation sees the effects of those before it."""
        with self.lock:
            if session not in self._sessions:
                raise Unavailable(f"{describe(operations)}: the session has expired")
            draft = _Draft(self._nodes, zxid=self._zxid + 1, session=session)
            for operation in operations:
                draft.apply(operation)
            self._nodes = draft.nodes
            self._zxid += 1
        self._notify(draft.touched)

    def _notify(self, paths: Sequence[str]) -> None:
        with self.lock:
            clients = list(self._clients)
        for client in clients:
            client.receive(paths)


class _Draft:
    """Copy of the tree to which a transaction is applied first."""

    def __init__(self, nodes: Mapping[str, Node], *, zxid: int, session: SessionId) -> None:
        self.nodes = dict(nodes)
        self.touched: list[str] = []
        self._zxid = zxid
        self._session = session

    def apply(self, operation: Operation) -> None:
        match operation:
            case Create():
                self._create(operation)
            case Set(path, data):
                stat = self._expect(operation).stat
                changed = Stat(stat.version + 1, stat.czxid, self._zxid, stat.owner)
                self._put(path, Node(data, changed))
            case Delete(path):
                self._expect(operation)
                if any(_parent(node) == path for node in self.nodes):
                    raise Conflict(operation, ConflictReason.HAS_CHILDREN)
                del self.nodes[path]
                self.touched.append(path)
            case Check():
                self._expect(operation)

    def _create(self, operation: Create) -> None:
        parent = self.nodes.get(_parent(operation.path))
        if parent is None:
            raise Conflict(operation, ConflictReason.NO_PARENT)
        if operation.path in self.nodes:
            raise Conflict(operation, ConflictReason.NODE_EXISTS)
        if parent.stat.owner != NO_SESSION:
            raise Conflict(operation, ConflictReason.EPHEMERAL_PARENT)
        owner = self._session if operation.ephemeral else NO_SESSION
        self._put(operation.path, Node(operation.data, Stat(0, self._zxid, self._zxid, owner)))

    def _expect(self, operation: Set | Delete | Check) -> Node:
        node = self.nodes.get(operation.path)
        if node is None:
            raise Conflict(operation, ConflictReason.NO_NODE)
        if operation.version not in (-1, node.stat.version):
            raise Conflict(operation, ConflictReason.WRONG_VERSION)
        return node

    def _put(self, path: str, node: Node) -> None:
        self.nodes[path] = node
        self.touched.append(path)


class MemorySession:
    """Session of one client with its faults. Connected, with a new session, from the start."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._failing_requests = 0
        self._listeners: list[Callable[[SessionState], None]] = []
        self._state = SessionState.CONNECTED
        self._closed = False
        self._session = store.open_session()

    def session(self) -> SessionId | None:
        return self._session if self._state is SessionState.CONNECTED else None

    def state(self) -> SessionState:
        return self._state

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    def suspend(self) -> None:
        """Cut the client off. Its session lives on until `store.expire(...)`."""
        if self._state is SessionState.CONNECTED:
            self._enter(SessionState.SUSPENDED)

    def expire(self) -> SessionId:
        """End the session at the servers; returns it. A suspended client is notified in `restore`."""
        session = self._session
        self._store.expire(session)
        return session

    def restore(self) -> None:
        """Connect again: with the old session if it still lives, else LOST and then a new one."""
        if self._closed or self._state is SessionState.CONNECTED:
            return
        if not self._store.alive(self._session):
            self._enter(SessionState.LOST)
            self._session = self._store.open_session()
        self._enter(SessionState.CONNECTED)
        self._reconnected()

    def fail_next(self, count: int = 1) -> None:
        """The next `count` requests raise Unavailable; nothing is done."""
        self._failing_requests = count

    def session_ended(self, session: SessionId) -> None:
        """End the session, for the store."""
        if session == self._session and self._state is SessionState.CONNECTED:
            self._enter(SessionState.LOST)

    def check_connected(self, path: str) -> None:
        if self._state is not SessionState.CONNECTED:
            raise Unavailable(f"{path}: not connected ({self._state.value})")

    def _request(self, path: str) -> None:
        self.check_connected(path)
        with self._store.lock:
            if self._failing_requests:
                self._failing_requests -= 1
                raise Unavailable(f"{path}: unavailable, as requested")

    def _disconnected(self) -> None:
        """A hook before listeners are told that a connection is lost."""

    def _reconnected(self) -> None:
        """A hook after a new connection."""

    def _enter(self, state: SessionState) -> None:
        if state is self._state:
            return
        self._state = state
        if state is not SessionState.CONNECTED:
            self._disconnected()
        for listener in list(self._listeners):
            listener(state)


class MemoryCoordination(MemorySession):
    """Client of one process: requests, tree caches, and the faults of writes and watches."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self._lost_write_is_applied: bool | None = None
        self._holds_watches = False
        self._held: set[str] = set()
        self._view: Mapping[str, Node] | None = None
        self._tree_caches: list[MemoryTreeCache] = []
        store.attach(self)

    def get(self, path: str) -> Node | None:
        self._request(path)
        return self._store.node(path) if self._view is None else self._view.get(path)

    def children(self, path: str) -> Sequence[str]:
        self._request(path)
        if self._view is None:
            return self._store.children(path)
        return sorted(_name(node) for node in self._view if _parent(node) == path)

    def subtree(self, root: str) -> Mapping[str, Node]:
        """The subtree, for a tree cache."""
        if self._view is None:
            return self._store.subtree(root)
        return {path: node for path, node in self._view.items() if below(root, path)}

    def sync(self, path: str) -> None:
        self._request(path)
        self._advance()

    def read(self, paths: Sequence[str]) -> Sequence[Node | None]:
        self.sync(paths[0])
        return [self.get(path) for path in paths]

    def fall_behind(self) -> None:
        """Reads show the tree as it is now, until `sync` or a write of this client: then as of that."""
        self._view = self._store.subtree("/")

    def catch_up(self) -> None:
        self._view = None

    def _advance(self) -> None:
        if self._view is not None:
            self._view = self._store.subtree("/")

    def transact(self, operations: Sequence[Operation]) -> None:
        if not operations:
            return
        check_size(operations)
        self._request(operations[0].path)
        applied, self._lost_write_is_applied = self._lost_write_is_applied, None
        if applied is None:
            self._store.apply(self._session, operations)
            self._advance()
            return
        if applied:
            with suppress(Conflict):
                self._store.apply(self._session, operations)
        raise OutcomeUnknown(f"{describe(operations)}: the response was lost, as requested")

    def ensure(self, path: str) -> None:
        self._request(path)
        for ancestor in with_ancestors(path):
            if self._store.node(ancestor) is None:
                self._store.apply(self._session, [Create(ancestor, b"")])

    def tree_cache(
        self, root: str, changed: Callable[[], None], *, is_leaf: Callable[[str], bool] = no_leaf
    ) -> TreeCache:
        cache = MemoryTreeCache(
            root, client=self, store=self._store, changed=changed, is_leaf=is_leaf
        )
        with self._store.lock:
            self._tree_caches.append(cache)
        if self._state is SessionState.CONNECTED:
            cache.load()
        return cache

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._store.detach(self)
        for cache in list(self._tree_caches):
            cache.close()
        connected = self._state is SessionState.CONNECTED
        self._enter(SessionState.LOST)
        if connected:
            self._store.expire(self._session)

    def lose_next_response(self, *, applied: bool) -> None:
        """The next transaction raises OutcomeUnknown, applied or not; a refusal is lost as well."""
        self._lost_write_is_applied = applied

    def hold_watches(self) -> None:
        """Tree caches receive nothing until `release_watches`, or never: `drop_watches`.

        A new connection is made meanwhile without the load that follows it, which is late but never lost.
        """
        self._holds_watches = True

    def release_watches(self) -> None:
        self._holds_watches = False
        with self._store.lock:
            held, self._held = self._held, set()
        self._reconnected()
        self.receive(sorted(held))

    def drop_watches(self) -> None:
        """Discard what was held: tree caches do not see those nodes until they change again."""
        self._held, self._holds_watches = set(), False
        self._reconnected()

    def receive(self, paths: Sequence[str]) -> None:
        """Learn from the store that these paths changed."""
        if self._holds_watches:
            with self._store.lock:
                self._held.update(paths)
        elif self._state is SessionState.CONNECTED:
            for cache in list(self._tree_caches):
                cache.receive(paths)

    def forget(self, cache: MemoryTreeCache) -> None:
        with self._store.lock:
            if cache in self._tree_caches:
                self._tree_caches.remove(cache)

    def _disconnected(self) -> None:
        for cache in list(self._tree_caches):
            cache.outdate()

    def _reconnected(self) -> None:
        """The tree caches read everything, some time after the listeners were told: see `hold_watches`."""
        if self._holds_watches or self._state is not SessionState.CONNECTED:
            return
        for cache in list(self._tree_caches):
            if not cache.is_current():
                cache.load()


class MemoryTreeCache:
    """`TreeCache` that is up to date when the transaction that changed it returns."""

    def __init__(
        self,
        root: str,
        *,
        client: MemoryCoordination,
        store: MemoryStore,
        changed: Callable[[], None],
        is_leaf: Callable[[str], bool],
    ) -> None:
        self._root = root
        self._client = client
        self._store = store
        self._changed = changed
        self._is_leaf = is_leaf
        self._published: Mapping[str, Node] | None = None
        self._is_current = False
        self._verified = 0

    def nodes(self) -> Mapping[str, Node]:
        published = self._published
        if published is None:
            raise Unavailable(f"{self._root} was not read yet")
        return published

    def refresh(self, paths: Collection[str] | None = None) -> None:
        self._client.check_connected(self._root)
        if paths is None or self._published is None:
            self.load()
            return
        served, known = self._client.subtree(self._root), self._published
        self.receive([*paths, *(path for path in served if path not in known)])

    def verify(self, count: int) -> None:
        """Verify in this thread; the paths are compared in their order, and with new ones below them."""
        if self._published is None or not self._is_current:
            return
        served = self._client.subtree(self._root)
        paths = sorted({*self._published, *served})
        if self._verified >= len(paths):
            self._verified = 0
        chosen = paths[self._verified : self._verified + count]
        self._verified += count
        self.receive([path for path in chosen if served.get(path) != self._published.get(path)])

    def load(self) -> None:
        with self._store.lock:
            served = self._client.subtree(self._root).items()
            differs = self._publish({path: node for path, node in served if self._is_seen(path)})
            self._is_current = True
        if differs:
            self._changed()

    def is_current(self) -> bool:
        return self._is_current

    def outdate(self) -> None:
        """Note for the client that the connection is lost."""
        self._is_current = False

    def receive(self, paths: Sequence[str]) -> None:
        """Reads only those paths: a node whose watch was lost stays as it was."""
        mine = [path for path in paths if below(self._root, path) and self._is_seen(path)]
        if not mine or self._published is None:
            return
        with self._store.lock:
            nodes = dict(self._published)
            for path in mine:
                node = self._store.node(path)
                if node is None:
                    nodes.pop(path, None)
                else:
                    nodes[path] = node
            differs = self._publish(nodes)
        if differs:
            self._changed()

    def close(self) -> None:
        self._client.forget(self)

    def _is_seen(self, path: str) -> bool:
        return not self._is_leaf(_parent(path))

    def _publish(self, nodes: Mapping[str, Node]) -> bool:
        if self._published is not None and self._published == nodes:
            return False
        self._published = MappingProxyType(dict(nodes))
        return True


def below(root: str, path: str) -> bool:
    """True at a path or below it."""
    return path == root or path.startswith(f"{root.rstrip('/')}/")


def _parent(path: str) -> str:
    return "" if path == "/" else path.rpartition("/")[0] or "/"


def _name(path: str) -> str:
    return path.rpartition("/")[2]
