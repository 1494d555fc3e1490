"""Figures of `--spark` and `--sql` that have an aim, computed from the measurements. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ureplicator_bench.delays.latency import QUIET_PHASE, Latency
from ureplicator_bench.figures import Figure
from ureplicator_bench.throughput import Throughput

SLOWER_PERCENT = 5.0
SQL_RECORDS_PER_CORE_S = 100_000
SQL_P50_MS = 500.0


def slower(local: Throughput, cluster: Throughput) -> Figure:
    """The cluster's throughput against the local one; negative: it is faster."""
    percent = 100 * (1 - cluster.records_per_s / local.records_per_s)
    return Figure("the cluster is slower by", percent, "%", SLOWER_PERCENT)


def sql_costs(copies: Sequence[tuple[str, Throughput]]) -> Iterator[Figure]:
    """Processor time of all processes for a record of the source, with and without the JVMs' start."""
    limit_us = 1e6 / SQL_RECORDS_PER_CORE_S
    for name, copy in copies:
        cost_us = copy.cpu_s / copy.records * 1e6
        yield Figure(f"{name}: a core's time for a record, from the start", cost_us, "us")
        late_us = copy.second_half_cpu_us
        yield Figure(f"{name}: the same in the second half", late_us, "us", limit_us)
        yield Figure(f"{name}: records a second and core", 1e6 / late_us, "")


def sql_delays(late: Sequence[tuple[str, Sequence[Latency]]]) -> Iterator[Figure]:
    """Median latency with nothing else to copy."""
    for name, phases in late:
        for phase in phases:
            if phase.phase == QUIET_PHASE:
                yield Figure(f"{name}: p50, {QUIET_PHASE}", phase.copy.p50_ms, "ms", SQL_P50_MS)
