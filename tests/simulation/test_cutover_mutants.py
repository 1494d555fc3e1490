"""Value of the histories of cutovers: each safeguard that is removed is detected, as a violation of an
invariant that it protects; a unit test detects the one whose harm they hardly draw."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ureplicator_testkit.cutover_histories.mutants import MUTANTS
from ureplicator_testkit.forks import Run, runs

MUTANT_SEEDS = 600
MODULE = "ureplicator_testkit.cutover_histories"

FIRST = {
    "fence-after-drain": 0,
    "ends-before-fence": 5,
    "groups-before-drain": 4,
    "reverse-from-before-fence": 3,
    "reverse-from-before-drain": 0,
    "not-drained": 5,
    "no-last-look": 3,
    "late-write-not-drained": 9,
    "held-not-drained": 6,
    "target-opened-early": 10,
    "lagging-broker": 1,
    "fence-not-compared": 281,
    "fence-not-noted": 10,
    "members-not-waited-for": 5,
    "unfit-topic": 49,
    "abort-forgets-a-right": 5,
    "groups-noted-once": 100,
    "forward-not-reversed": 19,
    "held-not-waited-for": 3,
    "lost-worker-not-fenced": 3,
    "reverse-from-now": 3,
    "reverse-from-the-beginning": 3,
    "old-fence-kept": 5,
    "old-fence-forgotten": 5,
    "turns-forgotten": 76,
    "run-interrupted": 11,
    "node-without-epoch": 2,
    "old-content-written": 10,
    "not-proven": 44,
    "proven-once": 44,
    "forward-map-alone": 21,
    "eras-without-bounds": 41,
}
"""Seeds that detect them, tried before the others of the same `MUTANT_SEEDS`."""

ERAS = "tests/unit/controller/cutover/test_eras.py::test_"
DIRECTED = {
    "position-of-former-copy": f"{ERAS}late_writes_do_not_bound_groups_whose_clients_have_left",
}


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> Mapping[str, Run]:
    """Runs of the selected mutants."""
    mutants = [
        str(item.callspec.params["mutant"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module
    ]
    found = play({mutant: range(FIRST.get(mutant, 0), MUTANT_SEEDS) for mutant in mutants})
    missed = [mutant for mutant in FIRST if mutant in found and not found[mutant].code]
    return found | play({mutant: range(FIRST[mutant]) for mutant in missed})


def play(tried: Mapping[str, range]) -> dict[str, Run]:
    """Play each mutant's seeds until an invariant that it is to violate is violated."""
    arguments = [
        [f"--mutant={mutant}", f"--test={DIRECTED[mutant]}"]
        if mutant in DIRECTED
        else [
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
    detected = "1 failed" if mutant in DIRECTED else "cutover_histories.judge.Violation: "
    assert detected in run.output, "the mutant itself fails"
