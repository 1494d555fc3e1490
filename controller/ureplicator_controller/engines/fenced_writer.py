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
)
from ureplicator_common.znodes import Paths
from ureplicator_controller.engines.metrics import ControlMetrics

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
