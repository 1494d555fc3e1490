"""Gaps that are filled by transactions, since control records may not be written on request."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import pytest

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_testkit.copier.ledger_fleet import put
from ureplicator_testkit.copier.same_fleet import SameFleet
from ureplicator_testkit.kafka.cluster import TopicPartition
from ureplicator_worker.copier.raw import gap_filling

KEY = ("t", 0)
NOT_ALLOWED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
Write = Callable[[str, Iterable[TopicPartition]], None]


def begun(fleet: SameFleet, *numbers: int) -> None:
    """Each is copied, and no control record is allowed in it."""
    fleet.begin(*numbers)
    for number in numbers:
        fleet.target.refuse_markers["t", number] = deque([NOT_ALLOWED] * 99)


def by_transaction(fleet: SameFleet) -> int:
    return fleet.ledger.done.count("write control records")


def copied(fleet: SameFleet, *numbers: int) -> None:
    fleet.run_until_copied()
    assert [set(fleet.shifts(number)) for number in numbers] == [{0}] * len(numbers)


def test_each_offset_of_a_gap_takes_a_transaction(fleet: SameFleet) -> None:
    begun(fleet, 0)
    fleet.target.refuse_markers[KEY] = deque([NOT_ALLOWED] * 3)
    fleet.leave_gap()
    fleet.leave_gap(2)
    copied(fleet, 0)
    assert by_transaction(fleet) == 5
    fleet.turn(skip_s=gap_filling.NOT_ALLOWED_S)
    fleet.leave_gap()
    copied(fleet, 0)
    assert by_transaction(fleet) == 5, "it is allowed again"


def test_one_transaction_serves_the_gaps_of_many_partitions(fleet: SameFleet) -> None:
    begun(fleet, 0, 1)
    for number in range(2):
        fleet.leave_gap(4, number=number)
    copied(fleet, 0, 1)
    assert by_transaction(fleet) < 7


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_transaction_of_unknown_outcome_is_not_repeated(fleet: SameFleet, when: str) -> None:
    begun(fleet, 0)
    fleet.ledger.fail_next("write control records", when)
    fleet.leave_gap()
    copied(fleet, 0)


@pytest.mark.parametrize("failures", range(3))
def test_a_control_record_that_is_late_is_awaited(fleet: SameFleet, failures: int) -> None:
    """Its partition does not start before."""
    begun(fleet, 0)
    fleet.ledger.late_control_records = 1
    for _ in range(failures):
        fleet.ledger.fail_next("settle", "before")
    fleet.leave_gap()
    copied(fleet, 0)
    assert fleet.ledger.done.count("settle") >= 1


def test_a_topic_that_may_not_be_written_says_so(fleet: SameFleet) -> None:
    begun(fleet, 0)
    fleet.ledger.unaddable[KEY] = "WRITE on topic t is not allowed"
    fleet.leave_gap()
    fleet.run_until(lambda: bool(fleet.workers["w1"].failures))
    assert "WRITE on topic t" in fleet.workers["w1"].failures[-1].reason
    fleet.ledger.unaddable.clear()
    copied(fleet, 0)


@pytest.mark.parametrize("allowed", [True, False])
def test_an_owner_that_thaws_over_new_connections_fills_no_gap(
    fleet: SameFleet, allowed: bool
) -> None:
    begun(fleet, 0)
    if allowed:
        fleet.target.refuse_markers.clear()
    fleet.leave_gap()
    fleet.run_until_copied()
    former = fleet.workers["w1"]
    former.frozen = True
    fleet.leave_gap()
    fleet.give(0, "w2")
    fleet.run_until_copied()
    for node in fleet.target.nodes:
        fleet.target.cut(node)
    fleet.turns(5)
    former.frozen = False
    fleet.turns(20)
    put(fleet, 0, 2)
    copied(fleet, 0)


@pytest.fixture
def asked(
    fleet: SameFleet, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[str, set[TopicPartition]]]:
    """Names of transactions with their partitions. Those with partition 1 do not end, nor does the name."""
    asked: list[tuple[str, set[TopicPartition]]] = []
    write: Write = fleet.ledger.write_control_records

    def stuck(name: str, partitions: Iterable[TopicPartition]) -> None:
        asked.append((name, set(partitions)))
        if any(("t", 1) in some for other, some in asked if other == name):
            raise ClusterUnavailable("still CONCURRENT_TRANSACTIONS", delay_s=0.0)
        write(name, asked[-1][1])

    monkeypatch.setattr(fleet.ledger, "write_control_records", stuck)
    return asked


def test_a_transaction_that_does_not_end_holds_up_nobody_else(
    fleet: SameFleet, asked: list[tuple[str, set[TopicPartition]]]
) -> None:
    begun(fleet, 0, 1)
    fleet.leave_gap(number=1)
    fleet.run_until(lambda: bool(asked))
    fleet.target.leaders["t", 1] = -1
    fleet.leave_gap(number=0)
    fleet.turns(200)
    assert not [lost for lost in fleet.workers["w1"].failures if lost.partition.number == 0]
    assert set(fleet.shifts(0)) == {0}
    assert len(fleet.shifts(0)) == 6


def test_a_partition_without_a_leader_is_in_no_transaction(
    fleet: SameFleet, asked: list[tuple[str, set[TopicPartition]]]
) -> None:
    begun(fleet, 0, 1)
    fleet.leave_gap()
    fleet.run_until_copied()
    fleet.target.leaders["t", 1] = -1
    for node in fleet.target.nodes:
        fleet.target.cut(node)
    fleet.turns(20)
    fleet.leave_gap(number=1)
    fleet.turns(50)
    assert not [some for _, some in asked if ("t", 1) in some]
