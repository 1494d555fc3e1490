"""Batches of unknown outcome, beside others by whose time brokers forget their producer."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_testkit.copier.fenced_fleet import FENCED, FencedFleet
from ureplicator_testkit.copier.ledger_fleet import put
from ureplicator_testkit.copier.transaction_fleet import PROTOCOLS, committed

LARGE = 900
"""Batches of this size are not merged."""
HOUR_S = 3600.0


@pytest.fixture
def fleet() -> Iterator[FencedFleet]:
    fleet = FencedFleet(PROTOCOLS[0], "w1", "w2", nodes=2, settings=FENCED)
    fleet.age()
    yield fleet
    fleet.close()


def copied(fleet: FencedFleet) -> int:
    return len(committed(fleet.target, ("t", 0), stable=False))


def begin(fleet: FencedFleet) -> None:
    """Up to five batches are in flight from now on."""
    fleet.give(0, "w1")
    put(fleet, 0, 1, time_ms=fleet.young_ms)
    fleet.run_until_copied()


def test_an_old_batch_behind_a_young_one_of_unknown_outcome(fleet: FencedFleet) -> None:
    """By the time of the old one the broker has forgotten the producer of both."""
    begin(fleet)
    node = fleet.target.leaders["t", 0]
    fleet.target.silent.add(node)
    put(fleet, 0, 1, size=LARGE, time_ms=fleet.young_ms)
    put(fleet, 0, 1, size=LARGE)
    fleet.turns(20)
    fleet.target.silent.clear()
    fleet.target.cut(node)
    fleet.run_until_copied()
    assert copied(fleet) == 3


def test_a_batch_that_has_become_old_behind_one_of_unknown_outcome(fleet: FencedFleet) -> None:
    """Both were young when they were sent: the target is away for hours meanwhile."""
    begin(fleet)
    node = fleet.target.leaders["t", 0]
    fleet.target.silent.add(node)
    put(fleet, 0, 1, size=LARGE, time_ms=fleet.young_ms)
    put(fleet, 0, 1, size=LARGE, time_ms=fleet.young_ms - round(22 * HOUR_S * 1_000))
    fleet.turns(20)
    assert copied(fleet) == 3
    fleet.target.down.add(node)
    fleet.turn()
    fleet.age(3 * HOUR_S)
    fleet.target.silent.clear()
    fleet.target.down.clear()
    fleet.run_until_copied()
    assert copied(fleet) == 3


def test_a_batch_that_was_taken_before_the_one_in_front_of_it(fleet: FencedFleet) -> None:
    """It is sent again behind that one, and refused since the limit of the topic is lower now. It is there:
    what follows under its sequence would be taken for it, and be lost."""
    fleet.publish(replace(FENCED, abort_on_send_failure=False))
    begin(fleet)
    key = ("t", 0)
    fleet.target.belated[key] = deque([ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND])
    codes = [ErrorCode.NONE] * 3 + [ErrorCode.MESSAGE_TOO_LARGE]
    fleet.target.refuse[key] = deque(codes)
    put(fleet, 0, 2, size=LARGE, time_ms=fleet.young_ms)
    fleet.turns(20)
    put(fleet, 0, 1, time_ms=fleet.young_ms)
    fleet.run_until_copied()
    assert (copied(fleet), fleet.target.refuse[key]) == (4, deque())
