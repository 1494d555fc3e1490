"""Value of the simulation: each safeguard that is removed must be detected, as a violation of the invariant
that it protects.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ureplicator_testkit.forks import Run, runs
from ureplicator_testkit.simulation.mutants import MUTANTS

SEEDS = 2_000
"""As many as `scripts/test --long` runs of the product as it is."""

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
    "former-process-returns": 1959,
    "epoch-not-checked": 369,
    "no-delay": 3,
    "less-delay": 18,
    "no-brake": 9,
    "leave-not-seen": 4,
    "former-topics-kept": 1,
    "slots-not-counted": 3,
    "tags-not-seen": 11,
    "owner-epoch-not-raised": 1,
    "response-before-write": 51,
}
"""Seeds that caught them, tried before the others of the same `SEEDS`: minutes less in all."""


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> Mapping[str, Run]:
    """Runs of the selected mutants."""
    mutants = [
        str(item.callspec.params["mutant"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module
    ]
    found = run_seeds({mutant: range(FIRST.get(mutant, 0), SEEDS) for mutant in mutants})
    missed = [mutant for mutant in FIRST if mutant in found and not found[mutant].code]
    return found | run_seeds({mutant: range(FIRST[mutant]) for mutant in missed})


def run_seeds(seeds: Mapping[str, range]) -> dict[str, Run]:
    """Play each mutant's seeds until its invariant is violated."""
    arguments = [
        [
            f"--mutant={mutant}",
            f"--invariant={CAUGHT_BY[mutant]}",
            f"--from={tried.start}",
            f"--seeds={len(tried)}",
        ]
        for mutant, tried in seeds.items()
    ]
    return dict(zip(seeds, runs("ureplicator_testkit.simulation", arguments), strict=True))


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_missing_safeguard_is_detected(mutant: str, found: Mapping[str, Run]) -> None:
    run = found[mutant]
    assert run.code == 1, run.output
    _, invariant, _ = run.output.splitlines()[-2].split(": ", 2)
    assert invariant == CAUGHT_BY[mutant], run.output
