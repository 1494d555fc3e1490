"""A fleet that keeps the offsets of the source, for each test."""

from collections.abc import Iterator

import pytest

from ureplicator_testkit.copier.same_fleet import SAME, SameFleet
from ureplicator_testkit.copier.transaction_fleet import PROTOCOLS
from ureplicator_worker.copier.raw import gap_filling


@pytest.fixture
def fleet() -> Iterator[SameFleet]:
    fleet = SameFleet(PROTOCOLS[0], "w1", "w2", nodes=2, settings=SAME)
    yield fleet
    fleet.close()


@pytest.fixture
def small_fillers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few records fill a log in several turns."""
    monkeypatch.setattr(gap_filling, "RESERVE", 8)
    monkeypatch.setattr(gap_filling, "FILLER_RECORDS", 5)
