"""Performs a plan: its steps in order, each write fenced by the leader's epoch.

Steps that follow each other share a transaction as far as there is room: stopping after any step is
safe, so stopping only after some of them is, and a rebalance of a big fleet is not a thousand round
trips. What one of them meets refuses all of them; the next plan is made on what is there then.

Before a step is sent, the ledger must admit it (`core.invariants`): a planner's mistake ends the
cycle before it is written.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from enum import StrEnum

from ureplicator_common.coordination import (
    TRANSACTION_LIMIT_BYTES,
    Check,
    Conflict,
    Coordination,
    Create,
    Operation,
    OutcomeUnknown,
)
from ureplicator_common.znodes import Paths
from ureplicator_controller.core.planning.invariants import InvariantChecker
from ureplicator_controller.core.planning.steps import Evict, Step, operations
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.engines.metrics import ControlMetrics
from ureplicator_controller.engines.observer import Observer

log = logging.getLogger(__name__)

BATCH_OPERATIONS = 64
"""A round trip and one write to disk at the store for so many nodes; a conflict repeats no more."""
BATCH_BYTES = TRANSACTION_LIMIT_BYTES // 2
"""With the overhead of each operation well below the limit, unless one node alone is above it."""


class Outcome(StrEnum):
    """How a plan ended."""

    QUIET = "quiet"
    DONE = "done"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"
    VIOLATION = "violation"
    DEPOSED = "deposed"


class Executor:
    """Writes for the leader."""

    def __init__(
        self,
        coordination: Coordination,
        *,
        paths: Paths,
        observer: Observer,
        metrics: ControlMetrics,
    ) -> None:
        self._coordination = coordination
        self._paths = paths
        self._observer = observer
        self._metrics = metrics
        self._ensured: set[str] = set()

    def execute(self, steps: Sequence[Step], snapshot: Snapshot, epoch: int) -> Outcome:
        """Raises Unavailable; what was written before stays, and is safe."""
        if not steps:
            return Outcome.QUIET
        ledger = InvariantChecker(snapshot)
        admitted: list[Step] = []
        for step in steps:
            violations = ledger.admit(step)
            if violations:
                self._metrics.violations.inc(len(violations))
                log.error("step refused: %s: %s", type(step).__name__, violations[0])
                break
            admitted.append(step)
        if not self._still_meant(admitted):
            self._observer.doubt()
            return Outcome.CONFLICT
        for batch in batches(operations(step, self._paths) for step in admitted):
            outcome = self.write(batch, epoch)
            if outcome is not Outcome.DONE:
                return outcome
        return Outcome.DONE if len(admitted) == len(steps) else Outcome.VIOLATION

    def _still_meant(self, steps: Sequence[Step]) -> bool:
        """The live nodes to be deleted are those sessions' own: a version does not tell."""
        for step in steps:
            if isinstance(step, Evict):
                node = self._coordination.get(self._paths.worker_live(step.worker))
                if node is None or node.stat.owner != step.session:
                    return False
                self._metrics.evictions.inc()
        return True

    def write(self, batch: Sequence[Operation], epoch: int) -> Outcome:
        """One fenced transaction. Raises Unavailable."""
        self._ensure_parents(batch)
        check = Check(self._paths.epoch, epoch)
        try:
            self._coordination.transact([check, *batch])
        except Conflict as conflict:
            self._observer.doubt()
            if conflict.operation == check:
                return Outcome.DEPOSED
            log.info("conflict, planning again: %s", conflict)
            return Outcome.CONFLICT
        except OutcomeUnknown as error:
            self._observer.doubt()
            log.warning("a write had no answer, reading back: %s", error)
            return Outcome.UNKNOWN
        self._observer.expect(batch)
        self._metrics.writes.inc(len(batch))
        return Outcome.DONE

    def _ensure_parents(self, batch: Sequence[Operation]) -> None:
        """An empty persistent parent harms nobody, so it needs no fence."""
        for operation in batch:
            if isinstance(operation, Create):
                parent = operation.path.rpartition("/")[0]
                if parent not in self._ensured:
                    self._coordination.ensure(parent)
                    self._ensured.add(parent)


def batches(steps: Iterator[Sequence[Operation]]) -> Iterator[list[Operation]]:
    """Whole steps together, up to the limits; one that is too big alone goes alone."""
    batch: list[Operation] = []
    size_bytes = 0
    for written in steps:
        step_bytes = sum(len(getattr(each, "data", b"")) + len(each.path) for each in written)
        full = len(batch) + len(written) > BATCH_OPERATIONS or size_bytes + step_bytes > BATCH_BYTES
        if batch and full:
            yield batch
            batch, size_bytes = [], 0
        batch.extend(written)
        size_bytes += step_bytes
    if batch:
        yield batch
