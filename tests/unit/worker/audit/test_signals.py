"""Signals between the driver and its tasks, and rounds that are ended while they run."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ureplicator_worker.audit import rounds, signals
from ureplicator_worker.audit.job import run_audit
from ureplicator_worker.audit.result import (
    AuditRequest,
    AuditResult,
    PartitionRange,
    PartitionResult,
)
from ureplicator_worker.audit.rounds import run_round
from ureplicator_worker.audit.signals import Cancelled, DriverSignals, TaskSignals
from ureplicator_worker.audit.task import Outcome, Work

NOTHING = PartitionResult(0, 0, 0, end=10)
PART = PartitionResult(0, 0, 6, 7, end=10, compared=6)
REQUEST = AuditRequest("a.b", "t", "t", (PartitionRange(0, 10),))
CLUSTERS: dict[str, dict[str, str]] = {"a": {}, "b": {}}


class Time:
    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(signals, "time", time)
    return time


def test_a_task_looks_once_in_a_while(time: Time) -> None:
    with DriverSignals() as driver:
        task = TaskSignals(driver.folder, 3)
        task.check()
        driver.cancel()
        task.check()
        time.now_s += signals.LOOK_S
        with pytest.raises(Cancelled):
            task.check()
    assert not Path(driver.folder).exists()


def test_what_the_tasks_of_a_round_have_passed(time: Time) -> None:
    with DriverSignals() as driver:
        first, other = (TaskSignals(driver.folder, number) for number in range(2))
        first.show(5)
        other.show(20)
        assert driver.passed() == 25
        first.show(6)
        assert driver.passed() == 25, "it was shown just before"
        time.now_s += signals.SHOW_S
        first.show(7)
        assert driver.passed() == 27
        driver.begin_round()
        assert driver.passed() == 0


def test_the_folder_goes_with_the_process() -> None:
    """An auditor that is told to end does not wait for the thread that compares."""
    lines = (
        "import threading",
        "from ureplicator_worker.audit.signals import DriverSignals",
        "driver = DriverSignals().__enter__()",
        "threading.Thread(target=threading.Event().wait, args=(60,), daemon=True).start()",
        "print(driver.folder)",
    )
    command = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)  # noqa: S603
    assert done.stdout.strip()
    assert not Path(done.stdout.strip()).exists()


def test_the_folder_of_a_killed_process_is_removed_by_the_next_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    lines = (
        "import os, signal",
        "from ureplicator_worker.audit.signals import DriverSignals",
        "driver = DriverSignals().__enter__()",
        "os.kill(os.getpid(), signal.SIGKILL)",
    )
    command = [sys.executable, "-c", "\n".join(lines)]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run(command, env=environment, timeout=60, check=False)  # noqa: S603
    assert len(list(tmp_path.iterdir())) == 1
    with DriverSignals() as mine, DriverSignals() as other:
        folders = {Path(driver.folder).parent for driver in (mine, other)}
        assert set(tmp_path.iterdir()) == folders


def test_a_round_keeps_the_folder_from_other_audits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("ureplicator_worker.engines.processes.UNLOCKED_S", -1.0)
    with DriverSignals() as driver:
        driver.begin_round()
        with DriverSignals():
            assert Path(driver.folder).exists()


def test_a_task_without_a_folder_is_never_cancelled(time: Time) -> None:
    task = TaskSignals("", 0)
    task.show(1)
    task.check()


class RunningTask:
    """Spark whose job `task` is; it ends by itself, or with an error when its group is cancelled."""

    defaultParallelism = 1  # Spark's name

    def __init__(self, task: Callable[[Work, threading.Event], Outcome]) -> None:
        self._task = task
        self._killed = threading.Event()
        self._works: Sequence[Work] = ()
        self.groups: list[str] = []
        self.cancelled: list[str] = []

    @property
    def sparkContext(self) -> RunningTask:  # Spark's name
        return self

    def setJobGroup(self, group: str, _: str) -> None:  # Spark's name
        self.groups.append(group)

    def cancelJobGroup(self, group: str) -> None:  # Spark's name
        self.cancelled.append(group)
        self._killed.set()

    def parallelize(self, works: Sequence[Work], _: int) -> RunningTask:
        self._works = works
        return self

    def mapPartitions(self, _: Any) -> RunningTask:  # Spark's name
        return self

    def collect(self) -> list[Outcome]:
        return [self._task(work, self._killed) for work in self._works]


class Withdrawn(Exception):
    pass


def withdrawn(_: int) -> None:
    raise Withdrawn


def ends_well(work: Work, killed: threading.Event) -> Outcome:
    """A task that looks at the signals."""
    task = TaskSignals(work.signals, 0)
    try:
        while not killed.wait(0.01):
            task.check()
    except Cancelled:
        return Outcome(PART)
    raise AssertionError("it was ended by Spark")


def ends_late(work: Work, killed: threading.Event) -> Outcome:
    """A task that waits for a cluster, say."""
    assert killed.wait(30)
    raise RuntimeError("Job cancelled")


def run(spark: RunningTask, reported: list[AuditResult]) -> None:
    run_audit(spark, REQUEST, clusters=CLUSTERS, on_progress=reported.append, watch=withdrawn)


def test_what_a_cancelled_round_has_compared_is_kept() -> None:
    spark, reported = RunningTask(ends_well), list[AuditResult]()
    with pytest.raises(Withdrawn):
        run(spark, reported)
    (result,) = reported
    assert result.partitions == (PART,)
    assert (result.ended_ms, spark.cancelled) == (0, [])


def test_a_cancelled_round_that_came_no_further_says_nothing_about_the_log() -> None:
    def told(work: Work, killed: threading.Event) -> Outcome:
        ends_well(work, killed)
        return Outcome(NOTHING)

    reported: list[AuditResult] = []
    with pytest.raises(Withdrawn):
        run(RunningTask(told), reported)
    assert reported[0].partitions[0].notes == ()


def test_a_round_whose_differences_are_not_explained_is_not_kept() -> None:
    def unexplained(work: Work, killed: threading.Event) -> Outcome:
        ends_well(work, killed)
        return Outcome(NOTHING, cancelled=True)

    reported: list[AuditResult] = []
    with pytest.raises(Withdrawn):
        run(RunningTask(unexplained), reported)
    assert reported[0].partitions[0].verified_to == -1


def test_a_task_that_does_not_end_is_ended_by_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "GRACE_S", 0.01)
    spark, reported = RunningTask(ends_late), list[AuditResult]()
    with pytest.raises(Withdrawn):
        run(spark, reported)
    assert spark.cancelled == spark.groups
    assert reported[0].partitions[0].verified_to == -1


def test_a_failure_of_spark_is_one_though_the_audit_is_watched() -> None:
    def fails(work: Work, killed: threading.Event) -> Outcome:
        raise RuntimeError("the JVM is gone")

    with DriverSignals() as driver, pytest.raises(RuntimeError):
        run_round(RunningTask(fails), [_work(driver)], signals=driver, watch=withdrawn)


def test_progress_within_a_round() -> None:
    seen: list[int] = []
    shown = threading.Event()

    def watch(passed: int) -> None:
        seen.append(passed)
        if passed:
            shown.set()

    def shows(work: Work, killed: threading.Event) -> Outcome:
        TaskSignals(work.signals, 0).show(4)
        assert shown.wait(30)
        return Outcome(PART)

    with DriverSignals() as driver:
        run_round(RunningTask(shows), [_work(driver)], signals=driver, watch=watch)
    assert seen[-1] == 4


def _work(driver: DriverSignals) -> Work:
    options = REQUEST.options
    return Work("t", "t", {}, {}, REQUEST.partitions[0], options, 0, 10, signals=driver.folder)
