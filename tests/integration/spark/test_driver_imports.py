"""Modules of a worker's own process: its memory is that of every worker."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.integration

SCRIPT = """
import sys
from ureplicator_worker.engines.spark import SparkEngine

def ignore(*_):
    pass

engine = SparkEngine(
    name="imports", slots=1, properties={"spark.master": "local[2]", "spark.ui.enabled": "false"},
    put=ignore, on_job_ended=ignore, on_jvm_failed=ignore, silence_s=30.0,
)
engine.start()
engine.stop()
print(sorted({"numpy", "pandas", "pyarrow"} & sys.modules.keys()))
"""


def test_a_driver_imports_no_dataframes() -> None:
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
