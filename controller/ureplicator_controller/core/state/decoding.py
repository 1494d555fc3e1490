"""Decoded nodes of the tree, kept from one snapshot to the next.

Between two snapshots of a large fleet hardly any node changes, and there are tens of thousands. So nodes are
kept by *sections*: all those at one depth below a path, such as the intents of all topics. If each node of
a section is the object that it was, which is found out without a loop in Python, the section is returned as
it was. Otherwise the nodes whose stat differs are decoded, and the others keep their values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ureplicator_common.coordination import Node, Stat
from ureplicator_common.model import SessionId
from ureplicator_common.znodes.codec import UnreadableContent

T = TypeVar("T")
K = TypeVar("K")

Names = Mapping[tuple[str, int], Sequence[str]]
"""Path and number of levels -> names below it, with a `/` between two levels."""
_NONE: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Stored(Generic[T]):
    """A decoded value with the parts of the node's stat that decisions and writes need."""

    value: T
    version: int
    mzxid: int
    owner: SessionId


@dataclass(frozen=True, slots=True)
class UnreadableNode:
    """A node whose data could not be decoded, with the reason."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class _Entry(Generic[K, T]):
    """Entry of one node. `stored` is None if it is unreadable, then there is a reason; `key` is None if the
    name of the node is none of a key."""

    key: K | None
    stored: Stored[T] | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Section(Generic[K, T]):
    """The nodes at one depth below a path. `good`: by key; `bad`: keys of those that cannot be decoded."""

    names: Sequence[str]
    paths: Sequence[str]
    nodes: Sequence[Node]
    entries: Sequence[_Entry[K, T]]
    good: Mapping[K, Stored[T]]
    bad: Sequence[K]
    unreadable: Sequence[UnreadableNode]


class DecodeCache:
    """Decoded values of one tree after the other. Used by one thread at a time, but for `read`."""

    def __init__(self) -> None:
        self._sections: dict[tuple[str, int], Section[Any, Any]] = {}
        self._before: dict[str, tuple[Stat, Any]] = {}
        self._now: dict[str, tuple[Stat, Any]] = {}
        self._paths: Set[str] = frozenset()
        self._names: Names = {}

    def names(self, nodes: Mapping[str, Node]) -> Names:
        """Names below each path, sorted again only when nodes were created or deleted. The list of a path is
        another object only if one of its names is."""
        if self._paths != nodes.keys():
            before, now = self._names, _index(nodes)
            self._paths = frozenset(nodes)
            self._names = {
                where: before[where] if before.get(where) == names else names
                for where, names in now.items()
            }
        return self._names

    def section(
        self,
        nodes: Mapping[str, Node],
        names: Sequence[str],
        root: str,
        levels: int,
        *,
        key_of: Callable[[str], K],
        decode: Callable[[bytes], T],
    ) -> Section[K, T]:
        """All nodes `levels` below `root`, which have these names. `key_of` raises ValueError for a name that
        is none of a key."""
        before: Section[K, T] | None = self._sections.get((root, levels))
        if before is not None and before.names is names:
            paths = before.paths
        else:
            paths = [f"{root}/{name}" for name in names]
        present = [nodes[path] for path in paths]
        if before is not None and paths is before.paths and present == before.nodes:
            return before
        known = _known(before)
        entries = [
            _entry(known.get(path), node, name, key_of, decode)
            for path, node, name in zip(paths, present, names, strict=True)
        ]
        found = self._sections[root, levels] = _section(names, paths, present, entries)
        return found

    def read(self, path: str, node: Node, decode: Callable[[bytes], T]) -> Stored[T]:
        """Decode a single node, or return its cached value. Raises whatever `decode` raises."""
        cached = self._before.get(path)
        if cached is None or (cached[0] is not node.stat and cached[0] != node.stat):
            cached = (node.stat, _stored(node, decode))
        self._now[path] = cached
        stored: Stored[T] = cached[1]
        return stored

    def last(self, path: str) -> Stored[Any] | None:
        """The last decoded value of a single node."""
        cached = self._now.get(path) or self._before.get(path)
        stored: Stored[Any] | None = cached[1] if cached else None
        return stored

    def keep(self, path: str) -> None:
        """Keep the last value of a node that nobody may read in this cycle, whether it has changed or not."""
        if path in self._before:
            self._now.setdefault(path, self._before[path])

    def end_cycle(self) -> None:
        """Drop the values of single nodes that were not read in this cycle."""
        self._before, self._now = self._now, {}


class NodeDecoder:
    """Decoder of one kind of node after the other, which collects the unreadable ones."""

    def __init__(self, nodes: Mapping[str, Node], cache: DecodeCache) -> None:
        self.cache = cache
        self.unreadable_nodes: list[UnreadableNode] = []
        self._nodes = nodes
        self._names = cache.names(nodes)

    def read(
        self,
        root: str,
        levels: int,
        key_of: Callable[[str], K],
        decode: Callable[[bytes], T],
    ) -> tuple[Mapping[K, Stored[T]], Sequence[K]]:
        """Decode all nodes `levels` below `root`; also return the keys of the unreadable ones."""
        names = self._names.get((root, levels), _NONE)
        found = self.cache.section(self._nodes, names, root, levels, key_of=key_of, decode=decode)
        self.unreadable_nodes += found.unreadable
        return found.good, found.bad

    def read_one(self, path: str, decode: Callable[[bytes], T]) -> Stored[T] | None:
        """Decode a single node; None if it is missing or unreadable."""
        if path not in self._nodes:
            return None
        try:
            return self.cache.read(path, self._nodes[path], decode)
        except UnreadableContent as error:
            self.unreadable_nodes.append(UnreadableNode(path, _cannot_be_read(error)))
            return None


def _known(before: Section[K, T] | None) -> Mapping[str, tuple[Node, _Entry[K, T]]]:
    """Path -> the node and what it was."""
    if before is None:
        return {}
    pairs = zip(before.nodes, before.entries, strict=True)
    return dict(zip(before.paths, pairs, strict=True))


def _entry(
    known: tuple[Node, _Entry[K, T]] | None,
    node: Node,
    name: str,
    key_of: Callable[[str], K],
    decode: Callable[[bytes], T],
) -> _Entry[K, T]:
    """The known entry of the node, unless its stat differs."""
    if known is not None and (known[0] is node or known[0].stat == node.stat):
        return known[1]
    try:
        key = key_of(name)
    except ValueError as error:
        return _Entry(None, reason=str(error))
    try:
        return _Entry(key, _stored(node, decode))
    except UnreadableContent as error:
        return _Entry(key, reason=_cannot_be_read(error))


def _section(
    names: Sequence[str],
    paths: Sequence[str],
    nodes: Sequence[Node],
    entries: Sequence[_Entry[K, T]],
) -> Section[K, T]:
    good: dict[K, Stored[T]] = {}
    bad: list[K] = []
    unreadable: list[UnreadableNode] = []
    for path, entry in zip(paths, entries, strict=True):
        if entry.stored is not None and entry.key is not None:
            good[entry.key] = entry.stored
            continue
        unreadable.append(UnreadableNode(path, entry.reason))
        if entry.key is not None:
            bad.append(entry.key)
    return Section(names, paths, nodes, entries, good, bad, unreadable)


def _stored(node: Node, decode: Callable[[bytes], T]) -> Stored[T]:
    stat = node.stat
    return Stored(decode(node.data), stat.version, stat.mzxid, stat.owner)


def _cannot_be_read(error: UnreadableContent) -> str:
    return f"cannot be read: {error}"


def _index(nodes: Mapping[str, Node]) -> Names:
    """Names of one and of two levels below each path."""
    names: dict[tuple[str, int], list[str]] = {}
    for path in sorted(nodes):
        parent, _, name = path.rpartition("/")
        grandparent, _, parent_name = parent.rpartition("/")
        names.setdefault((parent, 1), []).append(name)
        names.setdefault((grandparent, 2), []).append(f"{parent_name}/{name}")
    return names
