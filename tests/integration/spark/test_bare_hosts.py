"""Spark where the system knows little: a user id without a name, and a host name without an address."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

_START = """
from pyspark import SparkConf
from ureplicator_worker.engines import jvm
scratch = jvm.make_scratch()
settings = {"spark.master": "local[1]", "spark.app.name": "a", "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": jvm.java_options(scratch)}
conf = SparkConf(loadDefaults=False).setAll(settings.items())
driver = jvm.start_driver(conf, jvm.find_java(), scratch=scratch)
print("started", driver.context.parallelize([1], 1).map(lambda number: number + 1).collect())
driver.stop()
"""
UID = "54321"
BECOME = f'hostname nosuchhost && exec setpriv --reuid {UID} --regid 0 --clear-groups "$@"'


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder for any user; `tmp_path` is root's alone."""
    folder = Path(tempfile.mkdtemp(prefix="ureplicator-bare-"))
    folder.chmod(0o777)
    (folder / "python").mkdir()
    yield folder
    (folder / "python").rmdir()  # fails if anything were mounted there still
    shutil.rmtree(folder)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_spark_starts_and_runs_a_task(scratch: Path) -> None:
    probe = run_there(scratch, "import pyspark; print('ready')")
    if "ready" not in probe.stdout:
        pytest.skip(f"{sys.base_prefix} does not run there: {probe.stderr.strip()[-300:]}")
    ended = run_there(scratch, _START)
    assert "started [2]" in ended.stdout, ended.stderr[-2_000:]


def run_there(scratch: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program there with this Python, mounted where every user may run it.

    Its own folder may be closed to others, as those below root's home are. Spark's Python processes get
    the same one: the `python3` of the PATH may be one that the user must not run.

    The `env` between is needed: what setpriv itself starts still has the rights of root for that call.
    """
    home = scratch / "python"
    python = str(home / "bin" / f"python3.{sys.version_info.minor}")
    mount = f"mount --bind {shlex.quote(sys.base_prefix)} {shlex.quote(str(home))} && {BECOME}"
    environ = {
        **os.environ,
        "TMPDIR": str(scratch),
        "HOME": str(scratch),
        "PYSPARK_PYTHON": python,
        "LD_LIBRARY_PATH": str(home / "lib"),  # of a Python that is built with a shared library
        "PYTHONPATH": os.pathsep.join(
            entry for entry in sys.path if entry and not entry.startswith(sys.base_prefix)
        ),
    }
    return subprocess.run(  # noqa: S603
        ["unshare", "--mount", "--uts", "sh", "-c", mount, "-", "env", python, "-c", program],  # noqa: S607
        env=environ,
        cwd=scratch,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
