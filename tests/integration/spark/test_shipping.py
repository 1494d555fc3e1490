"""Copiers on a standalone cluster whose Python has none of their packages: all come from an archive."""

from __future__ import annotations

import queue
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ureplicator_common.config.roles import WorkerSettings
from ureplicator_common.config.spark import spark_properties
from ureplicator_testkit.spark import engines
from ureplicator_testkit.spark.standalone import SparkStandalone
from ureplicator_worker import executor_archive
from ureplicator_worker.engines.spark import SparkEngine
from ureplicator_worker.lifeline.messages import CopierId, Hello
from ureplicator_worker.lifeline.server import LifelineServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SLOTS = 2
START_S = 120.0
PYTHON = f"{sys.base_prefix}/bin/python3.{sys.version_info.minor}"
"""The interpreter without the environment that the tests run in."""


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """With what copiers import; the whole of an environment is 110 MB."""
    file = tmp_path / "packages.zip"
    copier = executor_archive.required_distributions(["kafka-python", "cramjam", "crc32c"])
    executor_archive._write(file, copier)
    return file


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkStandalone]:
    """Its processes, and so the executors, do not inherit where the tests import from."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", PYTHON)
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
    cluster = SparkStandalone(workers=1, cores=SLOTS, folder=tmp_path / "spark").start()
    try:
        yield cluster
    finally:
        cluster.stop()


def test_copiers_run_from_an_archive_on_executors_of_one_core(
    archive: Path, cluster: SparkStandalone
) -> None:
    hellos: queue.SimpleQueue[Hello] = queue.SimpleQueue()
    ended: list[Any] = []
    lifeline = LifelineServer(host="127.0.0.1")
    lifeline.start(lambda _, message: hellos.put(message) if isinstance(message, Hello) else None)
    settings = WorkerSettings(
        slots=SLOTS,
        spark={
            "spark.master": cluster.url,
            "spark.pyspark.python": PYTHON,
            "spark.archives": f"{archive}#packages",
            "spark.executorEnv.PYTHONPATH": "packages",
        },
    )
    engine = SparkEngine(
        name="shipping",
        slots=SLOTS,
        properties=spark_properties(settings, ()),
        on_job_ended=lifeline.revoke,
        on_copier_ended=lambda *about: ended.append(about),
        on_copier_lost=lambda *about: ended.append(about),
        on_placed=lambda copier, executor: None,
        on_decommissioned=lambda *about: ended.append(about),
        on_jvm_failed=lambda reason: ended.append(reason),
        on_capacity=lambda missing: None,
        silence_s=60,
    )
    try:
        engine.start()
        for slot in range(SLOTS):
            copier = CopierId(slot, 1)
            engine.start_copier(copier, engines.stub_config(lifeline, copier), f"slot {slot}")
        for _ in range(SLOTS):
            process = psutil.Process(hellos.get(timeout=START_S).pid)
            assert Path(process.exe()) == Path(PYTHON).resolve()
            mapped = {Path(each.path) for each in process.memory_maps()}
            packages = Path(process.cwd()) / "packages"
            assert any(path.is_relative_to(packages.resolve()) for path in mapped)
        assert len(cluster.executors()) == SLOTS
        assert ended == []
    finally:
        lifeline.close()
        engines.stop(engine)
