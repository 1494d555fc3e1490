"""Usage of a worker since its start, for `usage/<worker>`: what it copied, and its processor time."""

from __future__ import annotations

from collections.abc import Callable

from ureplicator_common.znode_contents import WorkerUsage
from ureplicator_worker.engines.metric_families import processes
from ureplicator_worker.engines.worker_metrics import Telemetry


class UsageMeter:
    """`started_ms`: start of the worker, by the wall clock. `jvm_pid`: that of the driver's JVM."""

    def __init__(
        self, *, telemetry: Telemetry, jvm_pid: Callable[[], int], started_ms: int
    ) -> None:
        self._telemetry = telemetry
        self._jvm_pid = jvm_pid
        self._started_ms = started_ms

    def usage(self) -> WorkerUsage:
        """The usage until now."""
        used = processes(self._telemetry.measures(), jvm_pid=self._jvm_pid())
        cpu_s = sum(use.cpu_s for use in used.values())
        return WorkerUsage(self._started_ms, round(cpu_s * 1_000), self._telemetry.routes())
