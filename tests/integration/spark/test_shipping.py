"""Copiers on a standalone cluster whose Python has none of their packages: all come from an archive."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ureplicator_common.config.roles import WorkerSettings
from ureplicator_common.config.spark import spark_properties
from ureplicator_testkit.spark import engines
from ureplicator_testkit.spark.standalone import SparkStandalone
from ureplicator_worker import executor_archive

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("quick_java")]

SLOTS = 2
START_S = 120.0
PYTHON = f"{sys.base_prefix}/bin/python3.{sys.version_info.minor}"
"""The interpreter without the environment that the tests run in."""


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Archive of what copiers import; the whole of an environment is 110 MB."""
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
    settings = WorkerSettings(
        slots=SLOTS,
        spark={
            "spark.master": cluster.url,
            "spark.pyspark.python": PYTHON,
            "spark.archives": f"{archive}#packages",
            "spark.executorEnv.PYTHONPATH": "packages",
        },
    )
    with engines.running_stubs(spark_properties(settings, ()), slots=SLOTS) as stubs:
        for _ in range(SLOTS):
            process = psutil.Process(stubs.hellos.get(timeout=START_S).pid)
            assert Path(process.exe()) == Path(PYTHON).resolve()
            mapped = {Path(region.path) for region in process.memory_maps()}
            packages = Path(process.cwd()) / "packages"
            assert any(path.is_relative_to(packages.resolve()) for path in mapped)
        assert len(cluster.executors()) == SLOTS
        assert stubs.ended == []
