"""The small engines: fencing, telemetry, pages, processes, the entry of the Spark task, Spark's errors."""

from __future__ import annotations

import json
import logging
import os
import queue
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import requests
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from py4j.protocol import Py4JNetworkError

from ureplicator_common.config.settings import Settings
from ureplicator_common.coordination import Create, Set
from ureplicator_common.errors import PermanentError, TemporaryError
from ureplicator_common.model import (
    MAX_SLOTS,
    Limited,
    OwnerEpoch,
    Partition,
    PartitionState,
    Route,
    RouteSettings,
    WorkerId,
)
from ureplicator_common.pages.web import WebServer, json_page
from ureplicator_common.znode_contents import KnownWorker
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.routes import encode_route
from ureplicator_common.znodes.workers import encode_known_worker, encode_shares
from ureplicator_testkit.control.memory_coordination import MemoryCoordination, MemoryStore
from ureplicator_worker.core.events import Fenced, FenceFailed
from ureplicator_worker.core.instructions import Fence
from ureplicator_worker.core.partition_phases import HeldPartition, PartitionPhase
from ureplicator_worker.core.state import initial
from ureplicator_worker.engines import jvm, processes, spark_entry
from ureplicator_worker.engines import worker_metrics as telemetry
from ureplicator_worker.engines.assignment import RouteSettingsWatch, SharesWatch
from ureplicator_worker.engines.event_loop import log_changes
from ureplicator_worker.engines.fencing import Fencer, kafka_fence
from ureplicator_worker.engines.processes import ProcessId
from ureplicator_worker.engines.spark import describe
from ureplicator_worker.lifeline.measures import Segment
from ureplicator_worker.lifeline.messages import (
    LATENCY_BOUNDS_MS,
    CopierId,
    CopierReport,
    LimitUse,
    PartitionReport,
    PublishedSettings,
    PublishedShares,
)

ROUTE = Route("a", "b")
PARTITION = Partition(ROUTE, "t", 0)
WORKER = WorkerId("w")
PATHS = Paths("f")
LIMITED = Limited.route(ROUTE)


@pytest.mark.parametrize("phase", list(PartitionPhase))
def test_an_error_of_a_partition_is_logged_as_a_warning(
    phase: PartitionPhase, caplog: pytest.LogCaptureFixture
) -> None:
    before = initial(slots=1, silence_s=1.0, now_s=0.0, routes=(ROUTE,))
    held = HeldPartition(0, OwnerEpoch(1), phase=phase, reason="why")
    with caplog.at_level(logging.INFO):
        log_changes(before, replace(before, held={PARTITION: held}, to_visit={PARTITION: None}))
    (line,) = caplog.records
    assert line.levelno == (logging.WARNING if phase is PartitionPhase.ERROR else logging.INFO)
    assert line.getMessage() == f"a.b/t/0@1: {phase} why"


class Fencing:
    def __init__(self, error: Exception | None = None) -> None:
        self.client = MemoryCoordination(MemoryStore())
        self.events: queue.SimpleQueue[Fenced | FenceFailed] = queue.SimpleQueue()
        self.fenced: list[str] = []
        self.error = error
        self.fencer = Fencer(
            coordination=self.client,
            paths=PATHS,
            fleet="f",
            worker=WORKER,
            slots=2,
            fence=self.fence,
            put=self.events.put,
        )

    def fence(self, route: Route, ids: Sequence[str]) -> None:
        if self.error:
            raise self.error
        self.fenced += ids

    def result(self) -> Fenced | FenceFailed:
        self.fencer.request(Fence(ROUTE))
        return self.events.get(timeout=30)


def test_all_ids_of_the_present_slots_are_fenced() -> None:
    stage = Fencing()
    assert stage.result() == Fenced(ROUTE)
    assert stage.fenced == ["f.a.b.w.0", "f.a.b.w.1"]


def test_one_slot_is_fenced_where_its_copier_was_lost() -> None:
    stage = Fencing()
    stage.fencer.request(Fence(ROUTE, 1))
    assert stage.events.get(timeout=30) == Fenced(ROUTE, 1)
    assert stage.fenced == ["f.a.b.w.1"]
    stage.error = TemporaryError("no response")
    stage.fencer.request(Fence(ROUTE, 1))
    failed = stage.events.get(timeout=30)
    assert failed == FenceFailed(ROUTE, "target unreachable: no response", 1)


def test_slots_of_a_former_process_are_fenced_too() -> None:
    stage = Fencing()
    stage.client.ensure(PATHS.workers_known)
    known = encode_known_worker(KnownWorker(max_slots=4))
    stage.client.transact([Create(PATHS.worker_known(WORKER), known)])
    assert stage.result() == Fenced(ROUTE)
    assert stage.fenced[-1] == "f.a.b.w.3"


@pytest.mark.parametrize("data", [b"garbage", b'{"maxSlots": 1000000000}', b'{"maxSlots": -1}'])
def test_where_the_slots_cannot_be_read_all_possible_ones_are_fenced(data: bytes) -> None:
    stage = Fencing()
    stage.client.ensure(PATHS.workers_known)
    stage.client.transact([Create(PATHS.worker_known(WORKER), data)])
    assert stage.result() == Fenced(ROUTE)
    assert stage.fenced == [f"f.a.b.w.{slot}" for slot in range(MAX_SLOTS)]


@pytest.mark.parametrize("route", [Route("a", "new"), Route("new", "b")])
def test_a_route_that_this_worker_has_no_clusters_for_is_a_reason(route: Route) -> None:
    clusters = {name: {"bootstrap.servers": f"{name}:1"} for name in ("a", "b")}
    settings = Settings.model_validate(
        {
            "fleet": "f",
            "zookeeper": {"hosts": "127.0.0.1:1"},
            "clusters": clusters,
            "routes": [{"source": "a", "target": "b"}],
        }
    )
    with pytest.raises(PermanentError, match="cluster new is not in this worker's configuration"):
        kafka_fence(settings)(route, ["f.a.b.w.0"])


def test_a_fence_that_fails_has_the_reason() -> None:
    stage = Fencing(TemporaryError("no response"))
    assert stage.result() == FenceFailed(ROUTE, "target unreachable: no response")
    stage.client.suspend()
    failed = stage.result()
    assert isinstance(failed, FenceFailed)
    assert failed.reason.startswith("ZooKeeper unreachable")


def test_changed_settings_of_routes_are_sent_with_growing_versions() -> None:
    store = MemoryStore()
    leader, client = MemoryCoordination(store), MemoryCoordination(store)
    leader.ensure(PATHS.routes)
    sent: queue.SimpleQueue[PublishedSettings] = queue.SimpleQueue()
    watch = RouteSettingsWatch(coordination=client, path=PATHS.routes, send=sent.put)
    path, first, second = PATHS.route(ROUTE), RouteSettings(), RouteSettings(verify_crc=False)
    leader.transact([Create(path, encode_route(first))])
    watch.start()
    before = sent.get(timeout=30)
    assert (before.route, before.settings) == (ROUTE, first)
    leader.transact([Set(path, b"unreadable", -1)])
    leader.transact([Create(f"{path}-x", b"of no route")])
    leader.transact([Set(path, encode_route(second), -1)])
    after = sent.get(timeout=30)
    assert after.settings == second
    assert after.version > before.version
    watch.close()


def test_changed_shares_of_byte_limits_are_sent_with_growing_versions() -> None:
    store = MemoryStore()
    leader, client = MemoryCoordination(store), MemoryCoordination(store)
    leader.ensure(PATHS.shares)
    sent: queue.SimpleQueue[PublishedShares] = queue.SimpleQueue()
    path = PATHS.slot_shares(WorkerId("w"))
    watch = SharesWatch(coordination=client, path=path, send=sent.put)
    watch.start()
    first, second = {0: {LIMITED: 5_000}}, {0: {LIMITED: 6_000}, 1: {LIMITED: 7_000}}
    leader.transact([Create(path, encode_shares(first))])
    before = sent.get(timeout=30)
    assert before.slots == first
    leader.transact([Set(path, b"unreadable", -1)])
    leader.transact([Set(path, encode_shares(second), -1)])
    after = sent.get(timeout=30)
    assert after.slots == second
    assert after.version > before.version
    watch.close()


def test_waiting_for_limits_is_summed_over_restarts() -> None:
    counters = telemetry.Telemetry()
    other = Limited.worker(WorkerId("w"))
    for copier, limits in [
        (CopierId(1, 1), {LIMITED: LimitUse(5_000, 400), other: LimitUse(9_000, 0)}),
        (CopierId(1, 1), {LIMITED: LimitUse(6_000, 900), other: LimitUse(9_000, 0)}),
        (CopierId(1, 2), {LIMITED: LimitUse(7_000, 100)}),
    ]:
        counters.count(copier, CopierReport({}, limits=limits), set())
    use = {"bytesPerSecond": 7_000, "throttledSeconds": 1.0}
    assert counters.limits_status() == {"1": {"route:a.b": use}}
    registry = CollectorRegistry()

    class Collector:
        def collect(self) -> list[Metric]:
            return list(counters.metrics(()))

    registry.register(Collector())
    text = generate_latest(registry).decode()
    labels = 'kind="route",name="a.b",slot="1"'
    assert f"ureplicator_worker_throttled_seconds_total{{{labels}}} 1.0" in text
    assert f"ureplicator_worker_limit_bytes_per_second{{{labels}}} 7000.0" in text


def test_loads_name_the_slot() -> None:
    held = {PARTITION: HeldPartition(3, OwnerEpoch(4), phase=PartitionPhase.ONLINE)}
    assert telemetry.Telemetry().loads(held, 0.0)[PARTITION].slot == 3


def report(records: int, *, latency: Sequence[int] = (), sum_ms: int = 0) -> CopierReport:
    figures = PartitionReport(
        PartitionState.ONLINE,
        position=records,
        committed=records,
        records=records,
        bytes=10 * records,
        lag=3,
    )
    return CopierReport({PARTITION: figures}, tuple(latency), sum_ms)


def test_totals_grow_over_restarts_and_rates_are_per_second() -> None:
    counters = telemetry.Telemetry()
    held = {PARTITION: HeldPartition(0, OwnerEpoch(4), phase=PartitionPhase.ONLINE)}
    counters.loads(held, 0.0)
    for copier, records in [
        (CopierId(0, 1), 100),
        (CopierId(0, 1), 150),
        (CopierId(0, 1), 20),  # restarted by the same copier
        (CopierId(0, 2), 30),  # and by the next one, which got further at once
    ]:
        counters.count(copier, report(records), {PARTITION})
    load = counters.loads(held, 10.0)[PARTITION]
    assert (load.bytes_per_s, load.records_per_s) == (200.0, 20.0)
    assert (load.position, load.committed, load.lag) == (30, 30, 3)
    shown = counters.partition_status(PARTITION)
    assert (shown["records"], shown["position"], shown["lag"]) == (200, 30, 3)
    assert counters.loads(held, 20.0)[PARTITION].bytes_per_s == 0.0
    counters.drop([PARTITION])
    assert counters.loads({}, 30.0) == {}
    assert counters.loads(held, 40.0)[PARTITION].held_s == 0.0, "held again, measured from zero"


def test_a_partition_that_is_not_held_is_not_counted() -> None:
    counters = telemetry.Telemetry()
    counters.count(CopierId(0, 1), report(1), set())
    assert counters.partition_status(PARTITION) == {}


def test_metrics_are_what_prometheus_reads() -> None:
    counters = telemetry.Telemetry()
    buckets = [2, 1, *[0] * (len(LATENCY_BOUNDS_MS) - 2), 4]
    counters.count(CopierId(0, 1), report(7, latency=buckets, sum_ms=1500), {PARTITION})
    state = initial(slots=1, silence_s=1, now_s=0)
    registry = CollectorRegistry()

    class Collector:
        def collect(self) -> list[Metric]:
            return [*telemetry.state_metrics(state), *counters.metrics([PARTITION])]

    registry.register(Collector())
    text = generate_latest(registry).decode()
    labels = 'partition="0",route="a.b",topic="t"'
    assert f"ureplicator_worker_records_total{{{labels}}} 7.0" in text
    assert f"ureplicator_worker_lag{{{labels}}} 3.0" in text
    assert 'ureplicator_worker_latency_seconds_bucket{le="0.002",slot="0"} 3.0' in text
    assert 'ureplicator_worker_latency_seconds_bucket{le="+Inf",slot="0"} 7.0' in text
    assert 'ureplicator_worker_latency_seconds_sum{slot="0"} 1.5' in text
    assert 'ureplicator_worker_partitions{state="ERROR"} 0.0' in text


def test_status_shows_partitions_with_reason_and_figures() -> None:
    counters = telemetry.Telemetry()
    counters.count(CopierId(0, 1), report(7), {PARTITION})
    state = initial(slots=1, silence_s=1, now_s=0)
    held = HeldPartition(
        0, OwnerEpoch(4), phase=PartitionPhase.STOPPING, reason="stopping: x", sent=True
    )
    state = replace(state, held={PARTITION: held})
    shown: dict[str, Any] = telemetry.status(state, counters)["partitions"][str(PARTITION)]
    assert shown["state"] == "OFFLINE"
    assert shown["reason"] == "stopping: x"
    assert shown["records"] == 7
    assert shown["targetOffsets"] == []


def test_status_shows_where_records_lie_at_the_target() -> None:
    counters = telemetry.Telemetry()
    counters.count(CopierId(0, 1), report(7), {PARTITION})
    segments = (Segment(0, 5, 9, repeated=True), Segment(5, 8, 14))
    counters.count(CopierId(0, 1), CopierReport({}, segments={PARTITION: segments}), {PARTITION})
    shown = counters.partition_status(PARTITION)["targetOffsets"]
    assert json.loads(json.dumps(shown)) == [
        {"first": 0, "end": 5, "target": 9, "repeated": True},
        {"first": 5, "end": 8, "target": 14, "repeated": False},
    ]
    counters.drop([PARTITION])
    counters.count(CopierId(0, 1), report(7), {PARTITION})
    assert counters.partition_status(PARTITION)["targetOffsets"] == []


def test_the_server_responds_503_until_there_are_pages() -> None:
    server = WebServer(host="127.0.0.1", port=0)
    url = f"http://127.0.0.1:{server.port}"
    try:
        assert requests.get(f"{url}/health", timeout=5).status_code == 503
        server.show({"/status": json_page(lambda: (HTTPStatus.OK, {"fine": True}))})
        assert requests.get(f"{url}/?pretty", timeout=5).json() == {"fine": True}
        assert requests.get(f"{url}/other", timeout=5).status_code == 404
        with pytest.raises(PermanentError, match=r"cannot listen on 127\.0\.0\.1:\d+: Address"):
            WebServer(host="127.0.0.1", port=server.port)
    finally:
        server.close()


def test_the_server_names_the_role_that_is_starting() -> None:
    for role, setting in (("worker", "worker.port"), ("auditor", "audit.port")):
        server = WebServer(host="127.0.0.1", port=0, role=role)
        try:
            shown = requests.get(f"http://127.0.0.1:{server.port}/health", timeout=5).json()
            assert shown == {"title": f"the {role} is starting"}
            with pytest.raises(PermanentError, match=f"set {setting} "):
                WebServer(host="127.0.0.1", port=server.port, role=role)
        finally:
            server.close()


def test_a_process_is_its_id_and_its_start() -> None:
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    process = ProcessId.of(sleeper.pid)
    assert process is not None
    assert process.alive()
    assert not ProcessId(sleeper.pid, process.started_ticks + 1).alive()
    ProcessId(sleeper.pid, process.started_ticks + 1).kill()
    assert not process.wait_gone(0.1)
    sleeper.send_signal(signal.SIGSTOP)
    process.kill()
    assert process.wait_gone(5), "a zombie is gone, even before its parent waits for it"
    assert sleeper.wait() == -signal.SIGKILL
    assert ProcessId.of(sleeper.pid) is None


def test_the_task_reads_its_input_to_the_end_then_copies() -> None:
    rows = iter([1, 2, 3])
    done = spark_entry.run(f"{__name__}:_note", order := object(), rows)  # type: ignore[arg-type]
    assert list(done) == [os.getpid()]
    assert next(rows, None) is None
    assert _noted == [order]


_noted: list[object] = []


def _note(order: object) -> None:
    _noted.append(order)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "An error occurred\n: org.apache.spark.SparkException: Job aborted\n"
            "Traceback (most recent call last):\n  File x\nRuntimeError: cannot copy\n\n\tat a.b",
            "RuntimeError: cannot copy",
        ),
        (
            "Job aborted: Lost task 0.0 in stage 1.0 (TID 1) (h executor driver): "
            "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). "
            "Consider setting 'x' to 'true'.\n\tat java",
            "Python worker exited unexpectedly (crashed)",
        ),
        ("strange\nmore", "Exception: strange"),
        ("", "Exception: "),
    ],
)
def test_a_spark_error_of_hundreds_of_lines_becomes_one(text: str, line: str) -> None:
    assert jvm.brief(Exception(text)) == line


def test_a_slot_is_described_by_what_it_copies() -> None:
    partitions = [Partition(ROUTE, "t", number) for number in range(12)]
    assert describe(CopierId(1, 1), []) == "slot 1"
    assert describe(CopierId(1, 1), partitions[:2]) == "slot 1: t-0, t-1"
    assert describe(CopierId(1, 1), partitions).endswith("t-9 and 2 more")


def test_java_is_found_or_missed_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    old = tmp_path / "bin" / "java"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(PermanentError, match="Java is missing"):
        jvm.find_java()
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    with pytest.raises(PermanentError, match="is Java 11: install Java 17 or newer"):
        jvm.find_java()


def test_scratch_folders_of_dead_processes_are_swept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    names = ("17-a", "18-b", "19-c", "events")
    stale, unlocked, young, other = (tmp_path / f"ureplicator-spark-{name}" for name in names)
    for folder in (stale, unlocked, young, other):
        folder.mkdir()
    (stale / processes.LOCK).touch()
    os.utime(unlocked, (1, 1))
    os.utime(other, (1, 1))
    mine = jvm.make_scratch()
    assert [folder.exists() for folder in (stale, unlocked, young)] == [False, False, True]
    assert other.exists(), "another program's"
    assert jvm.make_scratch() != mine
    assert mine.exists()
    assert "spark.log" in (mine / "log4j2.properties").read_text()


def test_a_scratch_folder_is_kept_from_processes_that_do_not_see_its_owner(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Process ids say nothing in another container with the same temporary folder."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    mine = jvm.make_scratch()
    sweep = "from ureplicator_worker.engines.jvm import make_scratch as make; print(make())"
    code = f"import tempfile; tempfile.tempdir = {str(tmp_path)!r}; {sweep}"
    monkeypatch.setattr(processes.ProcessId, "alive", lambda process: False)
    other = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert mine.exists()
    jvm.make_scratch()
    assert mine.exists()
    assert not Path(other).exists(), "its process has ended"


@pytest.mark.parametrize("gone", [ConnectionRefusedError(111), Py4JNetworkError("closed")])
def test_an_error_whose_text_is_gone_with_the_jvm_has_a_reason(gone: Exception) -> None:
    """The thread of the slot would end without one, and the end of its job would not be told."""

    class JavaError(Exception):
        def __str__(self) -> str:
            raise gone

    assert jvm.brief(JavaError()) == "JavaError: the JVM is gone, and its text with it"
