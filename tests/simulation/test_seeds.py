"""Simulated runs of a whole fleet under faults, in two processes.

They run with a fixed hash seed of Python, by the command that repeats a single seed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ureplicator_testkit.seeds import seeds
from ureplicator_testkit.servers.processes import Process

SHARDS = 2
COMMAND = [sys.executable, "-m", "ureplicator_testkit.simulation"]
DEADLINE_S = 1_700


def test_seeds_keep_every_invariant(tmp_path: Path) -> None:
    share = seeds() // SHARDS
    shards = [
        Process(
            f"simulation-{number}",
            [*COMMAND, "--from", str(number * share), "--seeds", str(share)],
            log=tmp_path / f"{number}.log",
            env={"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "0"},
        )
        for number in range(SHARDS)
    ]
    try:
        for shard in shards:
            assert shard.wait(DEADLINE_S) == 0, shard.log_tail(90)
            assert f"{share} seeds, no violation" in shard.log_text()
    finally:
        for shard in shards:
            shard.kill_tree()
