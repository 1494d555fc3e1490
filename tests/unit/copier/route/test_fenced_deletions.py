"""Exactly once without transactions: records that are deleted between a copy and its count."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ureplicator_testkit.copier.fenced_fleet import FENCED, FencedFleet
from ureplicator_testkit.copier.ledger_fleet import put
from ureplicator_testkit.copier.line import seen
from ureplicator_testkit.copier.transaction_fleet import PROTOCOLS, committed

K0 = ("t", 0)
STORED, COPIED = 5, 12


@pytest.fixture
def fleet() -> Iterator[FencedFleet]:
    """An owner was killed when it had copied more than it had stored."""
    fleet = FencedFleet(PROTOCOLS[0], "w1", "w2", nodes=2, settings=FENCED)
    fleet.give(0, "w1")
    put(fleet, 0, STORED)
    fleet.run_until_copied()
    put(fleet, 0, COPIED - STORED)
    while len(target(fleet)) < COPIED:
        fleet.turn(skip_s=0.001)
    assert fleet.ledger.read(K0).offset == STORED
    fleet.kill("w1")
    yield fleet
    fleet.close()


def target(fleet: FencedFleet) -> list[tuple[object, ...]]:
    return seen(committed(fleet.target, K0, stable=False))


def source(fleet: FencedFleet) -> list[tuple[object, ...]]:
    return seen(committed(fleet.source, K0))


def test_a_source_that_begins_among_what_was_copied(fleet: FencedFleet) -> None:
    fleet.checks = False
    fleet.source.logs[K0].start = COPIED - 2
    put(fleet, 0, 3)
    fleet.run_until_copied()
    assert target(fleet) == source(fleet)


@pytest.mark.parametrize("start", [STORED + 1, COPIED - 1])
def test_a_target_that_begins_among_what_was_copied(fleet: FencedFleet, start: int) -> None:
    fleet.target.logs[K0].start = start
    put(fleet, 0, 3)
    fleet.run_until_copied()
    assert target(fleet) == source(fleet)


def test_an_empty_target_with_records_behind_the_position_stops_the_partition(
    fleet: FencedFleet,
) -> None:
    fleet.target.logs[K0].start = COPIED
    put(fleet, 0, 3)
    fleet.turns(50)
    reasons = {failure.reason for failure in fleet.workers["w1"].failures}
    begins = f"the target's log begins at {COPIED}"
    assert reasons == {f"target: {begins}, behind what was sent after the position"}


def test_an_empty_target_with_nothing_behind_the_position(fleet: FencedFleet) -> None:
    fleet.run_until_copied()
    fleet.kill("w1")
    fleet.target.logs[K0].start = fleet.target.logs[K0].end
    put(fleet, 0, 3)
    fleet.run_until_copied()
    assert target(fleet) == source(fleet)
