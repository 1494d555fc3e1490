"""Metric families of copiers' measures, of copied routes and of processes, by slot, route or process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)

from ureplicator_common.model import Route
from ureplicator_common.process_use import ProcessUse, use_of
from ureplicator_worker.lifeline.measures import Measures, TransactionCounts
from ureplicator_worker.lifeline.messages import LATENCY_BOUNDS_MS

COUNTED = {
    "records": "Records copied",
    "bytes": "Bytes copied, as they travel",
    "skipped": "Records skipped because the target rejects them for good",
    "gaps": "Gaps in the source that were skipped by policy",
}
"""Counters of partitions that are counted by route, too. A route is counted from the start of the
worker, so the first skipped record is seen as an increase; the series of a partition may begin with it."""


def histogram(
    name: str, text: str, slots: Mapping[int, tuple[Sequence[int], float]]
) -> HistogramMetricFamily:
    """Counts per bucket of LATENCY_BOUNDS_MS, with their sum in milliseconds, by slot."""
    metric = HistogramMetricFamily(name, text, labels=("slot",))
    for slot, (counts, sum_ms) in sorted(slots.items()):
        total, buckets = 0, []
        for bound_ms, count in zip(LATENCY_BOUNDS_MS, counts, strict=False):
            total += count
            buckets.append((str(bound_ms / 1_000), float(total)))
        buckets.append(("+Inf", float(sum(counts))))
        metric.add_metric((str(slot),), buckets, sum_ms / 1_000)
    return metric


def fetch_to_ack(slots: Mapping[int, Measures]) -> Metric:
    return histogram(
        "ureplicator_worker_fetch_to_ack_seconds",
        "From the response that brought a batch to its acknowledgement by the target",
        {
            slot: (measures.fetch_to_ack_ms, measures.fetch_to_ack_sum_ms)
            for slot, measures in slots.items()
        },
    )


def transaction_metrics(counts: Mapping[Route, TransactionCounts]) -> Iterator[Metric]:
    outcomes = CounterMetricFamily(
        "ureplicator_worker_transactions",
        "Transactions with records of handlers and queries, by outcome",
        labels=("route", "outcome"),
    )
    commits = SummaryMetricFamily(
        "ureplicator_worker_transaction_commit_seconds",
        "Time in which a slot sends nothing new: from the seal of a transaction to its commit",
        labels=("route",),
    )
    for route, transactions in sorted(counts.items()):
        for outcome in ("committed", "aborted"):
            outcomes.add_metric((str(route), outcome), getattr(transactions, outcome))
        commits.add_metric((str(route),), transactions.committed, transactions.commit_ms / 1_000)
    yield from (outcomes, commits)


def route_metrics(
    totals: Mapping[Route, Mapping[str, int]], ages_s: Mapping[Route, float]
) -> Iterator[Metric]:
    """`totals`: what is `COUNTED` since the worker's start, also of partitions that it gave away.
    `ages_s`: the longest time for which a partition has made no progress."""
    for name, text in COUNTED.items():
        text = f"{text}, also of partitions that the worker gave away"
        counter = CounterMetricFamily(f"ureplicator_worker_route_{name}", text, labels=("route",))
        for route, counted in sorted(totals.items()):
            counter.add_metric((str(route),), counted[name])
        yield counter
    age = GaugeMetricFamily(
        "ureplicator_worker_position_age_seconds",
        "Longest time in which the committed position of a partition has not moved, while there is"
        " something to copy",
        labels=("route",),
    )
    for route, age_s in sorted(ages_s.items()):
        age.add_metric((str(route),), age_s)
    yield age


def process_metrics(slots: Mapping[int, Measures], *, jvm_pid: int) -> Iterator[Metric]:
    """Metrics of this process, the driver's JVM and the copiers, each with what it started."""
    labels = ("process", "slot")
    cpu = CounterMetricFamily("ureplicator_worker_cpu_seconds", "Processor time", labels=labels)
    memory = GaugeMetricFamily("ureplicator_worker_memory_bytes", "Resident memory", labels=labels)
    for process, use in processes(slots, jvm_pid=jvm_pid).items():
        cpu.add_metric(process, use.cpu_s)
        memory.add_metric(process, use.memory_bytes)
    yield from (cpu, memory)


def processes(
    slots: Mapping[int, Measures], *, jvm_pid: int
) -> Mapping[tuple[str, str], ProcessUse]:
    """Kind of process and number of its slot -> its use."""
    return {("driver", ""): use_of(os.getpid()), ("jvm", ""): use_of(jvm_pid)} | {
        ("copier", str(slot)): ProcessUse(measures.cpu_ms / 1_000, measures.memory_bytes)
        for slot, measures in slots.items()
    }
