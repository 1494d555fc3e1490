"""Tree cache: load a subtree, mark what its watches name, read only that again.

A watch reports that something happened at a path, not what, and it fires once. So the cache keeps two
sets of marks, paths whose content and paths whose children must be read again, and every read leaves
a new watch in the same step: a change after the read marks the path once more.

    watch fires --> mark --+
    new connection --------+--> thread of the cache reads marked paths --> publish --> changed()
    failed read -----------+    and what is new below them

* Marks made during a read wait for the next one: a burst of changes becomes few reads.
* A watch ends with its connection, so each new connection marks everything. It is read into an empty
  tree, so nodes that were deleted meanwhile are removed from the copy.
* A node is watched for children even if it has none today, since a content watch does not report the
  first child. Nodes that never have one (`is_leaf`) are not: that is half of the requests for a tree of
  thousands of topics.
* A published mapping is never changed: a reader may keep it as long as it likes.
* A lost watch would leave a node outdated for ever. So the owner has nodes verified, some at a time: a
  request for each, without its content, shows whether the content or the children have changed.

Blocking reads happen only in the cache's own thread (or in the one that calls `refresh`): the threads of
the client library must stay free to deliver the responses that are waited for.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from ureplicator_common.coordination import Node, Stat, Unavailable, no_leaf

log = logging.getLogger(__name__)

RETRY_S = 1.0
"""Time from a failed load to the next one, unless a new connection comes first, which is what usually
repairs it."""


class Reader(Protocol):
    """Bulk reads of a server, each leaving its watch behind."""

    def read(
        self, contents: Sequence[str], children: Sequence[str]
    ) -> tuple[list[Node | None], list[Sequence[str] | None]]:
        """Contents and names of children, None where there is no node. Raises Unavailable."""
        ...

    def check(self, paths: Sequence[str]) -> list[tuple[Stat, int] | None]:
        """Stat and number of children, None where there is no node. Leaves a watch for the content; that
        of the children remains as it is. Raises Unavailable."""
        ...

    def exists(self, path: str) -> bool:
        """True if the node exists; the watch fires when that changes. Raises Unavailable."""
        ...


class Tree:
    """One subtree as last read. Not shared between threads; `nodes` is copied when published."""

    def __init__(
        self, root: str, *, reader: Reader, is_leaf: Callable[[str], bool] = no_leaf
    ) -> None:
        self._root = root
        self._reader = reader
        self._is_leaf = is_leaf
        self._children: dict[str, set[str]] = {}
        """Names of the children of a path: of those that are in `nodes`, or are read next."""
        self.nodes: dict[str, Node] = {}

    def load(self) -> None:
        """Read everything. Raises Unavailable; the tree must not be used then."""
        self.read_again(contents={self._root}, children={self._root})

    def read_again(self, *, contents: set[str], children: set[str]) -> None:
        """Read the marked paths, and below them all nodes that are new."""
        while contents or children:
            marked = sorted(contents)
            listed = sorted(path for path in children if not self._is_leaf(path))
            nodes, names = self._reader.read(marked, listed)
            self._take_contents(dict(zip(marked, nodes, strict=True)))
            fresh = self._take_children(dict(zip(listed, names, strict=True)))
            if self._root in contents and self._root not in self.nodes:
                fresh |= self._await_root()
            contents, children = fresh, set(fresh)

    def outdated(self, paths: Sequence[str]) -> tuple[set[str], set[str]]:
        """Paths of those given whose content, and those whose children differ from the servers'."""
        contents: set[str] = set()
        children: set[str] = set()
        for path, found in zip(paths, self._reader.check(paths), strict=True):
            if found is None:
                contents.add(path)
                children.add(_parent(path) if path != self._root else path)
                continue
            stat, count = found
            if path not in self.nodes or self.nodes[path].stat != stat:
                contents.add(path)
            if len(self._children.get(path, ())) != count:
                children.add(path)
        return contents, children

    def _take_contents(self, read: Mapping[str, Node | None]) -> None:
        for path, node in read.items():
            if node is None:
                self._forget(path)
                self._children.get(_parent(path), set()).discard(_name(path))
            else:
                self.nodes[path] = node

    def _take_children(self, read: Mapping[str, Sequence[str] | None]) -> set[str]:
        """Store the names, drop deleted nodes, return new paths. A folder of 10,000 names is read again for
        each burst of new ones: only what differs is looked at."""
        fresh: set[str] = set()
        for path, names in read.items():
            now, known = set(names or ()), self._children.get(path, set())
            below = path.rstrip("/")
            for gone in known - now:
                self._forget(f"{below}/{gone}")
            fresh |= {f"{below}/{name}" for name in now - known}
            if names is None:
                self._children.pop(path, None)
            else:
                self._children[path] = now
        return fresh

    def _forget(self, path: str) -> None:
        self.nodes.pop(path, None)
        below = path.rstrip("/")
        for name in self._children.pop(path, ()):
            self._forget(f"{below}/{name}")

    def _await_root(self) -> set[str]:
        """A content read of an absent node leaves no watch; an exists request does."""
        return {self._root} if self._reader.exists(self._root) else set()


@dataclass(slots=True)
class _Marks:
    """Paths to read again; everything at first. `verified`: number of nodes to compare with the servers."""

    everything: bool = True
    contents: set[str] = field(default_factory=set)
    children: set[str] = field(default_factory=set)
    verified: int = 0

    def any(self) -> bool:
        return self.everything or bool(self.contents or self.children or self.verified)


class WatchedTreeCache:
    """A `TreeCache` over a `Reader`, with one thread. `closed` is called with it when it closes."""

    def __init__(
        self,
        root: str,
        *,
        reader: Reader,
        changed: Callable[[], None],
        closed: Callable[[WatchedTreeCache], None],
        is_leaf: Callable[[str], bool] = no_leaf,
    ) -> None:
        self._root = root
        self._reader = reader
        self._is_leaf = is_leaf
        self._changed = changed
        self._on_close = closed
        self._reading = threading.Lock()
        self._tree = Tree(root, reader=reader, is_leaf=is_leaf)
        self._unverified: list[str] = []
        self._published: Mapping[str, Node] | None = None
        self._wake = threading.Condition()
        self._marks = _Marks()
        self._connection_changes = 0
        self._read_at_change = -1
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"tree cache {root}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def nodes(self) -> Mapping[str, Node]:
        published = self._published
        if published is None:
            raise Unavailable(f"{self._root} was not read yet")
        return published

    def refresh(self, paths: Collection[str] | None = None) -> None:
        """Marked paths stay marked or everything is, so a failure loses nothing."""
        if self._read(_Marks() if paths is None else self._marks_with(paths)):
            self._changed()

    def _marks_with(self, paths: Collection[str]) -> _Marks:
        """Take all marks, and add these paths."""
        parents = {_parent(path) for path in paths if path != self._root}
        with self._wake:
            marks, self._marks = self._marks, _Marks(everything=False)
        marks.contents |= set(paths)
        marks.children |= parents | set(paths)
        return marks

    def verify(self, count: int) -> None:
        with self._wake:
            self._marks.verified = max(count, self._marks.verified)
            self._wake.notify_all()

    def is_current(self) -> bool:
        return self._read_at_change == self._connection_changes

    def connection_changed(self, *, connected: bool) -> None:
        """Note a change of the connection, which calls this before anyone else is told. Returns at once."""
        with self._wake:
            self._connection_changes += 1
            self._marks.everything |= connected
            self._wake.notify_all()

    def mark(self, path: str, *, contents: bool, children: bool) -> None:
        """Mark a path that a watch has fired for. Any thread; returns at once."""
        with self._wake:
            if contents:
                self._marks.contents.add(path)
            if children:
                self._marks.children.add(path)
            self._wake.notify_all()

    def close(self) -> None:
        """Stop the updates; `nodes()` keeps the last state. May be called from `changed`."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        self._on_close(self)
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while (marks := self._await_marks()) is not None:
            try:
                if self._read(marks):
                    self._changed()
            except Unavailable as error:
                log.debug("tree cache of %s: %s", self._root, error)
                self._pause()
            except Exception:
                log.exception("tree cache of %s", self._root)
                self._pause()

    def _await_marks(self) -> _Marks | None:
        """Wait for marks and take them; None once closed."""
        with self._wake:
            self._wake.wait_for(lambda: self._closed or self._marks.any())
            if self._closed:
                return None
            marks, self._marks = self._marks, _Marks(everything=False)
            return marks

    def _pause(self) -> None:
        """Wait before everything is read again: for a new connection, at most `RETRY_S`."""
        with self._wake:
            self._wake.wait_for(lambda: self._closed or self._marks.everything, RETRY_S)
            self._marks.everything = True

    def _read(self, marks: _Marks) -> bool:
        """Read what is marked and publish it. True if it differs from the mapping before.

        Raises Unavailable: then everything is marked.
        """
        with self._reading:
            read_at_change = self._read_at_change
            if marks.everything:
                read_at_change = self._connection_changes
                tree = Tree(self._root, reader=self._reader, is_leaf=self._is_leaf)
                tree.load()
                self._tree = tree
            else:
                self._read_marked(marks)
            differs = self._published is None or self._published != self._tree.nodes
            if differs:
                self._published = MappingProxyType(dict(self._tree.nodes))
            self._read_at_change = read_at_change
            return differs

    def _read_marked(self, marks: _Marks) -> None:
        try:
            contents, children = self._tree.outdated(self._next_unverified(marks.verified))
            self._tree.read_again(
                contents=marks.contents | contents, children=marks.children | children
            )
        except BaseException:
            with self._wake:
                self._marks.everything = True
            raise

    def _next_unverified(self, count: int) -> list[str]:
        """The next nodes in turn; each once in a round."""
        if count and not self._unverified:
            self._unverified = [*self._tree.nodes] or [self._root]
        rest = max(0, len(self._unverified) - count)
        taken, self._unverified = self._unverified[rest:], self._unverified[:rest]
        return taken


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"
