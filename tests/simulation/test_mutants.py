"""What the simulation is worth: each safeguard that is taken away must be missed within the seeds
that are run anyway, by the promise that it stands for."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ureplicator_testkit.simulation.mutants import MUTANTS

SEEDS = 2_000
"""All that are run for each change."""

CAUGHT_BY = {
    "take-before-give": "T",
    "no-fence-written": "I",
    "no-fence-written, deaf": "S",
    "no-fence-done": "S",
    "leader-not-fenced": "S",
    "renewed-without-fence": "S",
    "no-proof": "S",
    "position-before-fence": "S",
    "former-process-not-fenced": "S",
    "former-process-returns": "S",
    "epoch-not-checked": "E",
    "no-delay": "M",
    "owner-epoch-stands-still": "S",
    "answer-before-write": "A",
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_missing_safeguard_is_detected(mutant: str) -> None:
    command = [sys.executable, "-m", "ureplicator_testkit.simulation"]
    run = subprocess.run(  # noqa: S603
        [*command, "--mutant", mutant, "--seeds", str(SEEDS)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "0"},
    )
    assert run.returncode == 1, run.stdout + run.stderr
    _, promise, _ = run.stdout.splitlines()[-2].split(": ", 2)
    assert promise == CAUGHT_BY[mutant], run.stdout
