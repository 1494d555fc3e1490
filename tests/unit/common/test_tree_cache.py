"""A followed tree ends as the real one, whatever changes between its reads.

The server here gives one-time watches, as ZooKeeper does, and lets the tree change between any two
requests of one bulk read: a cache that marks too little misses such a change.
"""

from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ureplicator_common.coordination import (
    Conflict,
    Create,
    Delete,
    Node,
    Operation,
    Set,
    Stat,
    no_leaf,
)
from ureplicator_common.coordination.tree_cache import Tree
from ureplicator_testkit.control.memory_coordination import MemoryStore

ROOT = "/r"
PATHS = [ROOT, "/r/a", "/r/a/x", "/r/a/y", "/r/b", "/r/b/x"]


def is_deep(path: str) -> bool:
    return path.count("/") == 3


changes = st.one_of(
    st.builds(Create, st.sampled_from(PATHS), st.binary(max_size=1)),
    st.builds(Set, st.sampled_from(PATHS), st.binary(max_size=1), st.just(-1)),
    st.builds(Delete, st.sampled_from(PATHS)),
)


class WatchingServer:
    """A `Reader`: applies the next change, if any, before each of its responses."""

    def __init__(self, changing: Sequence[Operation | None]) -> None:
        self.store = MemoryStore()
        self._session = self.store.open_session()
        self._changing: Iterator[Operation | None] = iter(changing)
        self._content_watches: set[str] = set()
        self._child_watches: set[str] = set()
        self.contents: set[str] = set()
        self.children: set[str] = set()
        self.listed: set[str] = set()

    def read(
        self, contents: Sequence[str], children: Sequence[str]
    ) -> tuple[list[Node | None], list[Sequence[str] | None]]:
        return [self._content(path) for path in contents], [self._names(p) for p in children]

    def check(self, paths: Sequence[str]) -> list[tuple[Stat, int] | None]:
        return [self._checked(path) for path in paths]

    def _checked(self, path: str) -> tuple[Stat, int] | None:
        self.change()
        self._content_watches.add(path)
        node = self.store.node(path)
        return None if node is None else (node.stat, len(self.store.children(path)))

    def exists(self, path: str) -> bool:
        self.change()
        self._content_watches.add(path)
        return self.store.node(path) is not None

    def change(self) -> bool:
        """The next change, with its events; False if there are no more."""
        for operation in self._changing:
            if operation is not None:
                self._try(operation)
            return True
        return False

    def lose(self, changing: Sequence[Operation]) -> None:
        """Change without events: the watches are lost."""
        self._content_watches.clear()
        self._child_watches.clear()
        for operation in changing:
            self._try(operation)

    def go_on(self, changing: Sequence[Operation | None]) -> None:
        """Further changes."""
        self._changing = iter(changing)

    def marks(self) -> tuple[set[str], set[str]]:
        marks, self.contents, self.children = (self.contents, self.children), set(), set()
        return marks

    def _content(self, path: str) -> Node | None:
        self.change()
        node = self.store.node(path)
        if node is not None:
            self._content_watches.add(path)
        return node

    def _names(self, path: str) -> Sequence[str] | None:
        self.change()
        if self.store.node(path) is None:
            return None
        self._child_watches.add(path)
        self.listed.add(path)
        return self.store.children(path)

    def _try(self, operation: Operation) -> None:
        try:
            self.store.apply(self._session, [operation])
        except Conflict:
            return
        parent = operation.path.rpartition("/")[0]
        whole = not isinstance(operation, Set)
        self._fire(self._content_watches, operation.path, whole=whole)
        if whole:
            self._fire(self._child_watches, parent, whole=False)
        if isinstance(operation, Delete):
            self._fire(self._child_watches, operation.path, whole=True)

    def _fire(self, watches: set[str], path: str, *, whole: bool) -> None:
        if path not in watches:
            return
        watches.remove(path)
        if whole or watches is self._content_watches:
            self.contents.add(path)
        if whole or watches is self._child_watches:
            self.children.add(path)


@pytest.mark.parametrize("is_leaf", [no_leaf, is_deep])
@settings(max_examples=150, deadline=None)
@given(
    before=st.lists(changes, max_size=8),
    during=st.lists(st.one_of(st.none(), changes), max_size=40),
)
@example(  # made again between the reads that found its name and that missed its content
    before=[Create("/r", b""), Create("/r/a", b"")],
    during=[None, None, Delete("/r/a"), Create("/r/a", b"again")],
)
def test_a_tree_ends_as_the_real_one(
    is_leaf: Callable[[str], bool], before: list[Operation], during: list[Operation | None]
) -> None:
    server = WatchingServer([*before, *during])
    for _ in before:
        server.change()
    server.marks()
    tree = Tree(ROOT, reader=server, is_leaf=is_leaf)
    tree.load()
    while True:
        contents, children = server.marks()
        if contents or children:
            tree.read_again(contents=contents, children=children)
        elif not server.change():
            break
    assert tree.nodes == server.store.subtree(ROOT)


@pytest.mark.parametrize("gone", ["/r/a", "/r/a/x"])
def test_what_is_gone_is_forgotten_with_all_below(gone: str) -> None:
    made = [Create(path, b"") for path in ("/r", "/r/a", "/r/a/x")]
    server = WatchingServer(made)
    while server.change():
        pass
    tree = Tree(ROOT, reader=server)
    tree.load()
    for path in ("/r/a/x", "/r/a"):
        if path.startswith(gone):
            server.store.apply(server._session, [Delete(path)])
    tree.read_again(contents=set(), children={gone.rpartition("/")[0]})
    assert tree.nodes == server.store.subtree(ROOT)


@pytest.mark.parametrize("is_leaf", [no_leaf, is_deep])
@settings(max_examples=150, deadline=None)
@given(
    before=st.lists(changes, max_size=12),
    lost=st.lists(changes, min_size=1, max_size=8),
    during=st.lists(st.one_of(st.none(), changes), max_size=10),
)
@example(  # one child instead of another: their number is the same
    before=[Create("/r", b""), Create("/r/a", b"")],
    lost=[Delete("/r/a"), Create("/r/b", b"")],
    during=[],
)
def test_nodes_compared_in_turn_make_up_for_lost_watches(
    is_leaf: Callable[[str], bool],
    before: list[Operation],
    lost: list[Operation],
    during: list[Operation | None],
) -> None:
    """Some changes are not reported, and no later change of a node's children is, until that is noticed."""
    server = WatchingServer(before)
    while server.change():
        pass
    tree = Tree(ROOT, reader=server, is_leaf=is_leaf)
    tree.load()
    server.lose(lost)
    server.go_on(during)
    for _ in range(len(during) + 4):
        paths = [*tree.nodes] or [ROOT]
        for begin in range(0, len(paths), 2):
            contents, children = tree.outdated(paths[begin : begin + 2])
            marked = server.marks()
            tree.read_again(contents=contents | marked[0], children=children | marked[1])
    while server.change():
        pass
    for _ in range(4):
        contents, children = tree.outdated([*tree.nodes] or [ROOT])
        tree.read_again(contents=contents, children=children)
    assert tree.nodes == server.store.subtree(ROOT)


def test_a_leaf_is_not_asked_for_children() -> None:
    server = WatchingServer([Create(path, b"") for path in PATHS])
    while server.change():
        pass
    tree = Tree(ROOT, reader=server, is_leaf=is_deep)
    tree.load()
    tree.read_again(contents=set(PATHS), children=set(PATHS))
    assert tree.nodes == server.store.subtree(ROOT)
    assert server.listed == {ROOT, "/r/a", "/r/b"}
