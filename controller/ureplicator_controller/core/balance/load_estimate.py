"""Estimate of the bytes per second that each worker copies, for the choice of workers."""

from __future__ import annotations

from collections.abc import Mapping

from ureplicator_common.model import Partition, WorkerId
from ureplicator_controller.core.state.loads import NEGLIGIBLE_BYTES_PER_S, Rates

LOAD_LEVEL = 0.1
"""Fraction of the average load: workers that differ by less count as equally loaded."""


def widths(slots: Mapping[WorkerId, int]) -> dict[WorkerId, float]:
    """Slots of each worker relative to the average: 1.0 where all have as many."""
    total = sum(slots.values())
    return {worker: number * len(slots) / total for worker, number in slots.items()}


class LoadEstimate:
    """Load of each eligible worker: the rates that it measured itself, and the average rate for each other
    partition of its own. Without rates all loads are 0.

    What a worker measured may still have a partition that has moved away since, for the seconds until it
    writes the next figures. A worker with twice the slots is to copy twice as much: loads are divided by
    `widths` before they are compared.
    """

    def __init__(
        self, counts: Mapping[WorkerId, int], slots: Mapping[WorkerId, int], rates: Rates
    ) -> None:
        self._rates: dict[Partition, float] = {}
        for measured in rates.values():
            self._rates.update(measured)
        self._average_rate = sum(self._rates.values()) / len(self._rates) if self._rates else 0.0
        self._widths = widths(slots)
        self._loads = {
            worker: self._load(count, rates.get(worker, {})) for worker, count in counts.items()
        }
        self._average = sum(self._loads.values()) / max(1, len(self._loads))
        self.matters = self._average > NEGLIGIBLE_BYTES_PER_S
        self._step = max(self._average * LOAD_LEVEL, NEGLIGIBLE_BYTES_PER_S)

    def _load(self, count: int, measured: Mapping[Partition, float]) -> float:
        return sum(measured.values()) + max(0, count - len(measured)) * self._average_rate

    def rate(self, partition: Partition) -> float:
        """Bytes per second."""
        return self._rates.get(partition, self._average_rate)

    def level(self, worker: WorkerId) -> int:
        """Load in steps: workers on the same level count as equally loaded."""
        return int(self._loads.get(worker, 0.0) / self._widths.get(worker, 1.0) // self._step)

    def surplus(self, worker: WorkerId) -> float:
        """Bytes per second above the worker's share."""
        return self._loads[worker] - self._average * self._widths[worker]

    def add(self, worker: WorkerId, rate: float) -> None:
        if worker in self._loads:
            self._loads[worker] += rate
