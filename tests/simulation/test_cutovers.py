"""Random histories of whole cutovers keep every invariant."""

from __future__ import annotations

import pytest

from ureplicator_testkit.cutover_histories.history import play
from ureplicator_testkit.cutover_histories.judge import Violation
from ureplicator_testkit.seeds import seeds


def test_every_history_keeps_every_invariant() -> None:
    for seed in range(seeds()):
        try:
            play(seed)
        except Violation as error:
            pytest.fail(f"seed {seed}: {error}")
