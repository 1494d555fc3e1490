"""Two thousand simulated runs of a whole fleet under faults, in two processes.

They run with a fixed hash seed of Python, by the command that repeats a single seed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ureplicator_testkit.servers.processes import Process

SEEDS = 2_000
SHARDS = 2
COMMAND = [sys.executable, "-m", "ureplicator_testkit.simulation"]
DEADLINE_S = 560


def test_two_thousand_seeds_keep_every_invariant(tmp_path: Path) -> None:
    share = SEEDS // SHARDS
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
