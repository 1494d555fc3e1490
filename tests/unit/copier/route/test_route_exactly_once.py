"""Exactly once, by workers that take partitions over from each other: real lanes, the real ownership thread.

Random faults of brokers, coordinators and workers. At every moment the committed records of the target are
those of the source up to the stored position, once and in order. Both transaction protocols.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.transactions.producers import TransactionProtocol
from ureplicator_common.model import Delivery, Partition, PartitionState
from ureplicator_testkit.copier.ledger_fleet import (
    COMMIT_INTERVAL_S,
    LedgerFleet,
    WorkerLine,
    put,
)
from ureplicator_testkit.copier.line import ROUTE, records, seen
from ureplicator_testkit.copier.transaction_fleet import (
    PARTITIONS,
    PROTOCOLS,
    TRANSACTIONAL,
    TransactionFleet,
)
from ureplicator_testkit.exactly_once.faults import WORKERS, Faults
from ureplicator_testkit.exactly_once.history import fleet_of, play
from ureplicator_worker.copier.exactly_once import LONGEST_INTERVALS, ExactlyOnce
from ureplicator_worker.copier.messages import (
    Abort,
    FencedOut,
    FindStarts,
    StartsFound,
    TransactionBegun,
)
from ureplicator_worker.copier.source_offsets import PUBLISH_EVERY_S
from ureplicator_worker.copier.start_position import TargetState
from ureplicator_worker.lifeline.messages import ProofRequest, PublishedSettings


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=[member.name for member in PROTOCOLS])
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1 << 32))
@example(263)
def test_committed_records_and_positions_are_the_same_at_every_moment(
    protocol: TransactionProtocol, seed: int
) -> None:
    """`tests/simulation/test_exactly_once.py` plays hundreds."""
    play(Random(seed), protocol)  # noqa: S311  # repeatable


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_of_two_that_believe_they_own_a_partition_never_both_commit(data: st.DataObject) -> None:
    """The former owner is frozen anywhere in a transaction, and thaws anywhere in those of the next."""
    fleet = TransactionFleet(data.draw(st.sampled_from(PROTOCOLS)), *WORKERS)
    try:
        for turn in range(data.draw(st.integers(1, 4))):
            former, after = WORKERS[turn % 3], WORKERS[(turn + 1) % 3]
            fleet.give(0, former)
            put(fleet, 0, data.draw(st.integers(1, 6)))
            fleet.turns(data.draw(st.integers(3, 15)), skip_s=0.03)
            fleet.workers[former].frozen = True
            fleet.give(0, after)
            put(fleet, 0, data.draw(st.integers(0, 6)))
            fleet.turns(data.draw(st.integers(0, 15)), skip_s=0.03)
            fleet.workers[former].frozen = False
            put(fleet, 0, data.draw(st.integers(0, 6)))
            fleet.turns(data.draw(st.integers(0, 10)), skip_s=0.03)
        fleet.run_until_copied()
        fleet.check_owners()
        assert fleet.committed(0) == seen(records(fleet.source, ("t", 0)))
    finally:
        fleet.close()


@pytest.fixture(params=PROTOCOLS, ids=[member.name for member in PROTOCOLS])
def fleet(request: pytest.FixtureRequest) -> Iterator[TransactionFleet]:
    fleet = TransactionFleet(request.param, *WORKERS)
    yield fleet
    fleet.close()


def at_rest(fleet: TransactionFleet) -> WorkerLine:
    """The owner of partition 0, which has copied everything."""
    fleet.give(0, "w1")
    put(fleet, 0, 5)
    fleet.run_until_copied()
    fleet.turns(10)
    return fleet.workers["w1"]


def test_records_become_visible_with_their_position(fleet: TransactionFleet) -> None:
    fleet.give(0, "w1")
    for count in range(1, 6):
        put(fleet, 0, count, size=3_000)
        fleet.run_until_copied()
    assert len(fleet.committed(0)) == 15


def test_markers_are_waited_for_only_where_data_follows_in_the_next_transaction(
    fleet: TransactionFleet,
) -> None:
    at_rest(fleet)
    commits = fleet.ledger.done.count("commit")
    assert fleet.ledger.waited == commits > 0
    fleet.checks = False
    deliver(fleet, Delivery.AT_LEAST_ONCE, 1)
    put(fleet, 0, 5)
    fleet.turns(30, skip_s=0.1)
    assert fleet.ledger.done.count("commit") > commits
    assert fleet.ledger.waited == commits


def test_a_commit_takes_until_its_outcome_is_known(fleet: TransactionFleet) -> None:
    """The time begins with the seal: the response comes with the next turn."""
    owner = at_rest(fleet)
    before = owner.copier.transactions
    for _ in range(5):
        put(fleet, 0, 1)
        fleet.turns(10, skip_s=0.03)
    after = owner.copier.transactions
    assert after.commit_ms - before.commit_ms >= 30 * (after.committed - before.committed) > 0


def test_a_partition_that_returns_to_a_slot_goes_on_with_its_sequences(
    fleet: TransactionFleet,
) -> None:
    """The producer is the same with the first protocol: sequences from 0 would be taken for repeats."""
    for worker in ("w1", "w2", "w1", "w2"):
        fleet.give(0, worker)
        fleet.turns(20)
        put(fleet, 0, 2)
        fleet.run_until_copied()
    assert not any(worker.failures for worker in fleet.workers.values())
    assert fleet.ledger.done.count("initialise") == 2
    assert fleet.committed(0) == seen(records(fleet.source, ("t", 0)))


def test_only_stored_positions_are_published_at_the_source(fleet: TransactionFleet) -> None:
    """A partition has none before its first transaction."""
    fleet.give(0, "w1")
    fleet.turns(3, skip_s=0.01)
    fleet.ledger.fail_next("commit", "before")
    put(fleet, 0, 5)
    fleet.turns(5, skip_s=PUBLISH_EVERY_S)
    fleet.run_until_copied()
    fleet.turns(3, skip_s=PUBLISH_EVERY_S)
    published = fleet.workers["w1"].source_metadata.published
    offsets = [position.offset for positions in published for position in positions.values()]
    assert offsets[-1] == 5
    assert min(offsets) >= 0


def test_a_frozen_owner_that_thaws_leaves_nothing_behind(fleet: TransactionFleet) -> None:
    """Its records are aborted when the next owner fences it; those that it sends then are refused."""
    fleet.give(0, "w1")
    put(fleet, 0, 5)
    fleet.run_until_copied()
    put(fleet, 0, 5)
    fleet.turns(2, skip_s=0.01)
    fleet.workers["w1"].frozen = True
    fleet.give(0, "w2")
    put(fleet, 0, 5)
    fleet.run_until_copied()
    fleet.workers["w1"].frozen = False
    put(fleet, 0, 5)
    fleet.turns(50)
    fleet.run_until_copied()
    assert len(fleet.committed(0)) == 20


def deliver(fleet: LedgerFleet, delivery: Delivery, version: int) -> None:
    """Publish the route's settings with another delivery, as the leader does."""
    fleet.settings = replace(TRANSACTIONAL, delivery=delivery)
    fleet.settings_version = version
    for worker in fleet.workers.values():
        worker.copier.change_settings(PublishedSettings(ROUTE, version, fleet.settings))


def test_delivery_changed_and_changed_back_at_rest_repeats_nothing(
    fleet: TransactionFleet,
) -> None:
    fleet.checks = False
    fleet.give(0, "w1")
    fleet.give(1, "w1")
    for version, delivery in enumerate(
        [Delivery.AT_LEAST_ONCE, Delivery.EXACTLY_ONCE, Delivery.AT_LEAST_ONCE], start=1
    ):
        deliver(fleet, delivery, version)
        for number in range(PARTITIONS):
            put(fleet, number, 5)
        fleet.run_until_copied()
        fleet.turns(30, skip_s=0.3)
        fleet.run_until_copied()
    for number in range(PARTITIONS):
        assert fleet.committed(number) == seen(records(fleet.source, ("t", number)))


def test_delivery_changed_before_a_first_position_is_stored(fleet: TransactionFleet) -> None:
    """The ownership thread stores it before the partition begins, and so before the delivery changes."""
    fleet.ledger.refused["t", 0] = ErrorCode.TOPIC_AUTHORIZATION_FAILED.name
    fleet.give(0, "w1")
    put(fleet, 0, 5)
    fleet.turns(20)
    deliver(fleet, Delivery.AT_LEAST_ONCE, 1)
    fleet.turns(20)
    fleet.ledger.refused.clear()
    fleet.checks = False
    fleet.run_until_copied()
    assert fleet.committed(0) == seen(records(fleet.source, ("t", 0)))


@pytest.mark.parametrize("turns", range(1, 8))
def test_delivery_changed_while_a_partition_starts(fleet: TransactionFleet, turns: int) -> None:
    """It was granted under the former settings: it must not hold the slot to the former delivery."""
    fleet.checks = False
    fleet.give(0, "w1")
    fleet.turns(turns)
    deliver(fleet, Delivery.AT_LEAST_ONCE, 1)
    fleet.turns(10)
    fleet.give(1, "w1")
    for number in range(PARTITIONS):
        put(fleet, number, 5)
    fleet.run_until_copied()


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1 << 32))
def test_delivery_changed_under_load_loses_nothing(seed: int) -> None:
    """Data of the former delivery may be repeated, where it sent at least once."""
    random = Random(seed)  # noqa: S311  # repeatable
    with fleet_of(random) as fleet:
        fleet.checks = False
        faults = Faults(fleet, random)
        for version in range(1, 5):
            put(fleet, random.randrange(PARTITIONS), random.randint(0, 8))
            deliver(fleet, random.choice(list(Delivery)), version)
            faults.harm()
            fleet.turns(random.randint(0, 25), skip_s=0.1)
        faults.heal()
        fleet.run_until_copied()
        fleet.expire_transactions()
        for number in range(PARTITIONS):
            copied = dict.fromkeys(fleet.committed(number))
            assert list(copied) == seen(records(fleet.source, ("t", number)))


def test_transactions_end_under_a_load_that_never_pauses(fleet: TransactionFleet) -> None:
    fleet.give(0, "w1")
    put(fleet, 0, 1)
    fleet.run_until_copied()
    longest_s = LONGEST_INTERVALS * 0.1
    for _ in range(5):
        before = fleet.ledger.read(("t", 0)).offset
        for _ in range(round(longest_s / 0.05) + 5):
            put(fleet, 0, 20, size=3_000)
            fleet.turn(skip_s=0.05)
        assert fleet.ledger.read(("t", 0)).offset > before


def commits(fleet: TransactionFleet, *, size: int) -> int:
    """Number of commits in two seconds, with records of so many bytes."""
    seen_offsets = set()
    for _ in range(40):
        put(fleet, 0, 20, size=size)
        fleet.turn(skip_s=0.05)
        seen_offsets.add(fleet.ledger.read(("t", 0)).offset)
    return len(seen_offsets)


def test_a_backlog_makes_transactions_longer(fleet: TransactionFleet) -> None:
    fleet.give(0, "w1")
    put(fleet, 0, 1)
    fleet.run_until_copied()
    assert commits(fleet, size=10) > 2 * commits(fleet, size=10_000)


def test_a_partition_that_leaves_uncommitted_aborts_what_it_sent(fleet: TransactionFleet) -> None:
    """Its next owner copies it again, and fences no id: it was released."""
    for number in range(PARTITIONS):
        fleet.give(number, "w1")
        put(fleet, number, 5)
    fleet.run_until_copied()
    belated = int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    fleet.target.belated["t", 0] = deque([belated] * 10_000)
    put(fleet, 0, 5)
    fleet.turns(10)
    fleet.give(0, "w2")
    fleet.turns(60, skip_s=0.5)
    assert fleet.owners[Partition(ROUTE, "t", 0)].worker == "w2"
    fleet.target.belated.clear()
    put(fleet, 1, 5)
    fleet.run_until_copied()
    assert len(fleet.committed(0)) == 10


def test_a_partition_that_leaves_acknowledged_but_uncommitted_aborts(
    fleet: TransactionFleet,
) -> None:
    """Another partition keeps the transaction from being settled until the time to drain is over."""
    for number in range(2):
        fleet.give(number, "w1")
        put(fleet, number, 5)
    fleet.run_until_copied()
    after_append = int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    fleet.target.belated["t", 1] = deque([after_append] * 10_000)
    for number in range(2):
        put(fleet, number, 5)
    fleet.turns(10)
    fleet.give(0, "w2")
    fleet.turns(60, skip_s=0.5)
    assert fleet.owners[Partition(ROUTE, "t", 0)].worker == "w2"
    fleet.target.belated.clear()
    fleet.run_until_copied()
    assert len(fleet.committed(0)) == 10


def test_an_abort_before_the_first_commit_gives_up_no_partition(fleet: TransactionFleet) -> None:
    """No position is stored then, which is none of another owner."""
    fleet.give(0, "w1")
    worker = fleet.workers["w1"]
    while worker.copier.idle or not list(worker.copier.copying):
        fleet.turn()
    worker.copier.holder.commits.abort("a batch was refused", worker.now_s)
    put(fleet, 0, 5)
    fleet.run_until_copied()
    assert not worker.failures


def test_a_transaction_is_ended_though_its_partition_was_released(fleet: TransactionFleet) -> None:
    """The coordinator was away just then. An open transaction would hold up readers for a minute."""
    at_rest(fleet)
    after_append = int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    fleet.target.belated["t", 0] = deque([after_append] * 10_000)
    put(fleet, 0, 5)
    fleet.turns(10)
    fleet.ledger.fail_next("initialise")
    fleet.give(0, "w2")
    fleet.turns(60, skip_s=0.5)
    fleet.target.belated.clear()
    put(fleet, 0, 5)
    fleet.run_until_copied()
    assert len(fleet.committed(0)) == 15


def test_an_abort_of_a_former_transaction_ends_none_that_follows(fleet: TransactionFleet) -> None:
    """Two failures at once would otherwise fence the copier's own next transaction, again and again."""
    worker = at_rest(fleet)
    former = worker.ownership._store.producer
    worker.copier.holder.commits.abort("a batch was refused", worker.now_s)
    fleet.turns(10)
    worker.ownership.put(Abort(former))
    put(fleet, 0, 5)
    fleet.run_until_copied()
    assert fleet.ledger.done.count("initialise") == 2


def test_an_abort_is_no_error_of_a_route_at_rest(fleet: TransactionFleet) -> None:
    """Nothing is due after it, so no commit could clear the error."""
    for number in range(PARTITIONS):
        fleet.give(number, "w1")
        put(fleet, number, 5)
    fleet.run_until_copied()
    fleet.turns(10)
    worker = fleet.workers["w1"]
    worker.copier.holder.commits.abort("a batch was refused", worker.now_s)
    fleet.turns(60, skip_s=2.0)
    reports = worker.copier.report().values()
    assert {(report.state, report.reason) for report in reports} == {(PartitionState.ONLINE, "")}


def test_an_abort_that_cannot_be_ended_is_shown(fleet: TransactionFleet) -> None:
    """The coordinator waits for a leader, for its marker."""
    worker = at_rest(fleet)
    for _ in range(200):
        fleet.ledger.fail_next("initialise")
    worker.copier.holder.commits.abort("not settled", worker.now_s)
    fleet.turns(100, skip_s=0.5)
    (report,) = worker.copier.report().values()
    assert report.state is PartitionState.ERROR
    assert report.reason.endswith("UTC: not settled")


def test_positions_are_compared_once_an_interval(
    fleet: TransactionFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comparison at each turn would cost an idle slot more than its fetches."""
    fleet.give(0, "w1")
    put(fleet, 0, 1)
    fleet.run_until_copied()
    compared = 0
    due = ExactlyOnce.due

    def counted(*arguments: Any) -> Any:
        nonlocal compared
        compared += 1
        return due(*arguments)

    fleet.turns(5, skip_s=COMMIT_INTERVAL_S)
    monkeypatch.setattr(ExactlyOnce, "due", counted)
    fleet.turns(40, skip_s=COMMIT_INTERVAL_S / 10)
    assert 1 <= compared <= 5


def test_a_commit_that_is_answered_after_an_abort(fleet: TransactionFleet) -> None:
    """The thread has both commands at once: the positions are stored, then the id is initialised again."""
    worker = at_rest(fleet)
    put(fleet, 0, 5, size=3_000)
    worker.aborts_next_commit = True
    fleet.turns(40, skip_s=0.01)
    assert not worker.aborts_next_commit
    put(fleet, 0, 5, size=3_000)
    fleet.run_until_copied()
    assert len(fleet.committed(0)) == 15


def test_a_late_start_begins_no_transaction_before_the_proof(fleet: TransactionFleet) -> None:
    """The lane has not gone back yet to what the store shows."""
    worker = at_rest(fleet)
    worker.copier.holder.commits.abort("a batch was refused", worker.now_s)
    worker.ownership.perform()
    job = FindStarts(0, {}, {}, TargetState(fleet.target.view(["t"]), {}))
    worker.ownership.put(StartsFound(job, {}))
    worker.ownership.perform()
    posted = list(worker.ownership.events.take())
    assert any(isinstance(event, ProofRequest) for event in posted)
    assert not any(isinstance(event, TransactionBegun) for event in posted)


@pytest.mark.parametrize(("skip_s", "expired"), [(0.03, False), (61.0, True)])
@pytest.mark.parametrize("sent", [True, False])
def test_an_expired_transaction_is_told_from_a_fence(
    fleet: TransactionFleet,
    caplog: pytest.LogCaptureFixture,
    skip_s: float,
    expired: bool,
    sent: bool,
) -> None:
    """A coordinator tells both alike, to a batch and to a commit."""
    worker = at_rest(fleet)
    if sent:
        put(fleet, 0, 5, size=3_000)
        fleet.turns(3, skip_s=0.01)
        fleet.ledger.fence(["w1"])
    else:
        worker.ownership.events.post(FencedOut(0, "w1: INVALID_PRODUCER_EPOCH"))
    worker.work(skip_s=skip_s)
    fleet.turns(20)
    messages = [record.getMessage() for record in caplog.records]
    logged = [line for line in messages if "EPOCH" in line or "fenced (w1)" in line]
    assert logged
    assert all(expired is ("longer than its time-out of 60 s" in line) for line in logged)
