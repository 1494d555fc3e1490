"""Transactions of the leader, each fenced by its epoch.

The epoch node's version grows with every election. A transaction that checks the version it was
elected with is refused as a whole once another leader was elected, even if the writer was suspended
for any time between its decision and its write (see `engines.leadership`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import StrEnum

from ureplicator_common.coordination import (
    Check,
    Conflict,
    Coordination,
    Operation,
    OutcomeUnknown,
    create_or_set,
    version_of,
)
from ureplicator_common.znodes.paths import Paths
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics

log = logging.getLogger(__name__)


class WriteOutcome(StrEnum):
    """Result of a fenced transaction. Only DONE is certain to be written, UNKNOWN may be."""

    DONE = "done"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"
    DEPOSED = "deposed"


def fenced(operations: Sequence[Operation], *, paths: Paths, epoch: int) -> list[Operation]:
    """Operations of one transaction that holds only while `epoch` is the current one."""
    return [Check(paths.epoch, epoch), *operations]


class FencedWriter:
    """Writes for the leader. What was not written is decided again, on the nodes as they are then."""

    def __init__(
        self, coordination: Coordination, *, paths: Paths, metrics: ControlMetrics
    ) -> None:
        self._coordination = coordination
        self._paths = paths
        self._metrics = metrics

    def write(self, operations: Sequence[Operation], *, epoch: int) -> WriteOutcome:
        """One transaction. Raises Unavailable."""
        transaction = fenced(operations, paths=self._paths, epoch=epoch)
        try:
            self._coordination.transact(transaction)
        except Conflict as conflict:
            if conflict.operation == transaction[0]:
                return WriteOutcome.DEPOSED
            log.info("conflict, deciding again: %s", conflict)
            return WriteOutcome.CONFLICT
        except OutcomeUnknown as error:
            log.warning("outcome of a write unknown, deciding again: %s", error)
            return WriteOutcome.UNKNOWN
        self._metrics.writes.inc(len(operations))
        return WriteOutcome.DONE


class FencedNode:
    """A node that the leader alone writes: each time at the version that it has read or written last."""

    def __init__(self, coordination: Coordination, path: str, writer: FencedWriter) -> None:
        self.path = path
        self._coordination = coordination
        self._writer = writer
        self._version: int | None = None

    def read(self) -> bytes | None:
        """None: there is no such node. Raises Unavailable."""
        node = self._coordination.get(self.path)
        self._version = version_of(node)
        return None if node is None else node.data

    def write(self, data: bytes, *, epoch: int) -> bool:
        """True if it is written down: this process leads, and knew the node as it was. Raises Unavailable."""
        operation = create_or_set(self.path, data, self._version)
        if self._writer.write([operation], epoch=epoch) is not WriteOutcome.DONE:
            return False
        self._version = 0 if self._version is None else self._version + 1
        return True
