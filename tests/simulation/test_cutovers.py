"""Random histories of cutovers keep every invariant."""

from __future__ import annotations

from ureplicator_testkit.forks import runs
from ureplicator_testkit.seeds import seeds

MODULE = "ureplicator_testkit.cutover_histories"
SHARE = 4
"""A history takes half a second of the processor, as much as some of the others together."""


def test_seeds_keep_every_invariant() -> None:
    count = max(1, seeds() // SHARE)
    (run,) = runs(MODULE, [["--seeds", str(count)]])
    assert run.code == 0, run.output
    assert f"{count} seeds, no violation" in run.output
