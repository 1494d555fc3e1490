"""Metrics of a worker: counters of copiers, added up over their restarts, and the status page.

A copier counts from its start of a partition, so a counter that falls, or that of another run, has
restarted at zero; totals here only grow, as Prometheus expects. Labels name route, topic and partition;
a partition that is not held any more is dropped, so the number of series is that of the held ones.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)

from ureplicator_common.model import (
    Gap,
    Limited,
    OffsetShift,
    Partition,
    PartitionState,
    Route,
    camel,
)
from ureplicator_common.znode_contents import PartitionLoad, RouteUsage
from ureplicator_worker.core import load_samples
from ureplicator_worker.core.handler_totals import HandlerTotals
from ureplicator_worker.core.load_samples import LoadTrend, Sample
from ureplicator_worker.core.measure_totals import MeasureTotals
from ureplicator_worker.core.partition_phases import HeldPartition
from ureplicator_worker.core.state import WorkerState
from ureplicator_worker.engines import metric_families as families
from ureplicator_worker.lifeline.measures import Measures, Segment
from ureplicator_worker.lifeline.messages import (
    LATENCY_BOUNDS_MS,
    CopierId,
    CopierReport,
    HandlerReport,
    LimitUse,
    PartitionReport,
)

_COUNTED = ("records", "bytes", "skipped", "gaps", "gap_offsets")
_LABELS = ("route", "topic", "partition")


@dataclass(slots=True)
class _Totals:
    """One partition: the last report, its run, and the totals over all runs."""

    copier: CopierId
    last: PartitionReport
    totals: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTED, 0))


@dataclass(slots=True)
class _Latency:
    """Latency histogram of one slot: counts of the last report, and the totals."""

    run: int = 0
    last: tuple[int, ...] = ()
    last_sum_ms: int = 0
    totals: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS_MS) + 1))
    sum_ms: int = 0


@dataclass(slots=True)
class _Throttling:
    """Byte limits of one slot, as last reported, and for how long each was waited for over all runs."""

    run: int = 0
    last: Mapping[Limited, LimitUse] = field(default_factory=dict)
    totals_ms: dict[Limited, int] = field(default_factory=dict)


class Telemetry:
    """Measures that are written by the event loop and read by the web server, under one lock."""

    def __init__(self, routes: Iterable[Route] = ()) -> None:
        """`routes`: those that are counted from the start, whatever is copied."""
        self._lock = threading.Lock()
        self._counters: dict[Partition, _Totals] = {}
        self._trends: dict[Partition, LoadTrend] = {}
        self._latencies: dict[int, _Latency] = {}
        self._segments: dict[Partition, array[int]] = {}
        """Fields of segments in a row: a worker may hold 10,000 partitions."""
        self._throttling: dict[int, _Throttling] = {}
        self._handlers = HandlerTotals()
        self._measures = MeasureTotals()
        self._routes = {route: dict.fromkeys(families.COUNTED, 0) for route in routes}

    def count(self, copier: CopierId, report: CopierReport, held: Collection[Partition]) -> None:
        """Add a report of a copier."""
        with self._lock:
            for partition, partition_report in report.partitions.items():
                if partition in held:
                    self._count(copier, partition, partition_report)
            for partition, segments in report.segments.items():
                if partition in held:
                    self._segments[partition] = array("q", chain.from_iterable(segments))
            self._handlers.count(copier, report.handlers)
            self._measures.count(copier, report.measures)
            if report.latency_ms:
                self._count_latency(copier, report)
            self._count_throttling(copier, report.limits)

    def drop(self, partitions: Iterable[Partition]) -> None:
        """Drop partitions that are not held any more."""
        with self._lock:
            for partition in partitions:
                self._counters.pop(partition, None)
                self._trends.pop(partition, None)
                self._segments.pop(partition, None)

    def loads(
        self, held: Mapping[Partition, HeldPartition], now_s: float
    ) -> dict[Partition, PartitionLoad]:
        """Loads of all held partitions; rates are those since the last call."""
        with self._lock:
            for partition, holding in held.items():
                sample, trend = self._sample(partition, holding), self._trends.get(partition)
                self._trends[partition] = (
                    load_samples.following(trend, sample, now_s)
                    if trend
                    else load_samples.first(sample, now_s)
                )
            return {
                partition: replace(self._trends[partition].load, slot=holding.slot)
                for partition, holding in held.items()
            }

    def _sample(self, partition: Partition, held: HeldPartition) -> Sample:
        counters = self._counters.get(partition)
        if counters is None:
            return Sample(held.state)
        last = counters.last
        return Sample(
            state=held.state,
            records=counters.totals["records"],
            bytes=counters.totals["bytes"],
            position=last.position,
            committed=last.committed,
            lag=last.lag,
            offsets=last.offsets,
        )

    def partition_status(self, partition: Partition) -> dict[str, Any]:
        """Counters and rates of one partition, for the status page."""
        with self._lock:
            counters, trend = self._counters.get(partition), self._trends.get(partition)
            if counters is None:
                return {}
            load = trend.load if trend else PartitionLoad()
            return {
                "position": counters.last.position,
                "committed": counters.last.committed,
                "lag": counters.last.lag,
                "offsets": shown_shift(counters.last.offsets),
                **{camel(name): total for name, total in counters.totals.items()},
                "recordsPerSecond": round(load.records_per_s, 1),
                "bytesPerSecond": round(load.bytes_per_s, 1),
                "noProgressSeconds": round(load.no_progress_s),
                "targetOffsets": shown_segments(self._segments.get(partition, ())),
            }

    def _count(self, copier: CopierId, partition: Partition, report: PartitionReport) -> None:
        counters = self._counters.get(partition)
        if counters is None:
            counters = self._counters[partition] = _Totals(copier, PartitionReport(report.state))
        for name in _COUNTED:
            now, before = getattr(report, name), getattr(counters.last, name)
            same = counters.copier == copier and now >= before
            grown = now - before if same else now
            counters.totals[name] += grown
            if name in families.COUNTED:
                counted = self._routes.setdefault(
                    partition.route, dict.fromkeys(families.COUNTED, 0)
                )
                counted[name] += grown
        counters.copier, counters.last = copier, report

    def _count_latency(self, copier: CopierId, report: CopierReport) -> None:
        latency = self._latencies.setdefault(copier.slot, _Latency())
        if latency.run != copier.run or len(latency.last) != len(report.latency_ms):
            latency.run = copier.run
            latency.last, latency.last_sum_ms = (0,) * len(report.latency_ms), 0
        deltas = [new - old for new, old in zip(report.latency_ms, latency.last, strict=True)]
        for bucket, delta in enumerate(deltas[: len(latency.totals)]):
            latency.totals[bucket] += max(delta, 0)
        latency.sum_ms += max(report.latency_sum_ms - latency.last_sum_ms, 0)
        latency.last, latency.last_sum_ms = report.latency_ms, report.latency_sum_ms

    def _count_throttling(self, copier: CopierId, limits: Mapping[Limited, LimitUse]) -> None:
        slot = self._throttling.setdefault(copier.slot, _Throttling())
        if slot.run != copier.run:
            slot.run, slot.last = copier.run, {}
        for limited, use in limits.items():
            before_ms = slot.last[limited].throttled_ms if limited in slot.last else 0
            grown_ms = max(0, use.throttled_ms - before_ms)
            slot.totals_ms[limited] = slot.totals_ms.get(limited, 0) + grown_ms
        slot.last = limits
        for limited in slot.totals_ms.keys() - limits.keys():
            del slot.totals_ms[limited]

    def limits_status(self) -> dict[str, Any]:
        """Share of each byte limit by slot, for the status page."""
        with self._lock:
            return {
                str(number): {
                    str(limited): {
                        "bytesPerSecond": use.bytes_per_s,
                        "throttledSeconds": slot.totals_ms[limited] / 1_000,
                    }
                    for limited, use in sorted(slot.last.items())
                }
                for number, slot in sorted(self._throttling.items())
            }

    def _limit_metrics(self) -> Iterator[Metric]:
        labels = ("kind", "name", "slot")
        rates = GaugeMetricFamily(
            "ureplicator_worker_limit_bytes_per_second",
            "The slot's share of a byte limit",
            labels=labels,
        )
        waited = CounterMetricFamily(
            "ureplicator_worker_throttled_seconds",
            "Time in which fetches waited for a byte limit",
            labels=labels,
        )
        for number, slot in sorted(self._throttling.items()):
            for limited, use in sorted(slot.last.items()):
                values = (limited.kind.value, limited.name, str(number))
                rates.add_metric(values, use.bytes_per_s)
                waited.add_metric(values, slot.totals_ms[limited] / 1_000)
        yield from (rates, waited)

    def metrics(self, held: Collection[Partition]) -> Iterator[Metric]:
        """Metric families of the held partitions and of the latency."""
        kinds: Mapping[str, CounterMetricFamily] = {
            name: CounterMetricFamily(f"ureplicator_worker_{name}", text, labels=_LABELS)
            for name, text in (
                ("records", "Records copied"),
                ("bytes", "Bytes copied, as they travel"),
                ("skipped", "Records skipped because the target rejects them for good"),
                ("gaps", "Gaps in the source that were skipped by policy"),
                ("gap_offsets", "Source offsets in these gaps"),
            )
        }
        gauges: Mapping[str, GaugeMetricFamily] = {
            name: GaugeMetricFamily(f"ureplicator_worker_{name}", text, labels=_LABELS)
            for name, text in (
                ("position", "Next source offset to copy"),
                ("committed", "Position last committed"),
                ("lag", "Records at the source, to its stable end, that are not copied yet"),
            )
        }
        shifts = GaugeMetricFamily(
            "ureplicator_worker_offset_shift",
            "Offsets at the target less those at the source, of topics whose offsets are to be the same",
            labels=_LABELS,
        )
        with self._lock:
            for partition in held:
                counters = self._counters.get(partition)
                if counters is None:
                    continue
                labels = (str(partition.route), partition.topic, str(partition.number))
                for name, counter in kinds.items():
                    counter.add_metric(labels, counters.totals[name])
                for name, gauge in gauges.items():
                    if getattr(counters.last, name) >= 0:
                        gauge.add_metric(labels, getattr(counters.last, name))
                if counters.last.offsets is not None:
                    shifts.add_metric(labels, counters.last.shift)
            others = (self._latency_metric(), *self._limit_metrics(), *self._measured())
            handlers = self._handlers.of({f"{part.route}/{part.topic}" for part in held})
        yield from (*kinds.values(), *gauges.values(), shifts, *others, *handler_metrics(handlers))

    def _latency_metric(self) -> Metric:
        return families.histogram(
            "ureplicator_worker_latency_seconds",
            "From a record's timestamp to its acknowledgement by the target",
            {slot: (latency.totals, latency.sum_ms) for slot, latency in self._latencies.items()},
        )

    def _measured(self) -> Iterator[Metric]:
        ages_s: dict[Route, float] = {}
        for partition, trend in self._trends.items():
            age_s = max(ages_s.get(partition.route, 0.0), trend.load.no_progress_s)
            ages_s[partition.route] = age_s
        yield families.fetch_to_ack(self._measures.slots)
        yield from families.transaction_metrics(self._measures.transactions)
        yield from families.route_metrics(self._routes, ages_s)

    def routes(self) -> Mapping[Route, RouteUsage]:
        """Totals of each route since the start, also of partitions that were given away."""
        with self._lock:
            return {
                route: RouteUsage(counted["records"], counted["bytes"])
                for route, counted in self._routes.items()
            }

    def measures(self) -> Mapping[int, Measures]:
        """Measures of the copiers of each slot."""
        with self._lock:
            return self._measures.slots


def handler_metrics(handlers: Mapping[str, HandlerReport]) -> Iterator[Metric]:
    """Metric families of the handlers, by source topic."""
    counters: Mapping[str, CounterMetricFamily] = {
        name: CounterMetricFamily(
            f"ureplicator_worker_handler_{name}", text, labels=("route", "topic")
        )
        for name, text in (
            ("records", "Records given to the handler, those that are handled again too"),
            ("outputs", "Records that it emitted, and dead letters"),
            ("dropped", "Records that it emitted nothing for"),
            ("dead_letters", "Records put aside in the dead-letter topic"),
            ("errors", "Dead letters, and stops of a partition by its handler"),
            ("starts", "Processes started for it"),
        )
    }
    busy = SummaryMetricFamily(
        "ureplicator_worker_handler_chunk_seconds",
        "Time in the handler's process, for a chunk of stored batches",
        labels=("route", "topic"),
    )
    for name, report in sorted(handlers.items()):
        labels = name.split("/", 1)
        for field_name, counter in counters.items():
            counter.add_metric(labels, getattr(report, field_name))
        busy.add_metric(labels, count_value=report.chunks, sum_value=report.busy_ms / 1_000)
    yield from (*counters.values(), busy)


def state_metrics(state: WorkerState) -> Iterator[Metric]:
    """Metric families of the state machine: partitions by state, copiers, session."""
    partitions = GaugeMetricFamily(
        "ureplicator_worker_partitions", "Partitions held, by state", labels=("state",)
    )
    for shown in PartitionState:
        count = sum(held.state is shown for held in state.held.values())
        partitions.add_metric((shown.value,), count)
    starts = CounterMetricFamily(
        "ureplicator_worker_copier_starts", "Copiers started", labels=("slot",)
    )
    running = GaugeMetricFamily(
        "ureplicator_worker_copier_running", "1 while the slot's copier runs", labels=("slot",)
    )
    for slot in state.slots:
        starts.add_metric((str(slot.number),), slot.run)
        running.add_metric((str(slot.number),), slot.phase.value == "running")
    yield from (partitions, starts, running, _silence(state))
    yield GaugeMetricFamily(
        "ureplicator_worker_session_connected",
        "1 while the ZooKeeper session is connected",
        value=float(state.session.connected),
    )


def _silence(state: WorkerState) -> Metric:
    silence = GaugeMetricFamily(
        "ureplicator_worker_lifeline_silence_seconds",
        "Time since the last message of the slot's copier; no series while none is connected",
        labels=("slot",),
    )
    for slot in state.slots:
        if slot.connected_s is not None:
            silence.add_metric((str(slot.number),), max(0.0, state.now_s - slot.last_message_s))
    return silence


def shown_segments(fields: Sequence[int]) -> list[Mapping[str, Any]]:
    size = len(Segment._fields)
    rows = (fields[at : at + size] for at in range(0, len(fields), size))
    return [
        Segment(first, end, target, bool(repeated))._asdict()
        for first, end, target, repeated in rows
    ]


def shown_shift(offsets: OffsetShift | None) -> Mapping[str, Any] | None:
    return None if offsets is None else asdict(offsets)


def shown_gap(gap: Gap) -> Mapping[str, Any]:
    return {camel(name): value for name, value in asdict(gap).items()}


def status(state: WorkerState, telemetry: Telemetry) -> dict[str, Any]:
    """The part of `/status` that changes: session, slots and partitions."""
    return {
        "session": state.session.state.value,
        "seenZxid": state.assignment.zxid,
        "draining": state.drain is not None,
        "slots": [
            {
                "slot": slot.number,
                "phase": slot.phase.value,
                "run": slot.run,
                "partitions": sum(held.slot == slot.number for held in state.held.values()),
            }
            for slot in state.slots
        ],
        "limits": telemetry.limits_status(),
        "partitions": {
            str(partition): {
                "state": held.state.value,
                "phase": held.phase.value,
                "reason": held.reason,
                "slot": held.slot,
                "ownerEpoch": held.owner_epoch,
                "sent": held.sent,
                "gap": None if held.gap is None else shown_gap(held.gap),
                **telemetry.partition_status(partition),
            }
            for partition, held in sorted(state.held.items())
        },
    }
