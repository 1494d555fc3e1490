"""Known faults of brokers in transactions (KIP-890): each costs time at most, and no record.

KAFKA-18660   when epochs run out, a commit returns the producer of before
KAFKA-19367   the last epoch and an open transaction: InitProducerId fails
KAFKA-18464   the end of a transaction that holds nothing is refused
KAFKA-19999   a transaction stays prepared: CONCURRENT_TRANSACTIONS for a long time
KAFKA-20785   INVALID_TXN_STATE for a transaction that the coordinator aborts at that moment
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import pytest

from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.transactions.producers import TransactionProtocol
from ureplicator_common.model import Partition
from ureplicator_testkit.copier.ledger_fleet import put
from ureplicator_testkit.copier.line import ROUTE, records, seen
from ureplicator_testkit.copier.transaction_fleet import PROTOCOLS, TransactionFleet

KEY = ("t", 0)
IMPLICIT = TransactionProtocol.IMPLICIT


@pytest.fixture(params=PROTOCOLS, ids=[protocol.name for protocol in PROTOCOLS])
def fleet(request: pytest.FixtureRequest) -> Iterator[TransactionFleet]:
    """w1 copies partition 0, w2 partition 1. At the end each record is there once, in order."""
    fleet = TransactionFleet(request.param, "w1", "w2")
    for number, worker in enumerate(("w1", "w2")):
        fleet.give(number, worker)
        put(fleet, number, 3)
    fleet.run_until_copied()
    yield fleet
    fleet.run_until_copied()
    fleet.turns(5)
    fleet.check_whole()
    assert not fleet.workers["w1"].failures
    fleet.close()


def reason(fleet: TransactionFleet) -> str:
    return fleet.workers["w1"].copier.report()[Partition(ROUTE, *KEY)].reason


def prepare(fleet: TransactionFleet) -> None:
    """w1 commits, and no marker is written."""
    put(fleet, 0, 5)
    fleet.ledger.preparing = True
    while not fleet.ledger.prepared("w1"):
        fleet.turn(skip_s=0.02)
    fleet.ledger.preparing = False


def is_copied(fleet: TransactionFleet, number: int) -> bool:
    return fleet.committed(number) == seen(records(fleet.source, ("t", number)))


@pytest.mark.parametrize("epochs", [1, 3])
def test_kafka_18660_a_commit_that_returns_a_former_producer(epochs: int) -> None:
    fleet = TransactionFleet(IMPLICIT, "w1")
    fleet.ledger.epochs_each = epochs
    for number in range(2):
        fleet.give(number, "w1")
    for _ in range(8):
        fleet.ledger.stale_responses = 1
        for number in range(2):
            put(fleet, number, 2, size=3_000)
        fleet.run_until_copied()
    fleet.check_whole()
    assert fleet.ledger.done.count("initialise") > 4
    assert not fleet.workers["w1"].failures
    fleet.close()


def test_kafka_19367_an_initialisation_that_fails_for_long(fleet: TransactionFleet) -> None:
    """The coordinator ends the transaction by itself in the end (`transaction.timeout.ms`)."""
    fleet.target.refuse[KEY] = deque([int(ErrorCode.TRANSACTION_ABORTABLE)])
    put(fleet, 0, 5)
    for _ in range(20):
        fleet.ledger.fail_next("initialise")
    fleet.turns(20, skip_s=0.5)
    assert not is_copied(fleet, 0)
    put(fleet, 1, 5)
    fleet.ledger.forgive()
    fleet.ledger.expire("w1")
    fleet.run_until_copied()


def test_kafka_18464_a_transaction_that_holds_nothing_is_not_ended(
    fleet: TransactionFleet,
) -> None:
    """It is not begun either: no commit without positions, and no abort by a request."""
    before = fleet.ledger.done.count("commit")
    fleet.turns(50, skip_s=0.2)
    assert fleet.ledger.done.count("commit") == before
    put(fleet, 0, 1)
    fleet.run_until_copied()
    assert fleet.ledger.done.count("commit") > before
    assert all(call[1] for call in fleet.ledger.calls if call[0] == "commit")


def test_kafka_19999_a_transaction_that_stays_prepared(fleet: TransactionFleet) -> None:
    """Its slot waits and says why; another slot goes on. Then nothing is sent twice."""
    prepare(fleet)
    put(fleet, 0, 5)
    for _ in range(10):
        put(fleet, 1, 5)
        fleet.turns(20, skip_s=0.3)
        assert is_copied(fleet, 1)
    assert not is_copied(fleet, 0)
    assert reason(fleet) == (
        "target: the coordinator still ends the transaction before: CONCURRENT_TRANSACTIONS"
    )
    fleet.ledger.finish()


def test_kafka_19999_the_next_owner_waits_too(fleet: TransactionFleet) -> None:
    prepare(fleet)
    fleet.give(0, "w2")
    fleet.turns(40, skip_s=0.3)
    assert not is_copied(fleet, 0)
    fleet.ledger.finish()


def test_kafka_20785_a_commit_that_meets_an_abort(fleet: TransactionFleet) -> None:
    """The coordinator aborts what was open for too long, and refuses the end of it."""
    for _ in range(3):
        put(fleet, 0, 5)
        fleet.turn()
        fleet.ledger.expire("w1")
        fleet.ledger.fail_next("commit")
        fleet.run_until_copied()
