"""Executor: performs a plan's steps in order, each write fenced by the leader's epoch.

Consecutive steps share a transaction as far as there is room: stopping after any step is safe, so
stopping after a group of them is, and a rebalance of a large fleet does not take a thousand round
trips. A conflict in one of them refuses all; the next plan is made on the state of that time.

Steps come vetted (`core.vetting`): encoded, and admitted by the invariants. So a planner's mistake and a
node that is too big are known before the first write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

from ureplicator_common.coordination import (
    TRANSACTION_LIMIT_BYTES,
    Coordination,
    Create,
    Delete,
    Operation,
)
from ureplicator_common.znodes.paths import Paths
from ureplicator_controller.core.planning.steps import Evict
from ureplicator_controller.core.vetting import VettedSteps
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_controller.engines.fenced_writer import FencedWriter, WriteOutcome
from ureplicator_controller.engines.observer import Observer

BATCH_OPERATIONS = 64
"""One round trip and one disk write of ZooKeeper for this many nodes, and the most that a conflict
repeats."""
BATCH_BYTES = TRANSACTION_LIMIT_BYTES // 2
"""Well below the limit with the overhead of each operation, unless a single node exceeds it."""


class PlanOutcome(StrEnum):
    """Outcome of executing a plan."""

    QUIET = "quiet"
    DONE = "done"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"
    VIOLATION = "violation"
    DEPOSED = "deposed"


class Executor:
    """Performs the leader's writes."""

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
        self._writer = FencedWriter(coordination, paths=paths, metrics=metrics)
        self._ensured: set[str] = set()

    def execute(self, vetted: VettedSteps, epoch: int) -> PlanOutcome:
        """Perform the steps in order. Raises Unavailable; what was written before stays, and is safe."""
        if not self._evictions_are_current(vetted):
            return PlanOutcome.CONFLICT
        for batch in batches(iter(vetted.operations)):
            written = self.write(batch, epoch)
            if written is not WriteOutcome.DONE:
                return PlanOutcome(written)
            self._metrics.evictions.inc(self._evictions_in(batch))
        if vetted.refused:
            return PlanOutcome.VIOLATION
        return PlanOutcome.DONE if vetted.steps else PlanOutcome.QUIET

    def _evictions_are_current(self, vetted: VettedSteps) -> bool:
        """True if the live nodes to delete still belong to the sessions that the plan evicts: the version
        of an ephemeral node does not show that. Those that do not are read again."""
        for step, writes in zip(vetted.steps, vetted.operations, strict=True):
            if isinstance(step, Evict):
                node = self._coordination.get(self._paths.worker_live(step.worker))
                if node is None or node.stat.owner != step.session:
                    self._observer.doubt(writes)
                    return False
        return True

    def _evictions_in(self, batch: Sequence[Operation]) -> int:
        """Number of live nodes that the batch deletes."""
        live = self._paths.workers_live
        return sum(
            isinstance(operation, Delete) and operation.path.startswith(live) for operation in batch
        )

    def write(self, batch: Sequence[Operation], epoch: int) -> WriteOutcome:
        """One fenced transaction. Raises Unavailable."""
        self._ensure_parents(batch)
        written = self._writer.write(batch, epoch=epoch)
        if written is WriteOutcome.DONE:
            self._observer.expect(batch)
        else:
            self._observer.doubt(batch)
        return written

    def _ensure_parents(self, batch: Sequence[Operation]) -> None:
        """Create missing parents without a fence: an empty persistent parent has no effect."""
        for operation in batch:
            if isinstance(operation, Create):
                parent = operation.path.rpartition("/")[0]
                if parent not in self._ensured:
                    self._coordination.ensure(parent)
                    self._ensured.add(parent)


def batches(steps: Iterator[Sequence[Operation]]) -> Iterator[list[Operation]]:
    """Group whole steps up to the limits; a step above the limits is a batch of its own."""
    batch: list[Operation] = []
    size_bytes = 0
    for written in steps:
        step_bytes = sum(
            len(getattr(operation, "data", b"")) + len(operation.path) for operation in written
        )
        full = len(batch) + len(written) > BATCH_OPERATIONS or size_bytes + step_bytes > BATCH_BYTES
        if batch and full:
            yield batch
            batch, size_bytes = [], 0
        batch.extend(written)
        size_bytes += step_bytes
    if batch:
        yield batch
