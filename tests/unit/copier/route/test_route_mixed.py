"""A route with both lanes, exactly once: what is copied unchanged is fenced and counted, what a handler puts
out is in transactions with its position, and all positions are in the same commits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from ureplicator_common.kafka.provenance import DataProducer, Provenance
from ureplicator_common.kafka.transactions.producers import TransactionProtocol
from ureplicator_common.model import Partition
from ureplicator_testkit.copier.ledger_fleet import put
from ureplicator_testkit.copier.line import ROUTE
from ureplicator_testkit.copier.mixed_fleet import BOTH, HANDLED, RAW, MixedFleet, play_mixed
from ureplicator_testkit.copier.transaction_fleet import KEEP, PROTOCOLS, committed
from ureplicator_testkit.records.batches import CONTROL, TRANSACTIONAL, field
from ureplicator_worker.copier.messages import Commit

SEEDS = 10
BY_PROTOCOL = pytest.mark.parametrize("protocol", PROTOCOLS, ids=[item.name for item in PROTOCOLS])


@pytest.fixture(params=PROTOCOLS, ids=[member.name for member in PROTOCOLS])
def fleet(request: pytest.FixtureRequest) -> Iterator[MixedFleet]:
    fleet = MixedFleet(request.param, "w1", "w2", settings=BOTH)
    yield fleet
    fleet.close()


def begin(fleet: MixedFleet, worker: str = "w1") -> None:
    """One partition of either topic, copied so far."""
    for topic in (RAW, HANDLED):
        fleet.give(0, worker, topic=topic)
        put(fleet, 0, 5, topic=topic)
    fleet.run_until_copied()


def stored(fleet: MixedFleet, topic: str) -> DataProducer | None:
    provenance = Provenance.decode(fleet.ledger.read((topic, 0)).metadata)
    assert provenance is not None
    return provenance.appends


def attributes(fleet: MixedFleet, topic: str) -> set[int]:
    """Bits of the batches of a partition: of transactions, and of control records."""
    found = (field(batch, "attributes") for batch in fleet.target.logs[topic, 0].taken)
    return {bits & (TRANSACTIONAL | CONTROL) for bits in found}


def copied(fleet: MixedFleet, topic: str) -> int:
    return len(committed(fleet.target, (topic, 0), stable=False))


def fences(fleet: MixedFleet) -> int:
    return fleet.ledger.done.count("fence data")


def test_each_topic_is_sent_as_its_lane_does(fleet: MixedFleet) -> None:
    begin(fleet)
    assert attributes(fleet, RAW) == {0}
    assert attributes(fleet, HANDLED) == {TRANSACTIONAL, TRANSACTIONAL | CONTROL}
    assert stored(fleet, RAW) is not None
    assert stored(fleet, HANDLED) is None


def test_copied_records_wait_for_no_transaction(fleet: MixedFleet) -> None:
    """They do not even wait for one whose commit takes long."""
    begin(fleet)
    fleet.ledger.preparing = True
    for topic in (RAW, HANDLED):
        put(fleet, 0, 5, topic=topic)
    fleet.turns(20)
    put(fleet, 0, 5, topic=HANDLED)
    put(fleet, 0, 5, topic=RAW)
    fleet.turns(20)
    assert copied(fleet, RAW) == 15
    fleet.ledger.finish()
    fleet.run_until_copied()


def test_an_abort_takes_no_copied_record_back(fleet: MixedFleet) -> None:
    begin(fleet)
    worker = fleet.workers["w1"]
    for topic in (RAW, HANDLED):
        put(fleet, 0, 5, topic=topic)
    fleet.turns(2, skip_s=0.01)
    worker.copier.holder.commits.abort("a batch was refused", worker.now_s)
    fleet.run_until_copied()
    assert not worker.failures
    assert fences(fleet) == 0
    fleet.check_whole()


def test_a_copied_partition_that_joins_an_open_transaction_stores_its_producer_first(
    fleet: MixedFleet,
) -> None:
    """The producer is stored with the next commit: one of its own would end the transaction without
    positions."""
    fleet.give(0, "w1", topic=HANDLED)
    put(fleet, 0, 5, topic=HANDLED)
    fleet.run_until_copied()
    aborted = fleet.workers["w1"].copier.transactions.aborted
    put(fleet, 0, 5, topic=HANDLED)
    fleet.give(0, "w1", topic=RAW)
    put(fleet, 0, 5, topic=RAW)
    while not copied(fleet, RAW):
        assert not fleet.target.logs[RAW, 0].taken
        fleet.turn()
    assert stored(fleet, RAW) is not None
    fleet.run_until_copied()
    assert fleet.workers["w1"].copier.transactions.aborted == aborted


def test_what_a_killed_owner_sent_in_either_lane(fleet: MixedFleet) -> None:
    """The one is counted, the other is void."""
    begin(fleet)
    for topic in (RAW, HANDLED):
        put(fleet, 0, 7, topic=topic)
    while copied(fleet, RAW) < 12:
        fleet.turn(skip_s=0.001)
    fleet.kill("w1")
    fleet.run_until_copied()
    assert fences(fleet) == 1
    fleet.check_whole()


def test_a_clean_handover_of_both_lanes_costs_no_fence(fleet: MixedFleet) -> None:
    begin(fleet)
    for topic in (RAW, HANDLED):
        fleet.give(0, "w2", topic=topic)
        put(fleet, 0, 5, topic=topic)
    fleet.run_until_copied()
    assert fences(fleet) == 0
    fleet.check_whole()


def test_data_whose_position_was_lost_is_not_committed(fleet: MixedFleet) -> None:
    """The thread loses the partition while the commit with its position waits."""
    begin(fleet)
    ownership = fleet.workers["w1"].ownership
    for topic in (RAW, HANDLED):
        put(fleet, 0, 5, topic=topic)
    ownership.hold = {Commit}
    partition = Partition(ROUTE, HANDLED, 0)
    while not any(
        isinstance(command, Commit) and partition in command.positions
        for command in ownership.held_back
    ):
        fleet.turn()
    commits = fleet.ledger.done.count("commit")
    ownership._fail(partition, "its position was moved")
    ownership.let_pass()
    ownership.perform()
    assert fleet.ledger.done.count("commit") == commits
    fleet.run_until_copied()
    fleet.check_whole()


@pytest.mark.parametrize("topics", ["none", ".*", RAW])
def test_a_topic_changes_its_lane_while_the_route_runs(fleet: MixedFleet, topics: str) -> None:
    begin(fleet)
    fleet.lanes_change = True
    fleet.change(replace(BOTH, handlers=(replace(KEEP, topics=topics),)))
    for topic in (RAW, HANDLED):
        put(fleet, 0, 5, topic=topic)
    fleet.turns(30)
    fleet.run_until_copied()
    assert fences(fleet) == 0
    in_transactions = [topic for topic in (RAW, HANDLED) if stored(fleet, topic) is None]
    expected = {"none": [], ".*": [RAW, HANDLED], RAW: [RAW]}
    assert in_transactions == expected[topics]
    fleet.check_whole()


@pytest.mark.parametrize("topics", ["none", ".*", RAW])
@pytest.mark.parametrize("turns", range(0, 12, 3))
def test_an_owner_is_killed_while_lanes_change(fleet: MixedFleet, topics: str, turns: int) -> None:
    """The stored position says what is behind it, whatever the lane is."""
    begin(fleet)
    fleet.lanes_change = True
    for topic in (RAW, HANDLED):
        put(fleet, 0, 7, topic=topic)
    fleet.turns(2, skip_s=0.001)
    fleet.change(replace(BOTH, handlers=(replace(KEEP, topics=topics),)))
    fleet.turns(turns, skip_s=0.01)
    fleet.kill("w1")
    fleet.run_until_copied()
    fleet.check_whole()


@BY_PROTOCOL
def test_the_last_partition_with_a_handler_leaves_and_another_comes(
    protocol: TransactionProtocol,
) -> None:
    fleet = MixedFleet(protocol, "w1", "w2", settings=BOTH)
    try:
        begin(fleet)
        for worker in ("w2", "w1", "w2", "w1"):
            fleet.give(0, worker, topic=HANDLED)
            put(fleet, 0, 3, topic=HANDLED)
            put(fleet, 0, 3, topic=RAW)
            fleet.run_until_copied()
        assert not any(worker.failures for worker in fleet.workers.values())
        fleet.check_whole()
    finally:
        fleet.close()


@pytest.mark.parametrize("lanes", [False, True], ids=["", "lanes change"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_everything_is_there_once_in_both_lanes(seed: int, lanes: bool) -> None:
    play_mixed(Random(seed), lanes=lanes)  # noqa: S311  # repeatable
