"""Edits of intent nodes in ZooKeeper: conditional, idempotent, and visible to the next read.

Every write names the version that it was decided on and carries a request id, so that a write whose
response was lost is read back and not made twice (`ureplicator_common.coordination.edit`). The leader
writes to the same nodes (a worker's slots, a first position), so a conflict is a normal case: the
decision is made again on the node as it is then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import TypeVar

from ureplicator_common.coordination import Coordination, Node
from ureplicator_common.coordination.edit import Edit, edit
from ureplicator_common.znodes import UnreadableContent
from ureplicator_controller.api.http.problems import Problem
from ureplicator_controller.api.services.fleet_cache import FleetCache

WRITE_TIMEOUT_S = 1.5
"""Retries of a contended write, or of one of unknown outcome: REST responds within 2 s."""

T = TypeVar("T")


class NodeEditor:
    """Edits nodes, and waits until the fleet cache shows the edit."""

    def __init__(self, *, coordination: Coordination, fleet: FleetCache) -> None:
        self._coordination = coordination
        self._fleet = fleet

    def edit(
        self,
        path: str,
        decide: Callable[[Node | None], Edit[T]],
        applied: Callable[[Node | None], bool],
        *,
        expected: Callable[[Node | None], bool] = lambda node: True,
        also: Sequence[str] = (),
    ) -> T:
        """Arguments and errors as of `coordination.edit`."""
        result = edit(
            self._coordination,
            path,
            decide,
            applied,
            timeout_s=WRITE_TIMEOUT_S,
            expected=expected,
            also=also,
        )
        self._fleet.settle(path)
        return result

    def edit_latest(
        self,
        path: str,
        decide: Callable[[Node | None], Edit[T]],
        applied: Callable[[Node | None], bool],
        *,
        expected: Callable[[Node | None], bool] = lambda node: True,
    ) -> T:
        """`edit`, decided on a node that is not behind: for callers that have not read it before."""
        self._coordination.sync(path)
        return self.edit(path, decide, applied, expected=expected)


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
