"""The file for Spark's executors: a Python without any package imports a copier from it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ureplicator_common.errors import PermanentError
from ureplicator_testkit.control.command import run
from ureplicator_worker import executor_archive
from ureplicator_worker.executor_archive import pack, required_distributions

COPIER = ("kafka-python", "cramjam", "crc32c")
"""Packages that a copier imports; the rest takes seconds to compress."""


def test_a_copier_and_its_entry_are_imported_from_the_file_alone(
    tmp_path: Path,
) -> None:
    file = tmp_path / "packages.zip"
    assert executor_archive._write(file, required_distributions(COPIER)) > 100
    with zipfile.ZipFile(file) as archive:
        archive.extractall(tmp_path / "packages")
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'packages')!r})\n"
        "import ureplicator_worker.copier.task, ureplicator_worker.engines.spark_entry\n"
        "import cramjam, crc32c, kafka\n"
        "print(ureplicator_worker.__file__, cramjam.__file__, kafka.__file__)"
    )
    python = [f"{sys.base_prefix}/bin/python3", "-I", "-S", "-c", script]
    output = subprocess.run(python, check=True, capture_output=True, text=True).stdout  # noqa: S603
    assert all(path.startswith(str(tmp_path)) for path in output.split())


def test_what_a_worker_requires_is_packed_without_spark() -> None:
    names = set(required_distributions(("ureplicator",)))
    assert names >= {
        "ureplicator",
        "kafka-python",
        "cramjam",
        "crc32c",
        "pyarrow",
        "pandas",
        "numpy",
    }
    assert names.isdisjoint({"pyspark", "py4j", "flask", "gunicorn"})


def test_a_distribution_that_is_not_installed_is_named(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="no-such-handlers is not installed here"):
        pack(tmp_path / "packages.zip", ["no-such-handlers"])


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    result = run("executor-archive", str(tmp_path / "no" / "packages.zip"))
    assert result.exit_code == 1
    assert (
        result.stderr
        == f"{tmp_path}/no/packages.zip: cannot be written: No such file or directory\n"
    )
