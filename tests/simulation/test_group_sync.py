"""Random histories of the offset map and the sync of groups, and the safeguards whose lack they detect."""

from __future__ import annotations

import pytest

from ureplicator_testkit.group_sync.checks import Violation
from ureplicator_testkit.group_sync.history import History
from ureplicator_testkit.group_sync.mutants import MUTANTS
from ureplicator_testkit.seeds import seeds
from ureplicator_worker.copier.ownership import map_commits

MUTANT_SEEDS = 200
FIRST = {"adopted-without-their-ends": 59, "hidden-copies-not-waited-for": 6}
"""Seeds that detect them, tried before the others."""
FORMER = 3
"""Chunks of former owners, above which they are adopted here."""


@pytest.fixture(autouse=True)
def early_adoption(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_commits, "MAX_FORMER", FORMER)


def test_every_history_keeps_every_invariant() -> None:
    for seed in range(seeds()):
        try:
            History(seed).run()
        except Violation as error:
            pytest.fail(f"seed {seed}: {error}")


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_missing_safeguard_is_detected(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other invariants may be violated in earlier seeds: those do not count."""
    invariant, remove = MUTANTS[mutant]
    found = set()
    first = FIRST.get(mutant, 0)
    for seed in (*range(first, MUTANT_SEEDS), *range(first)):
        with monkeypatch.context() as patch:
            history = History(seed)
            remove(patch, history)
            try:
                history.run()
            except Violation as error:
                found.add(error.invariant)
        if invariant in found:
            return
    pytest.fail(f"not detected in {MUTANT_SEEDS} seeds; others: {sorted(found)}")
