"""A driver's JVM takes Spark's classes from the archive that was made for it, and starts without one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ureplicator_worker.engines import class_archive

pytestmark = pytest.mark.integration

START = """
import sys
from pathlib import Path
from pyspark import SparkConf
from ureplicator_worker.engines import class_archive, jvm
archive, log = map(Path, sys.argv[1:])
class_archive.archive = lambda: archive
scratch = jvm.make_scratch()
options = jvm.java_options(scratch, f"-Xlog:class+load:file={log}")
settings = {"spark.master": "local[1]", "spark.app.name": "a", "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false", "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1", "spark.driver.extraJavaOptions": options}
conf = SparkConf(loadDefaults=False).setAll(settings.items())
driver = jvm.start_driver(conf, jvm.find_java(), scratch=scratch)
print("started", driver.context.parallelize([1], 1).collect())
driver.stop()
"""
FROM_ARCHIVE = "org.apache.spark.SparkContext source: shared objects file (top)"


def loaded(archive: Path, log: Path) -> str:
    """Classes that the JVM of a driver loaded, and from where."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("SPARK_")}
    command = [sys.executable, "-c", START, str(archive), str(log)]
    ended = subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, check=False, env=environment
    )
    assert ended.stdout == "started [1]\n", ended.stderr
    assert ended.stderr == ""
    return log.read_text()


def test_a_driver_takes_the_archive_of_its_environment(tmp_path: Path) -> None:
    archive = class_archive.archive()
    assert archive.exists(), "scripts/setup makes it"
    assert FROM_ARCHIVE in loaded(archive, tmp_path / "classes.log")


@pytest.mark.parametrize("content", [None, b"", b"not an archive"])
def test_a_driver_starts_without_a_fitting_archive(content: bytes | None, tmp_path: Path) -> None:
    archive = tmp_path / "other.jsa"
    if content is not None:
        archive.write_bytes(content)
    classes = loaded(archive, tmp_path / "classes.log")
    assert "org.apache.spark.SparkContext source: " in classes
    assert FROM_ARCHIVE not in classes
