"""Value of the simulation: each safeguard that is removed must be detected, as a violation of the invariant
that it protects.

The mutants run as processes of their own, as many at a time as there are cores.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from ureplicator_testkit.simulation.mutants import MUTANTS

SEEDS = 2_000
"""As many as `scripts/test --long` runs of the product as it is."""
AT_A_TIME = max(1, min(2, os.cpu_count() or 1))
TIMEOUT_S = 1_700

CAUGHT_BY = {
    "take-before-give": "T",
    "no-fence-written": "I",
    "no-fence-written, unchecked": "S",
    "no-fence-done": "S",
    "leader-not-fenced": "S",
    "renewed-without-fence": "S",
    "no-proof": "S",
    "no-sync": "S",
    "commit-ahead": "K",
    "position-before-fence": "S",
    "former-process-not-fenced": "S",
    "former-process-not-fenced, second route": "S",
    "former-process-returns": "S",
    "epoch-not-checked": "E",
    "no-delay": "M",
    "less-delay": "M",
    "renewed-without-position": "C",
    "no-brake": "M",
    "leave-not-seen": "C",
    "former-topics-kept": "P",
    "slots-not-counted": "C",
    "tags-not-seen": "C",
    "owner-epoch-not-raised": "S",
    "response-before-write": "A",
}
"""A lack may violate other invariants too, in earlier seeds: those do not count."""

FIRST = {
    "no-fence-written, unchecked": 69,
    "no-fence-done": 33,
    "leader-not-fenced": 65,
    "renewed-without-fence": 3,
    "no-sync": 55,
    "position-before-fence": 69,
    "former-process-not-fenced": 282,
    "former-process-not-fenced, second route": 555,
    "former-process-returns": 706,
    "epoch-not-checked": 121,
    "no-delay": 3,
    "less-delay": 18,
    "no-brake": 9,
    "leave-not-seen": 4,
    "former-topics-kept": 1,
    "slots-not-counted": 3,
    "tags-not-seen": 7,
    "owner-epoch-not-raised": 1,
    "response-before-write": 51,
}
"""Seeds that caught them, tried before the others of the same `SEEDS`: minutes less in all."""

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "0"}
"""Read before threads start runs: pytest changes a variable with each test."""

Run = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest) -> Iterator[Mapping[str, Future[Run]]]:
    """Runs of the selected mutants, started in the order of the tests."""
    selected = [
        str(item.callspec.params["mutant"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module
    ]
    pool = ThreadPoolExecutor(AT_A_TIME)
    yield {mutant: pool.submit(_run, mutant) for mutant in selected}
    pool.shutdown(cancel_futures=True)


def _run(mutant: str) -> Run:
    first = FIRST.get(mutant, 0)
    run = _run_seeds(mutant, first, SEEDS - first)
    return run if run.returncode or not first else _run_seeds(mutant, 0, first)


def _run_seeds(mutant: str, first: int, seeds: int) -> Run:
    command = [sys.executable, "-m", "ureplicator_testkit.simulation"]
    which = ["--mutant", mutant, "--invariant", CAUGHT_BY[mutant]]
    return subprocess.run(  # noqa: S603
        [*command, *which, "--from", str(first), "--seeds", str(seeds)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env=ENVIRONMENT,
    )


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_missing_safeguard_is_detected(mutant: str, runs: Mapping[str, Future[Run]]) -> None:
    run = runs[mutant].result()
    assert run.returncode == 1, run.stdout + run.stderr
    _, invariant, _ = run.stdout.splitlines()[-2].split(": ", 2)
    assert invariant == CAUGHT_BY[mutant], run.stdout
