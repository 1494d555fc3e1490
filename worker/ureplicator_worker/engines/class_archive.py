"""Archive of Spark's classes that Java maps into memory: a driver's JVM starts at half the cost.

Java takes an archive only if it was made by the same Java with the same jars; else it starts as without one.
Run as a program, this module makes the one of this Python environment:

    python -m ureplicator_worker.engines.class_archive
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""Options with which Java says nothing of an archive that it does not take."""
_FIRST_USE = """
import pyarrow
from pyspark.sql import SparkSession
settings = {"spark.master": "local[1]", "spark.app.name": "archive", "spark.ui.enabled": "false"}
session = SparkSession.builder.config(map=settings).getOrCreate()
session.sparkContext.parallelize([0, 1]).map(str).collect()
records = pyarrow.table({"key": [b"k", None], "value": [b"{}", None], "number": [1, 2]})
session.createDataFrame(records).createOrReplaceTempView("records")
session.sql("SELECT upper(cast(value AS string)), number + 1 FROM records").toArrow()
session.stop()
"""


def archive() -> Path:
    """Place of the archive, which need not be there."""
    return Path(sys.prefix) / "spark-classes.jsa"


def options() -> tuple[str, ...]:
    """Options of a JVM that uses the archive; none where there is none."""
    file = archive()
    return (f"-XX:SharedArchiveFile={file}", *SILENT) if file.exists() else ()


def make() -> None:
    """Start and end a driver that writes down the classes that it loaded. Raises SystemExit."""
    made = archive()
    part = made.with_suffix(f".{os.getpid()}.part")
    dump = ("-XX:TieredStopAtLevel=1", f"-XX:ArchiveClassesAtExit={part}", *SILENT)
    used = subprocess.run(  # noqa: S603  # this very module's text
        [sys.executable, "-c", _FIRST_USE],
        env={**os.environ, "SPARK_SUBMIT_OPTS": " ".join(dump)},
        check=False,
        capture_output=True,
        text=True,
    )
    if not part.exists():
        raise SystemExit(f"Java has not written {part}: {used.stderr.strip()[-500:]}")
    part.rename(made)  # no half of a file gets the name


if __name__ == "__main__":
    make()
