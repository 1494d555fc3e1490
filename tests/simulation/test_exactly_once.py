"""Random histories of exactly once keep every invariant, and detect each safeguard that is removed."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ureplicator_testkit.exactly_once.mutants import MUTANTS
from ureplicator_testkit.forks import Run, runs
from ureplicator_testkit.seeds import seeds

MUTANT_SEEDS = 600
MODULE = "ureplicator_testkit.exactly_once"

FIRST = {
    "no-rewind": 13,
    "rewind-too-far": 2,
    "rewind-too-short": 4,
    "rewind-to-last-seen": 6,
    "unsettled": 4,
    "not-sealed": 30,
    "some-positions": 8,
    "epoch-alone": 95,
    "initialised-once": 6,
    "no-restart": 17,
    "fenced-goes-on": 2,
    "failed-goes-on": 6,
    "unseen-is-committed": 6,
    "leaves-uncommitted": 100,
    "abort-goes-on": 13,
    "stale-join": 17,
    "former-producer": 80,
    "lost-is-retried": 33,
}
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
    """Play each mutant's seeds until one detects it."""
    arguments = [
        [f"--mutant={mutant}", f"--from={of.start}", f"--seeds={len(of)}"]
        for mutant, of in tried.items()
    ]
    return dict(zip(tried, runs(MODULE, arguments), strict=True))


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_missing_safeguard_is_detected(mutant: str, found: Mapping[str, Run]) -> None:
    run = found[mutant]
    assert run.code == 1, run.output
    assert ": AssertionError: " in run.output.splitlines()[-2], "the mutant itself fails"
