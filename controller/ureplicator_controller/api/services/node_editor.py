"""Edits of intent nodes in ZooKeeper: conditional, idempotent, and visible to the next read.

Every write names the version that it was decided on and carries a request id, so that a write whose
response was lost is read back and not made twice (`ureplicator_common.coordination.edit`). The leader
writes to the same nodes (a worker's slots, a first position), so a conflict is a normal case: the
decision is made again on the node as it is then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from typing import Generic, TypeVar

from ureplicator_common.coordination import Coordination, Create, Delete, Node, Operation, Set
from ureplicator_common.coordination.edit import Edit, edit
from ureplicator_common.znodes.codec import UnreadableContent
from ureplicator_controller.api.http.problems import Problem
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.core.reporting.authorship import cause
from ureplicator_controller.core.reporting.node_changes import node_change

WRITE_TIMEOUT_S = 1.5
"""Retries of a contended write, or of one of unknown outcome: REST responds within 2 s."""

T = TypeVar("T")

log = logging.getLogger(__name__)


class _Seen(Generic[T]):
    """The decision that holds, with the node that it was made on."""

    def __init__(self, decide: Callable[[Node | None], Edit[T]]) -> None:
        self._decide = decide
        self._before: bytes | None = None
        self._operations: Sequence[Operation] = ()

    def __call__(self, node: Node | None) -> Edit[T]:
        decided = self._decide(node)
        self._before, self._operations = node.data if node else None, decided.operations
        return decided

    def changes(self, path: str, root: str) -> Iterator[str]:
        """Changes that were written, in words. Only of the node at `path` is known what was there before."""
        for operation in self._operations:
            before = self._before if operation.path == path else None
            text = _written(operation, before)
            if text:
                yield f"{operation.path.removeprefix(root).lstrip('/')}: {text}"


def _written(operation: Operation, before: bytes | None) -> str:
    match operation:
        case Create(data=data):
            return node_change(None, data)
        case Set(data=data):
            return node_change(before, data)
        case Delete():
            return node_change(before or b"{}", None)
    return ""


class NodeEditor:
    """Edits nodes, logs what was changed, and waits until the fleet cache shows it.

    `request`: reference to the present request. `settles` False: the caller waits for the cache itself,
    once for many edits.
    """

    def __init__(
        self,
        *,
        coordination: Coordination,
        fleet: FleetCache,
        request: Callable[[], str],
        settles: bool = True,
    ) -> None:
        self._coordination = coordination
        self._fleet = fleet
        self._request = request
        self._settles = settles

    def edit(
        self,
        path: str,
        decide: Callable[[Node | None], Edit[T]],
        applied: Callable[[Node | None], bool],
        *,
        expected: Callable[[Node | None], bool] = lambda node: True,
        also: Sequence[str] = (),
        latest: bool = True,
    ) -> T:
        """Arguments and errors as of `coordination.edit`. `latest`: decide on a node that is not behind;
        False for callers that have read it so before."""
        if latest:
            self._coordination.sync(path)
        seen = _Seen(decide)
        result = edit(
            self._coordination,
            path,
            seen,
            applied,
            timeout_s=WRITE_TIMEOUT_S,
            expected=expected,
            also=also,
        )
        for change in seen.changes(path, self._fleet.paths.root):
            log.info("changed %s%s", change, cause(self._request()))
        if self._settles:
            self._fleet.settle(path)
        return result


def decoded(path: str, node: Node, decode: Callable[[bytes], T]) -> T:
    """The node's value. Raises Problem if it cannot be decoded."""
    try:
        return decode(node.data)
    except UnreadableContent as error:
        raise Problem(
            HTTPStatus.INTERNAL_SERVER_ERROR,
            f"node {path} in ZooKeeper cannot be decoded: {error!r}",
            hint="repair or delete that node by hand",
        ) from error
