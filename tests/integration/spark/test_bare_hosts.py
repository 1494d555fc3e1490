"""Spark where the system knows little: a user id without a name, and a host name without an address."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

_START = """
from pyspark import SparkConf
from ureplicator_worker.engines import jvm
settings = {"spark.master": "local[1]", "spark.app.name": "a", "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": jvm.java_options(jvm.make_scratch())}
driver = jvm.start_driver(SparkConf(loadDefaults=False).setAll(settings.items()), jvm.find_java())
print("started", driver.context.parallelize([1], 1).map(lambda each: each + 1).collect())
driver.stop()
"""
UID = "54321"
NO_NAME = ["setpriv", "--reuid", UID, "--regid", "0", "--clear-groups"]
NO_ADDRESS = ["unshare", "--uts", "sh", "-c", 'hostname nosuchhost && exec "$@"', "-"]


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
@pytest.mark.parametrize("prefix", [NO_NAME, NO_ADDRESS])
def test_spark_starts_and_runs_a_task(prefix: list[str]) -> None:
    scratch = Path(tempfile.mkdtemp(prefix="ureplicator-bare-"))  # tmp_path is root's alone
    scratch.chmod(0o777)
    environ = {**os.environ, "TMPDIR": str(scratch), "HOME": str(scratch)}
    command = [*prefix, sys.executable, "-c", _START]
    try:
        ended = subprocess.run(  # noqa: S603
            command,
            env=environ,
            cwd=scratch,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    finally:
        shutil.rmtree(scratch)
    assert "started [2]" in ended.stdout, ended.stderr[-2_000:]
