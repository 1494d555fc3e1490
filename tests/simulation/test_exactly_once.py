"""Random histories of exactly once keep every invariant, and detect each safeguard that is removed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from ureplicator_testkit.exactly_once.mutants import MUTANTS
from ureplicator_testkit.seeds import seeds

MUTANT_SEEDS = 600
AT_A_TIME = max(1, min(2, os.cpu_count() or 1))
TIMEOUT_S = 1_700
"""These runs have what other lanes of `scripts/test` leave of the processor."""

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "0"}
"""Read before threads start runs: pytest changes a variable with each test."""

Run = subprocess.CompletedProcess[str]


def histories(*options: str) -> Run:
    command = [sys.executable, "-m", "ureplicator_testkit.exactly_once", *options]
    return subprocess.run(  # noqa: S603
        command,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env=ENVIRONMENT,
    )


def test_seeds_keep_every_invariant() -> None:
    run = histories("--seeds", str(seeds()))
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{seeds()} seeds, no violation" in run.stdout


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest) -> Iterator[Mapping[str, Future[Run]]]:
    """Runs of the selected mutants, started in the order of the tests."""
    selected = [
        str(item.callspec.params["mutant"])
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.module is request.module
        and hasattr(item, "callspec")
    ]
    pool = ThreadPoolExecutor(AT_A_TIME)
    seeds = ("--seeds", str(MUTANT_SEEDS))
    yield {each: pool.submit(histories, "--mutant", each, *seeds) for each in selected}
    pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_missing_safeguard_is_detected(mutant: str, runs: Mapping[str, Future[Run]]) -> None:
    run = runs[mutant].result()
    assert run.returncode == 1, run.stdout + run.stderr
