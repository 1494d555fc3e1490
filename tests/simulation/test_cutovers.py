"""Random histories of cutovers keep every invariant, and detect each safeguard that is removed."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ureplicator_testkit.cutover_histories.mutants import MUTANTS
from ureplicator_testkit.forks import Run, runs
from ureplicator_testkit.seeds import seeds

MUTANT_SEEDS = 600
MODULE = "ureplicator_testkit.cutover_histories"

FIRST: Mapping[str, int] = {}
"""Seeds that detect them soon, tried before the others of the same `MUTANT_SEEDS`."""


def test_seeds_keep_every_invariant() -> None:
    (run,) = runs(MODULE, [["--seeds", str(seeds())]])
    assert run.code == 0, run.output
    assert f"{seeds()} seeds, no violation" in run.output


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> Mapping[str, Run]:
    """Runs of the selected mutants."""
    mutants = [
        str(item.callspec.params["mutant"])
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.module is request.module
        and hasattr(item, "callspec")
    ]
    found = play({mutant: range(FIRST.get(mutant, 0), MUTANT_SEEDS) for mutant in mutants})
    missed = [mutant for mutant in FIRST if mutant in found and not found[mutant].code]
    return found | play({mutant: range(FIRST[mutant]) for mutant in missed})


def play(tried: Mapping[str, range]) -> dict[str, Run]:
    """Play each mutant's seeds until its invariant is violated."""
    arguments = [
        [
            f"--mutant={mutant}",
            f"--invariants={MUTANTS[mutant].letters}",
            f"--from={of.start}",
            f"--seeds={len(of)}",
        ]
        for mutant, of in tried.items()
    ]
    return dict(zip(tried, runs(MODULE, arguments), strict=True))


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_missing_safeguard_is_detected(mutant: str, found: Mapping[str, Run]) -> None:
    run = found[mutant]
    assert run.code == 1, run.output
    assert "cutover_histories.judge.Violation: " in run.output, "the mutant itself fails"
