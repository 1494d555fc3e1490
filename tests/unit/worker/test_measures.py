"""Measures of copiers: totals over runs, and processor time and memory of processes."""

from __future__ import annotations

import os
import subprocess
import sys

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric

from ureplicator_common.model import OffsetShift, OwnerEpoch, Partition, PartitionState, Route
from ureplicator_common.process_use import ProcessUse, use_of, use_of_tree
from ureplicator_common.znode_contents import RouteUsage
from ureplicator_worker.core.measure_totals import MeasureTotals
from ureplicator_worker.core.partition_phases import HeldPartition, PartitionPhase
from ureplicator_worker.engines import metric_families as families
from ureplicator_worker.engines.usage import UsageMeter
from ureplicator_worker.engines.worker_metrics import Telemetry
from ureplicator_worker.lifeline.codec import decode, encode
from ureplicator_worker.lifeline.measures import Measures, TransactionCounts
from ureplicator_worker.lifeline.messages import CopierId, CopierReport, PartitionReport

ROUTE = Route("a", "b")
PARTITION = Partition(ROUTE, "t", 0)
FIRST = Measures((1, 2), 30, 400, 5_000, {ROUTE: TransactionCounts(3, 1, 90)})
LATER = Measures((2, 2), 40, 500, 6_000, {ROUTE: TransactionCounts(4, 1, 100)})


def shown(metrics: list[Metric]) -> str:
    registry = CollectorRegistry()
    registry.register(type("Fixed", (), {"collect": lambda _: metrics})())
    return generate_latest(registry).decode()


def test_a_report_carries_them() -> None:
    report = CopierReport({}, measures=FIRST)
    assert decode(encode(report)) == report


def test_totals_grow_over_the_runs_of_a_slot() -> None:
    totals = MeasureTotals()
    for run, measures in ((1, FIRST), (1, LATER), (2, FIRST)):
        totals.count(CopierId(0, run), measures)
    totals.count(CopierId(1, 1), FIRST)
    assert totals.slots[0] == Measures((3, 4), 70, 900, 5_000)
    assert totals.slots[1].cpu_ms == 400
    assert totals.transactions == {ROUTE: TransactionCounts(10, 3, 280)}


def test_a_route_keeps_what_partitions_copied_that_were_given_away() -> None:
    telemetry = Telemetry()
    copied = PartitionReport(PartitionState.ONLINE, records=7, bytes=70)
    telemetry.count(CopierId(0, 1), CopierReport({PARTITION: copied}), {PARTITION})
    telemetry.drop([PARTITION])
    text = shown(list(telemetry.metrics(())))
    assert 'ureplicator_worker_route_records_total{route="a.b"} 7.0' in text
    assert 'ureplicator_worker_route_bytes_total{route="a.b"} 70.0' in text


def test_a_route_is_counted_before_anything_is_copied() -> None:
    text = shown(list(Telemetry([ROUTE]).metrics(())))
    for name in ("records", "bytes", "skipped", "gaps"):
        assert f'ureplicator_worker_route_{name}_total{{route="a.b"}} 0.0' in text


def test_the_age_of_positions_is_that_of_the_oldest() -> None:
    telemetry = Telemetry()
    held = {PARTITION: HeldPartition(0, OwnerEpoch(4), phase=PartitionPhase.ONLINE)}
    behind = PartitionReport(PartitionState.ONLINE, position=9, committed=5, lag=3)
    telemetry.count(CopierId(0, 1), CopierReport({PARTITION: behind}), {PARTITION})
    for now_s in (0.0, 10.0, 25.0):
        telemetry.loads(held, now_s)
    text = shown(list(telemetry.metrics(held)))
    assert 'ureplicator_worker_position_age_seconds{route="a.b"} 25.0' in text


def test_how_far_offsets_are_shifted() -> None:
    telemetry, mapped = Telemetry(), Partition(ROUTE, "t", 1)
    held = dict.fromkeys((PARTITION, mapped), HeldPartition(0, OwnerEpoch(4)))
    shifted = PartitionReport(PartitionState.ONLINE, shift=2, shift_since=7, shift_reason="a fence")
    reports = {PARTITION: shifted, mapped: PartitionReport(PartitionState.ONLINE)}
    telemetry.count(CopierId(0, 1), CopierReport(reports), held)
    loads = telemetry.loads(held, 0.0)
    assert loads[PARTITION].offsets == OffsetShift(2, 7, "a fence")
    assert loads[mapped].offsets is None
    shift = {"shift": 2, "since": 7, "reason": "a fence"}
    assert telemetry.partition_status(PARTITION)["offsets"] == shift
    assert telemetry.partition_status(mapped)["offsets"] is None
    lines = [line for line in shown(list(telemetry.metrics(held))).splitlines() if "shift{" in line]
    assert lines == [
        'ureplicator_worker_offset_shift{partition="0",route="a.b",topic="t"} 2.0',
    ]


def test_metrics_of_processes_and_transactions() -> None:
    text = shown(
        [
            *families.transaction_metrics(FIRST.transactions),
            families.fetch_to_ack({0: FIRST}),
            *families.process_metrics({0: FIRST}, jvm_pid=0),
        ]
    )
    assert 'transactions_total{outcome="aborted",route="a.b"} 1.0' in text
    assert 'transaction_commit_seconds_sum{route="a.b"} 0.09' in text
    assert 'fetch_to_ack_seconds_bucket{le="+Inf",slot="0"} 3.0' in text
    assert 'cpu_seconds_total{process="copier",slot="0"} 0.4' in text
    assert 'memory_bytes{process="jvm",slot=""} 0.0' in text


def test_a_tree_counts_what_its_children_use() -> None:
    own = use_of(os.getpid())
    assert own.cpu_s > 0
    assert own.memory_bytes > 1 << 20
    wait = "import sys; data = bytearray(50 << 20); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", wait]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:  # noqa: S603
        assert child.stdout is not None
        child.stdout.readline()
        grown = use_of_tree(os.getpid()).memory_bytes - use_of(os.getpid()).memory_bytes
        child.communicate()
    assert grown > 50 << 20
    assert use_of(child.pid) == ProcessUse()


def test_usage_of_a_worker_is_all_that_it_copied_and_its_processes() -> None:
    telemetry = Telemetry()
    copied = PartitionReport(PartitionState.ONLINE, records=7, bytes=70)
    for slot in (0, 1):
        report = CopierReport({PARTITION: copied}, measures=FIRST)
        telemetry.count(CopierId(slot, 1), report, {PARTITION})
    telemetry.drop([PARTITION])
    own_ms = use_of(os.getpid()).cpu_s * 1_000
    usage = UsageMeter(telemetry=telemetry, jvm_pid=lambda: 0, started_ms=5).usage()
    assert usage.started_ms == 5
    assert usage.routes == {ROUTE: RouteUsage(14, 140)}
    assert own_ms + 2 * 400 <= usage.cpu_ms <= own_ms + 2 * 400 + 5_000
