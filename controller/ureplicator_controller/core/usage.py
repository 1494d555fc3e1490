"""Costs of the copy of each route: bytes, records and processor time between two looks at the workers.

Workers count from their start on (`usage/<worker>`), so what matters is how much the counters grew. A counter
of another start of the worker begins at zero. Growth before the first look is not known: a worker that was
missing at the first look, and is older than it, counts from when it is seen.

A worker copies several routes with the same processes. Its processor time is divided among them by the bytes
that it copied since the last look; of a worker that copied nothing, evenly among its routes. The time of
a worker that has never copied anything belongs to no route.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ureplicator_common.model import Route, WorkerId
from ureplicator_common.znode_contents import RouteUsage, WorkerUsage

BYTES_PER_TB = 1e12
SECONDS_PER_HOUR = 3_600.0


@dataclass(frozen=True, slots=True)
class CopyCost:
    """Cost of the copy of one route over some time; bytes as they travel."""

    records: int = 0
    bytes: int = 0
    cpu_s: float = 0.0

    def __add__(self, other: CopyCost) -> CopyCost:
        return CopyCost(
            self.records + other.records, self.bytes + other.bytes, self.cpu_s + other.cpu_s
        )

    @property
    def core_hours_per_tb(self) -> float | None:
        """None while nothing was copied."""
        if not self.bytes:
            return None
        return self.cpu_s / SECONDS_PER_HOUR / (self.bytes / BYTES_PER_TB)


@dataclass(frozen=True, slots=True)
class SeenUsage:
    """The last counters of each worker; `since_ms`: time of the first look."""

    since_ms: int
    workers: Mapping[WorkerId, WorkerUsage] = field(default_factory=dict)


def grown(
    seen: SeenUsage | None, now: Mapping[WorkerId, WorkerUsage], *, at_ms: int
) -> tuple[SeenUsage, Mapping[Route, CopyCost]]:
    """Growth since `seen`, by route, and the counters that are seen now. Nothing at the first look."""
    if seen is None:
        return SeenUsage(at_ms, now), {}
    costs: dict[Route, CopyCost] = {}
    for worker, usage in now.items():
        before = _before(seen, worker, usage)
        for route, cost in _divided(before, usage).items():
            costs[route] = costs.get(route, CopyCost()) + cost
    return replace(seen, workers={**seen.workers, **now}), costs


def remembered(seen: SeenUsage, workers: frozenset[WorkerId]) -> SeenUsage:
    """The usage without the counters of all other workers."""
    kept = {worker: usage for worker, usage in seen.workers.items() if worker in workers}
    return replace(seen, workers=kept)


def _before(seen: SeenUsage, worker: WorkerId, usage: WorkerUsage) -> WorkerUsage:
    """The counters from which those of the worker grew."""
    last = seen.workers.get(worker)
    if last is not None and last.started_ms == usage.started_ms:
        return last
    if last is None and usage.started_ms < seen.since_ms:
        return usage
    return WorkerUsage(usage.started_ms)


def _divided(before: WorkerUsage, now: WorkerUsage) -> dict[Route, CopyCost]:
    copied = {
        route: CopyCost(
            max(0, count.records - before.routes.get(route, RouteUsage()).records),
            max(0, count.bytes - before.routes.get(route, RouteUsage()).bytes),
        )
        for route, count in now.routes.items()
    }
    total_bytes = sum(cost.bytes for cost in copied.values())
    cpu_s = max(0, now.cpu_ms - before.cpu_ms) / 1_000
    return {
        route: replace(
            cost, cpu_s=cpu_s * (cost.bytes / total_bytes if total_bytes else 1 / len(copied))
        )
        for route, cost in copied.items()
    }
