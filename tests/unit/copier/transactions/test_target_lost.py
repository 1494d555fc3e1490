"""A target that lost acknowledged records (an unclean election), exactly once: nothing is appended behind.

Else what was appended, though aborted, makes the log longer than what it had acknowledged, and the next start
finds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from ureplicator_common.model import GapPolicy
from ureplicator_testkit.copier.ledger_fleet import put
from ureplicator_testkit.copier.transaction_fleet import (
    HANDLED,
    PROTOCOLS,
    SHARED,
    TransactionFleet,
)

KEY = ("t", 0)
MARKER = 1
"""The end of a transaction is appended wherever it had something."""


@pytest.fixture(params=PROTOCOLS, ids=[protocol.name for protocol in PROTOCOLS])
def fleet(request: pytest.FixtureRequest) -> Iterator[TransactionFleet]:
    """Partition 0 has been copied, partition 1 too."""
    fleet = TransactionFleet(request.param, "w1")
    for number in range(2):
        fleet.give(number, "w1")
        put(fleet, number, 10, size=3_000)
    fleet.run_until_copied()
    fleet.turns(5)
    fleet.checks = False
    yield fleet
    fleet.close()


def lose(fleet: TransactionFleet, records: int) -> int:
    """Another leader without the last records, and without the producers. Returns the end of its log."""
    log = fleet.target.logs[KEY]
    log.truncate(log.end - records)
    log.forget_producers()
    fleet.target.cut(1)
    return log.end


def failures(fleet: TransactionFleet) -> list[str]:
    return [
        failure.reason for failure in fleet.workers["w1"].failures if failure.partition.number == 0
    ]


@pytest.mark.parametrize("lost", [2, 6])
def test_a_leader_that_lost_records_gets_nothing_more(fleet: TransactionFleet, lost: int) -> None:
    end = lose(fleet, lost)
    for number in range(2):
        put(fleet, number, 20, size=3_000)
    fleet.turns(100, skip_s=0.1)
    assert fleet.target.logs[KEY].end == end
    assert f"target lost offsets {end} to " in failures(fleet)[0]
    assert "on_gap: stop" in failures(fleet)[-1]
    assert fleet.ledger.read(("t", 1)).offset == 30


def test_one_that_is_elected_in_the_middle_of_a_transaction(fleet: TransactionFleet) -> None:
    log = fleet.target.logs[KEY]
    for _ in range(20):  # turns of two intervals
        put(fleet, 0, 1, size=3_000)
        fleet.turn(skip_s=0.01)
        if log.transactions:
            break
    assert log.transactions
    end = lose(fleet, 6)
    put(fleet, 0, 20, size=3_000)
    fleet.turns(100, skip_s=0.1)
    assert fleet.target.logs[KEY].end == end + MARKER
    assert "target lost offsets" in failures(fleet)[0]
    assert "on_gap: stop" in failures(fleet)[-1]


def test_a_marker_hides_no_lost_record(fleet: TransactionFleet) -> None:
    """The new leader gets the marker of the committed transaction in the place of its last record."""
    put(fleet, 0, 1, size=3_000)
    fleet.ledger.preparing = True
    while not fleet.ledger.prepared("w1"):
        fleet.turn(skip_s=0.02)
    lose(fleet, 1)
    fleet.ledger.finish()
    end = fleet.target.logs[KEY].end
    put(fleet, 0, 20, size=3_000)
    fleet.turns(100, skip_s=0.1)
    assert fleet.target.logs[KEY].end == end
    fleet.kill("w1")
    fleet.turns(100, skip_s=0.1)
    assert fleet.target.logs[KEY].end == end
    assert f"the log ends at {end}, where the end of the last transaction" in failures(fleet)[-1]


def marker_lost(fleet: TransactionFleet) -> int:
    """Lose the end of the last transaction, and nothing before it; the end of the log."""
    end = lose(fleet, MARKER)
    put(fleet, 0, 20, size=3_000)
    fleet.turns(20, skip_s=0.1)
    assert fleet.target.logs[KEY].end == end
    return end


def test_a_marker_that_never_comes_is_lost(fleet: TransactionFleet) -> None:
    """Nothing is appended before the operator decides."""
    end = marker_lost(fleet)
    assert not [reason for reason in failures(fleet) if "target lost" in reason]
    fleet.turns(200, skip_s=1.0)
    assert fleet.target.logs[KEY].end == end
    assert failures(fleet)[-1] == f"target lost offsets {end} to {end} (on_gap: stop)"


@pytest.mark.parametrize("killed", [False, True])
def test_a_partition_goes_on_behind_a_lost_marker(fleet: TransactionFleet, killed: bool) -> None:
    fleet.settings = replace(fleet.settings, on_gap=GapPolicy.LATEST)
    end = marker_lost(fleet)
    if killed:
        fleet.kill("w1")
    fleet.turns(200, skip_s=1.0)
    assert fleet.target.logs[KEY].end > end
    assert fleet.ledger.read(KEY).offset == 30


def test_a_leader_with_all_records_costs_one_question(fleet: TransactionFleet) -> None:
    """A connection that is lost, and found again."""
    before = fleet.ledger.done.count("initialise")
    fleet.target.cut(1)
    for _ in range(5):
        put(fleet, 0, 5)
        fleet.run_until_copied()
    assert fleet.ledger.done.count("initialise") == before
    assert not failures(fleet)


@pytest.mark.parametrize(("more", "failing"), [(0, {1}), (1, {0, 1})])
def test_who_shares_a_partition_goes_on_if_all_of_its_own_is_there(
    more: int, failing: set[int]
) -> None:
    """The lost records are those of the other one, or one more."""
    fleet = TransactionFleet(PROTOCOLS[0], "w1", settings=HANDLED)
    log = fleet.target.logs[SHARED, 0]
    ends = []
    for number in range(2):
        fleet.give(number, "w1")
        put(fleet, number, 5)
        fleet.run_until_copied()
        fleet.turns(5)
        ends.append(log.end)
    fleet.checks = False
    log.truncate(ends[0] - more)
    log.forget_producers()
    fleet.target.cut(1)
    put(fleet, 1, 5)
    lost = f"target lost offsets {log.end} to {ends[1] - 1}"
    found = fleet.workers["w1"].failures
    fleet.turns(20)
    assert {failure.partition.number for failure in found if lost in failure.reason} == failing
    fleet.close()
