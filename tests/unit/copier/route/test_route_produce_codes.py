"""Errors of batches in transactions: which of them abort, and what operators read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.transactions.producers import TransactionProtocol
from ureplicator_common.model import Partition
from ureplicator_testkit.copier.ledger_fleet import put
from ureplicator_testkit.copier.line import ROUTE, records, seen
from ureplicator_testkit.copier.transaction_fleet import PROTOCOLS, TRANSACTIONAL, TransactionFleet
from ureplicator_testkit.records import batches
from ureplicator_worker.lifeline.messages import PublishedSettings
from ureplicator_worker.wire.produce_api import IN_TRANSACTION

KEY = ("t", 0)
UNVERIFIED = (
    "Unable to verify the partition has been added to the transaction. "
    "Underlying error: NOT_COORDINATOR"
)


@pytest.fixture(params=PROTOCOLS, ids=[member.name for member in PROTOCOLS])
def fleet(request: pytest.FixtureRequest) -> Iterator[TransactionFleet]:
    protocol: TransactionProtocol = request.param
    fleet = TransactionFleet(protocol, "w1")
    for number in range(2):
        fleet.give(number, "w1")
        put(fleet, number, 3)
    fleet.run_until_copied()
    fleet.turns(5)
    yield fleet
    assert not fleet.workers["w1"].failures
    fleet.run_until_copied()
    for number in range(2):
        assert fleet.committed(number) == seen(records(fleet.source, ("t", number)))
    fleet.close()


def refuse(fleet: TransactionFleet, code: ErrorCode, *, times: int = 1) -> None:
    fleet.target.refuse[KEY] = deque([int(code)] * times)
    put(fleet, 0, 3, size=3_000)


def error(fleet: TransactionFleet) -> str:
    return fleet.workers["w1"].copier.report()[Partition(ROUTE, *KEY)].reason


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    ],
)
def test_a_lost_transaction_is_aborted_and_its_partitions_go_on(
    fleet: TransactionFleet, code: ErrorCode
) -> None:
    refuse(fleet, code)
    fleet.run_until_copied()
    assert fleet.ledger.done.count("initialise") == 2


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    ],
)
def test_what_passes_is_waited_for_in_the_same_transaction(
    fleet: TransactionFleet, code: ErrorCode
) -> None:
    refuse(fleet, code, times=3)
    fleet.run_until_copied()
    assert fleet.ledger.done.count("initialise") == 1


def test_a_batch_behind_a_refused_one_aborts_nothing(fleet: TransactionFleet) -> None:
    """Its predecessor is refused for a moment, so its sequence does not follow."""
    for number in (0, 0, 0):
        put(fleet, number, 20, size=3_000)
        fleet.turn()
    fleet.target.refuse[KEY] = deque([int(ErrorCode.NOT_ENOUGH_REPLICAS)])
    for _ in range(5):
        put(fleet, 0, 20, size=3_000)
        fleet.turn(skip_s=0.005)
    fleet.run_until_copied()
    assert fleet.ledger.done.count("initialise") == 1


def test_a_batch_that_is_not_verified_has_enough_replicas(fleet: TransactionFleet) -> None:
    fleet.target.messages[KEY] = UNVERIFIED
    refuse(fleet, ErrorCode.NOT_ENOUGH_REPLICAS, times=1_000)
    fleet.turns(10)
    assert (
        error(fleet) == f"target: broker 1 cannot reach the transaction's coordinator: {UNVERIFIED}"
    )
    fleet.target.refuse.clear()


def test_too_few_replicas_are_named(fleet: TransactionFleet) -> None:
    refuse(fleet, ErrorCode.NOT_ENOUGH_REPLICAS, times=1_000)
    fleet.turns(10)
    assert error(fleet) == "target: broker 1 waits for in-sync replicas: NOT_ENOUGH_REPLICAS"
    fleet.target.refuse.clear()


def test_a_wait_for_the_transaction_before_is_named(fleet: TransactionFleet) -> None:
    refuse(fleet, ErrorCode.CONCURRENT_TRANSACTIONS, times=1_000)
    fleet.turns(10)
    assert error(fleet).startswith("target: the coordinator still ends the transaction before")
    fleet.target.refuse.clear()


def test_a_partition_that_the_coordinator_refuses_holds_up_no_other() -> None:
    fleet = TransactionFleet(TransactionProtocol.ADDED, "w1")
    fleet.ledger.unaddable[KEY] = "TOPIC_AUTHORIZATION_FAILED"
    for number in range(2):
        fleet.give(number, "w1")
        put(fleet, number, 5)
    fleet.turns(100, skip_s=0.1)
    assert len(fleet.committed(1)) == 5
    assert error(fleet) == "target: takes no part in transactions: TOPIC_AUTHORIZATION_FAILED"
    assert fleet.ledger.done.count("initialise") == 1
    fleet.ledger.unaddable.clear()
    fleet.run_until_copied()
    fleet.close()


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD])
def test_a_batch_that_may_be_there_already_is_neither_split_nor_skipped(
    fleet: TransactionFleet, code: ErrorCode, count: int
) -> None:
    """A limit of the topic that is lowered between two tries: brokers check it before they look for
    duplicates."""
    settings = replace(TRANSACTIONAL, abort_on_send_failure=False)
    fleet.workers["w1"].copier.change_settings(PublishedSettings(ROUTE, 1, settings))
    after_append = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    fleet.target.belated[KEY] = deque([int(after_append), int(code)])
    rows = [(0, None, b"%d" % number, ()) for number in range(count)]
    fleet.source.logs[KEY].put(batches.batch(rows))
    fleet.turns(12)
    put(fleet, 0, 1)
    fleet.run_until_copied()
    assert fleet.ledger.done.count("initialise") == 2


def test_batches_go_in_the_version_of_the_protocol(fleet: TransactionFleet) -> None:
    """A batch is taken into the transaction without being added from version 12 on (KIP-890)."""
    versions = {request.version for request in fleet.target.requests if hasattr(request, "acks")}
    implicit = fleet.ledger.protocol is TransactionProtocol.IMPLICIT
    assert versions
    assert {version >= IN_TRANSACTION for version in versions} == {implicit}
