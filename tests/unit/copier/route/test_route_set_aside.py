"""A partition that cannot settle holds up the others for a bounded time only, and returns later."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import pytest

from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.transactions.producers import TransactionProtocol
from ureplicator_common.model import Partition, PartitionState
from ureplicator_testkit.copier.ledger_fleet import put
from ureplicator_testkit.copier.line import ROUTE, records, seen
from ureplicator_testkit.copier.transaction_fleet import HANDLED, PROTOCOLS, TransactionFleet
from ureplicator_worker.copier.commit_failures import TRANSACTIONS_WAIT_S
from ureplicator_worker.copier.exactly_once import SETTLE_S
from ureplicator_worker.copier.raw.lane_transaction import SET_ASIDE_S
from ureplicator_worker.lifeline.messages import PartitionReport

AWAY = 2
"""Leader of partition 1; partition 0 is another's."""
FOREVER = 100_000


@pytest.fixture(params=PROTOCOLS, ids=[member.name for member in PROTOCOLS])
def fleet(request: pytest.FixtureRequest) -> Iterator[TransactionFleet]:
    """Both partitions are copied so far."""
    protocol: TransactionProtocol = request.param
    fleet = TransactionFleet(protocol, "w1", nodes=2)
    for number in range(2):
        fleet.give(number, "w1")
        put(fleet, number, 5)
    fleet.run_until_copied()
    yield fleet
    fleet.close()


def report(fleet: TransactionFleet, number: int) -> PartitionReport:
    return fleet.workers["w1"].copier.report()[Partition(ROUTE, "t", number)]


def go_on(fleet: TransactionFleet, duration_s: float, *, turns_each_s: int = 10) -> list[bool]:
    """Load on both partitions; each second of the time: the first one got on."""
    moved = []
    for _ in range(round(duration_s)):
        for number in range(2):
            put(fleet, number, 1)
        before = fleet.ledger.read(("t", 0)).offset
        fleet.turns(turns_each_s, skip_s=1 / turns_each_s)
        moved.append(fleet.ledger.read(("t", 0)).offset > before)
    return moved


def harm(fleet: TransactionFleet, fault: str) -> None:
    match fault:
        case "down":
            fleet.target.down.add(AWAY)
        case "silent":
            fleet.target.silent.add(AWAY)
        case "refuses":
            code = int(ErrorCode.NOT_ENOUGH_REPLICAS)
            fleet.target.refuse["t", 1] = deque([code] * FOREVER)


def heal(fleet: TransactionFleet) -> None:
    fleet.target.down.clear()
    fleet.target.silent.clear()
    fleet.target.refuse.clear()


@pytest.mark.parametrize("fault", ["down", "silent", "refuses"])
def test_a_partition_that_cannot_settle_leaves_the_transaction(
    fleet: TransactionFleet, fault: str
) -> None:
    for number in range(2):
        put(fleet, number, 1)
    fleet.turns(2, skip_s=0.01)
    harm(fleet, fault)
    moved = go_on(fleet, 120)
    assert any(moved[: round(SETTLE_S) + 3])
    stalled = moved.count(False)
    assert stalled <= (2 if fault == "down" else 4) * SETTLE_S, moved
    found = report(fleet, 1)
    assert found.state is PartitionState.ERROR
    if fault == "refuses":
        assert found.reason.startswith("target: set aside from transactions")
        assert found.reason.endswith("NOT_ENOUGH_REPLICAS")
    heal(fleet)
    fleet.turns(round(SET_ASIDE_S[-1]), skip_s=1.0)
    fleet.run_until_copied()
    for number in range(2):
        assert fleet.committed(number) == seen(records(fleet.source, ("t", number)))


@pytest.mark.parametrize("fault", ["down", "silent"])
def test_outputs_for_a_broker_that_is_away_hold_up_no_other_partition(fault: str) -> None:
    """Both partitions send to a third one, too, whose leader is never away."""
    fleet = TransactionFleet(TransactionProtocol.ADDED, "w1", nodes=2, settings=HANDLED)
    try:
        for number in range(2):
            fleet.give(number, "w1")
            put(fleet, number, 5)
        fleet.run_until_copied()
        harm(fleet, fault)
        moved = go_on(fleet, 40, turns_each_s=20)
        assert moved.count(False) <= 2 * SETTLE_S, moved
        assert report(fleet, 1).state is PartitionState.ERROR
        heal(fleet)
        fleet.run_until_copied()
    finally:
        fleet.close()


def test_a_partition_without_a_leader_takes_no_part(fleet: TransactionFleet) -> None:
    """The coordinator could not end a transaction with it before its leader is back."""
    fleet.target.down.add(AWAY)
    fleet.turns(100)
    fleet.ledger.calls.clear()
    moved = go_on(fleet, 30)
    assert all(moved), "it was in no transaction when its leader left"
    joined = {key for call in fleet.ledger.calls if call[0] == "join" for key in call[1]}
    assert ("t", 1) not in joined
    heal(fleet)
    fleet.run_until_copied()


def test_a_coordinator_that_is_away_is_an_error_sooner_than_with_at_least_once(
    fleet: TransactionFleet,
) -> None:
    """No record counts as copied meanwhile. A coordinator that is elected within the time is no error."""
    added = fleet.ledger.protocol is TransactionProtocol.ADDED
    fleet.ledger.fail_next("join" if added else "commit")
    for _ in range(FOREVER):
        fleet.ledger.fail_next("initialise")
    shown_s = next(second for second in range(FOREVER) if failing(fleet, second))
    assert TRANSACTIONS_WAIT_S <= shown_s <= TRANSACTIONS_WAIT_S + 2
    for number in range(2):
        reason = report(fleet, number).reason
        assert reason.startswith("target: commits wait for the coordinator since"), reason
    fleet.ledger.forgive()
    fleet.run_until_copied()
    fleet.turns(5)
    assert {report(fleet, number).state for number in range(2)} == {PartitionState.ONLINE}


def failing(fleet: TransactionFleet, second: int) -> bool:
    go_on(fleet, 1)
    return report(fleet, 0).state is PartitionState.ERROR


def test_a_leader_that_is_away_with_the_coordinator_is_an_error_as_soon(
    fleet: TransactionFleet,
) -> None:
    """The time in which the transaction should have settled counts."""
    harm(fleet, "silent")
    for _ in range(FOREVER):
        fleet.ledger.fail_next("initialise")
    shown_s = next(second for second in range(FOREVER) if failing(fleet, second))
    assert shown_s <= TRANSACTIONS_WAIT_S + 2
    fleet.ledger.forgive()
    heal(fleet)
    fleet.run_until_copied()


def test_a_new_leader_is_tried_at_once(fleet: TransactionFleet) -> None:
    fleet.target.silent.add(AWAY)
    go_on(fleet, SETTLE_S + 5)
    fleet.target.move(("t", 1), 1)
    fleet.target.silent.clear()
    fleet.run_until_copied()
    assert fleet.committed(1) == seen(records(fleet.source, ("t", 1)))


def test_a_batch_that_waits_for_markers_is_not_set_aside(fleet: TransactionFleet) -> None:
    """The coordinator still ends the transaction before: another leader, or an abort, would not help."""
    fleet.turns(5)
    before = fleet.ledger.done.count("initialise")
    fleet.target.refuse["t", 1] = deque([int(ErrorCode.CONCURRENT_TRANSACTIONS)] * FOREVER)
    go_on(fleet, 3 * SETTLE_S)
    assert fleet.ledger.done.count("initialise") == before
    heal(fleet)
    go_on(fleet, 2)
    assert fleet.ledger.read(("t", 1)).offset == fleet.ledger.read(("t", 0)).offset


def test_a_partition_that_settled_again_has_no_former_failures(fleet: TransactionFleet) -> None:
    """Its next failure is a first one: it returns after the shortest time."""
    for _ in range(3):
        harm(fleet, "refuses")
        moved = go_on(fleet, SETTLE_S + 3)
        assert moved[-1], "it is set aside"
        heal(fleet)
        go_on(fleet, SET_ASIDE_S[0])
        fleet.run_until_copied()


def test_a_slow_line_is_not_at_fault(fleet: TransactionFleet) -> None:
    """A batch that needs longer than a transaction may take to settle arrives none the less."""
    fleet.turns(5)
    before = fleet.ledger.done.count("initialise")
    fleet.target.pace[AWAY] = 1_000
    put(fleet, 1, 1, size=50_000)
    put(fleet, 0, 1)
    fleet.turns(round(1.5 * SETTLE_S / 0.05), skip_s=0.05)
    assert len(fleet.committed(1)) == 5, "the last one is on its way"
    fleet.run_until_copied(skip_s=0.05)
    assert fleet.ledger.done.count("initialise") == before
