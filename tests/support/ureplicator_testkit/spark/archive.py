"""Spark's classes as Java maps them into memory: the JVM of a driver starts at half the cost.

`scripts/setup --tests` makes the archive by a first start and end. Java takes it only with the same jars,
so it lies in their environment. Run as a program, this module makes it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from ureplicator_testkit.servers.java import QUICK_START, QUIET, java_version, new_archive

FIRST_USE = """
import pyarrow
from pyspark.sql import SparkSession
settings = {"spark.master": "local[1]", "spark.app.name": "archive", "spark.ui.port": "0"}
session = SparkSession.builder.config(map=settings).getOrCreate()
session.sparkContext.parallelize([0, 1]).map(str).collect()
records = pyarrow.table({"key": [b"k", None], "value": [b"{}", None], "number": [1, 2]})
session.createDataFrame(records).createOrReplaceTempView("records")
session.sql("SELECT upper(cast(value AS string)), number + 1 FROM records").toArrow()
session.stop()
"""


def archive_of_classes() -> Path:
    return Path(sys.prefix) / f"spark-java-{java_version()}.jsa"


def environment() -> Mapping[str, str]:
    """Variables with which Spark starts the JVMs of drivers so."""
    archive = archive_of_classes()
    shared = (f"-XX:SharedArchiveFile={archive}", *QUIET) if archive.exists() else ()
    return {
        "SPARK_SUBMIT_OPTS": " ".join((*QUICK_START, *shared)),
        "SPARK_LAUNCHER_OPTS": " ".join(QUICK_START),
    }


def make_archive() -> None:
    """Start and end a driver that writes down the classes it loaded."""
    archive = archive_of_classes()
    if archive.exists():
        return
    with new_archive(archive) as options:
        subprocess.run(  # noqa: S603  # this very module's text
            [sys.executable, "-c", FIRST_USE],
            env={**os.environ, "SPARK_SUBMIT_OPTS": " ".join(options)},
            check=True,
            capture_output=True,
        )


if __name__ == "__main__":
    make_archive()
