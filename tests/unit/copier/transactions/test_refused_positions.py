"""Positions that the target refuses: of one partition among several of a copier, in both deliveries."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.model import Delivery, Partition, PartitionState, RouteSettings
from ureplicator_testkit.copier.ledger_fleet import LedgerFleet, WorkerLine, put
from ureplicator_testkit.copier.line import ROUTE, records, seen
from ureplicator_testkit.copier.transaction_fleet import PARTITIONS, PROTOCOLS, TransactionFleet
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka

REASON = f"position refused: {ErrorCode.TOPIC_AUTHORIZATION_FAILED.name}"
REFUSED, GOOD = (Partition(ROUTE, "t", number) for number in range(PARTITIONS))


@pytest.fixture(params=PROTOCOLS, ids=[protocol.name for protocol in PROTOCOLS])
def fleet(request: pytest.FixtureRequest) -> Iterator[TransactionFleet]:
    fleet = TransactionFleet(request.param, "w1", "w2")
    yield fleet
    fleet.close()


@pytest.fixture
def at_least_once() -> Iterator[LedgerFleet]:
    topics = {"t": PARTITIONS}
    fleet = LedgerFleet(MemoryKafka("A", topics), MemoryKafka("B", topics), "w1")
    yield fleet
    fleet.close()


def refuse(fleet: LedgerFleet) -> WorkerLine:
    """The owner of both, which copies, and whose next position of one is refused."""
    for number in range(PARTITIONS):
        fleet.give(number, "w1")
        put(fleet, number, 5)
    fleet.run_until_copied()
    fleet.ledger.refused["t", 0] = ErrorCode.TOPIC_AUTHORIZATION_FAILED.name
    return refused_next(fleet)


def refused_next(fleet: LedgerFleet) -> WorkerLine:
    put(fleet, 0, 5)
    owner = fleet.workers["w1"]
    for _ in range(100):
        if owner.failures:
            return owner
        fleet.turn()
    raise AssertionError("no position was refused")


def allow(fleet: LedgerFleet) -> None:
    fleet.ledger.refused.clear()
    fleet.ledger.metadata_limits.clear()
    fleet.run_until_copied()
    assert fleet.workers["w1"].copier.report()[REFUSED].state is PartitionState.ONLINE


def assert_tried_apart(fleet: LedgerFleet, owner: WorkerLine, reason: str = REASON) -> None:
    """The refused partition is tried again and again; all that is new of the other is committed."""
    initialised, tries = fleet.ledger.done.count("initialise"), len(owner.failures)
    for _ in range(10):
        put(fleet, 1, 2)
        fleet.turns(20)
        assert fleet.ledger.read(("t", 1)).offset == fleet.source.logs["t", 1].end
        report = owner.copier.report()
        assert report[GOOD].state is PartitionState.ONLINE, report[GOOD]
    assert len(owner.failures) > tries + 3
    assert {failure.partition for failure in owner.failures} == {REFUSED}
    assert all(failure.reason.startswith(reason) for failure in owner.failures)
    assert fleet.ledger.done.count("initialise") == initialised, "others had to begin again"
    assert fleet.ledger.read(("t", 0)).offset == 5


def test_a_refused_partition_aborts_one_transaction_of_the_others(fleet: TransactionFleet) -> None:
    owner = refuse(fleet)
    fleet.turns(20)
    aborted = owner.copier.transactions.aborted
    assert_tried_apart(fleet, owner)
    assert owner.copier.transactions.aborted == aborted
    allow(fleet)
    assert len(fleet.committed(0)) == 10
    assert len(fleet.committed(1)) == 25


def test_a_trial_is_as_long_as_what_was_refused(fleet: TransactionFleet) -> None:
    """The target takes the metadata of the stored position, and not those of the next one, which has an end
    of one digit more."""
    for number in range(PARTITIONS):
        fleet.give(number, "w1")
        put(fleet, number, 5)
    fleet.run_until_copied()
    fleet.ledger.metadata_limits["t", 0] = len(fleet.ledger.read(("t", 0)).metadata)
    owner = refused_next(fleet)
    fleet.turns(20)
    aborted = owner.copier.transactions.aborted
    assert_tried_apart(
        fleet, owner, f"position refused: {ErrorCode.OFFSET_METADATA_TOO_LARGE.name}"
    )
    assert owner.copier.transactions.aborted == aborted
    allow(fleet)
    assert len(fleet.committed(0)) == 10


def test_while_the_others_are_idle_it_is_tried_all_the_same(fleet: TransactionFleet) -> None:
    owner = refuse(fleet)
    fleet.turns(20)
    tries, aborted = len(owner.failures), owner.copier.transactions.aborted
    fleet.turns(100)
    assert len(owner.failures) > tries + 3
    assert owner.copier.transactions.aborted == aborted
    put(fleet, 1, 3)
    allow(fleet)
    assert len(fleet.committed(0)) == 10


def test_on_trial_it_sends_nothing_and_shows_why(fleet: TransactionFleet) -> None:
    owner = refuse(fleet)
    fleet.turns(20)
    end = fleet.target.logs["t", 0].end
    reports = []
    for _ in range(60):
        fleet.turn()
        reports.append(owner.copier.report().get(REFUSED))
    assert fleet.target.logs["t", 0].end == end
    shown = [report for report in reports if report and report.state is PartitionState.ERROR]
    assert shown
    assert all(report.reason.startswith(REASON) for report in shown)
    assert not any(report.state is PartitionState.ONLINE for report in reports if report)


def test_a_restart_of_the_order_does_not_end_a_trial(fleet: TransactionFleet) -> None:
    """Its data would be in the transaction of the others when the position is refused again."""
    refuse(fleet)
    fleet.turns(20)
    end = fleet.target.logs["t", 0].end
    for _ in range(10):
        put(fleet, 1, 1)
        fleet.ledger.fail_next("commit", "before")
        fleet.turns(30)
    fleet.ledger.forgive()
    assert fleet.target.logs["t", 0].end == end
    allow(fleet)
    assert len(fleet.committed(0)) == len(fleet.committed(1)) - 5 == 10


def test_a_partition_on_trial_can_be_moved(fleet: TransactionFleet) -> None:
    refuse(fleet)
    fleet.turns(20)
    fleet.give(0, "w2")
    fleet.ledger.refused.clear()
    put(fleet, 0, 5)
    put(fleet, 1, 5)
    fleet.run_until_copied()
    assert len(fleet.committed(0)) == 15


def test_a_first_position_that_is_refused(fleet: TransactionFleet) -> None:
    fleet.ledger.refused["t", 0] = ErrorCode.TOPIC_AUTHORIZATION_FAILED.name
    for number in range(PARTITIONS):
        fleet.give(number, "w1")
        put(fleet, number, 5)
    fleet.turns(40)
    owner = fleet.workers["w1"]
    aborted = owner.copier.transactions.aborted
    put(fleet, 1, 5)
    fleet.turns(100)
    assert owner.copier.transactions.aborted == aborted
    assert fleet.ledger.read(("t", 1)).offset == 10
    allow(fleet)
    assert len(fleet.committed(0)) == 5


def test_at_least_once_others_are_committed_and_nothing_is_copied_twice(
    at_least_once: LedgerFleet,
) -> None:
    fleet = at_least_once
    owner = refuse(fleet)
    assert fleet.ledger.done.count("initialise") == 1, "the refused one alone has failed"
    fleet.turns(5)
    assert_tried_apart(fleet, owner)
    copied = seen(records(fleet.target, ("t", 0)))
    fleet.turns(100)
    assert seen(records(fleet.target, ("t", 0))) == copied
    allow(fleet)


def test_at_least_once_rows_of_the_map_are_committed_with_their_positions_only(
    at_least_once: LedgerFleet,
) -> None:
    """Rows of the map belong to a position: all are refused together, once."""
    fleet = at_least_once
    fleet.settings = RouteSettings(delivery=Delivery.AT_LEAST_ONCE, offset_map=True)
    owner = refuse(fleet)
    assert fleet.ledger.done.count("initialise") == 2
    fleet.turns(5)
    assert_tried_apart(fleet, owner)
