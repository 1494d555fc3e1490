"""The process that copiers are forked from."""

from __future__ import annotations

import subprocess
import sys

LOADED = """
import os, sys
import ureplicator_worker.engines.fork_server
from ureplicator_worker.engines.spark_entry import COPIER, load
load(COPIER)
print(len(os.listdir("/proc/self/task")), *sorted({"numpy", "pandas", "pyarrow"} & set(sys.modules)))
"""


def test_what_copiers_share_starts_no_thread() -> None:
    """Threads do not survive a fork."""
    command = [sys.executable, "-c", LOADED]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout.split() == ["1"]
