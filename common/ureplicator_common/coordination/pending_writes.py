"""Read-your-writes on a tree cache.

A tree cache receives a write by a watch, some milliseconds after the servers acknowledged it. A process
that decides on the cache in between decides on nodes that it has changed itself. So it notes its writes
here, and does not use the cache until `are_shown_by` is true for its nodes.

    written          shown when the cache holds
    -------          --------------------------
    Create           a node, other than the one that was deleted before at that path
    Set              a node of that version or a later one
    Delete           no node, or another one than the deleted
    `expect(node)`   that node as it was read, or a later state of it

A node that another process deleted meanwhile is never shown: the owner must not wait without a limit, but
refresh the cache after some time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ureplicator_common.coordination import Create, Delete, Node, Operation, Set


@dataclass(frozen=True, slots=True)
class _Expectation:
    """Node that the cache must show. `replaced_czxid`: the node that must be gone (0: none)."""

    may_exist: bool = True
    must_exist: bool = True
    min_version: int = 0
    min_mzxid: int = 0
    replaced_czxid: int = 0

    def is_met_by(self, node: Node | None) -> bool:
        if node is None:
            return not self.must_exist
        return (
            self.may_exist
            and node.stat.version >= self.min_version
            and node.stat.mzxid >= self.min_mzxid
            and node.stat.czxid != self.replaced_czxid
        )


class PendingWrites:
    """Writes that are acknowledged and that the tree cache may not show yet."""

    def __init__(self) -> None:
        self._expected: dict[str, _Expectation] = {}

    def add(self, operations: Sequence[Operation], nodes: Mapping[str, Node]) -> None:
        """Operations of an acknowledged transaction; `nodes`: what the cache shows now."""
        for operation in operations:
            path = operation.path
            match operation:
                case Create():
                    self._expected[path] = _Expectation(replaced_czxid=self._replaced(path))
                case Set(_, _, version):
                    self._expected[path] = _Expectation(
                        min_version=version + 1, replaced_czxid=self._replaced(path)
                    )
                case Delete() if path in nodes:
                    self._expected[path] = _Expectation(
                        must_exist=False, replaced_czxid=nodes[path].stat.czxid
                    )
                case Delete():
                    self._expected.pop(path, None)

    def expect(self, path: str, node: Node | None) -> None:
        """Expect the result of a read of the servers."""
        if node is None:
            self._expected[path] = _Expectation(may_exist=False, must_exist=False)
        else:
            self._expected[path] = _Expectation(min_mzxid=node.stat.mzxid)

    def are_shown_by(self, nodes: Mapping[str, Node]) -> bool:
        """All of them; then they are pending no more."""
        if all(expected.is_met_by(nodes.get(path)) for path, expected in self._expected.items()):
            self._expected.clear()
            return True
        return False

    def paths(self) -> Collection[str]:
        """Paths that are pending."""
        return self._expected.keys()

    def clear(self) -> None:
        """Forget all writes, after a refresh of the cache, or of these paths, behind a `sync`."""
        self._expected.clear()

    def _replaced(self, path: str) -> int:
        before = self._expected.get(path)
        return before.replaced_czxid if before else 0
