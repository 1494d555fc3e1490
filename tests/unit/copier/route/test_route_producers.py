"""Producers of transactions: epochs that run out, and a protocol that changes while records are copied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from ureplicator_common.kafka.transactions.producers import Producer, TransactionProtocol
from ureplicator_common.model import Delivery
from ureplicator_testkit.copier.ledger_fleet import put
from ureplicator_testkit.copier.line import ROUTE, records, seen
from ureplicator_testkit.copier.transaction_fleet import TRANSACTIONAL, TransactionFleet
from ureplicator_testkit.records.batches import CONTROL
from ureplicator_testkit.records.batches import field as header_field
from ureplicator_worker.lifeline.messages import PublishedSettings

ADDED, IMPLICIT = TransactionProtocol.ADDED, TransactionProtocol.IMPLICIT


@pytest.fixture
def fleet() -> Iterator[TransactionFleet]:
    fleet = TransactionFleet(IMPLICIT, "w1", "w2")
    yield fleet
    fleet.close()


def copy(fleet: TransactionFleet, commits: int) -> None:
    for _ in range(commits):
        for number in range(2):
            put(fleet, number, 2, size=3_000)
        fleet.run_until_copied()


def begin(fleet: TransactionFleet, worker: str = "w1") -> None:
    for number in range(2):
        fleet.give(number, worker)


def producers(fleet: TransactionFleet) -> list[tuple[int, int]]:
    """Producers of the batches of a partition, in order, each once."""
    batches = fleet.target.logs["t", 0].taken
    data = [batch for batch in batches if not header_field(batch, "attributes") & CONTROL]
    found = [(header_field(b, "producer_id"), header_field(b, "producer_epoch")) for b in data]
    return list(dict.fromkeys(found))


def in_use(fleet: TransactionFleet) -> Producer:
    return fleet.workers["w1"].ownership._store.producer


def assert_same(fleet: TransactionFleet) -> None:
    for number in range(2):
        assert fleet.committed(number) == seen(records(fleet.source, ("t", number)))


def test_epochs_that_run_out_bring_another_id(fleet: TransactionFleet) -> None:
    """Neither the epoch nor the id alone tells two producers apart."""
    fleet.ledger.epochs_each = 3
    begin(fleet)
    copy(fleet, 10)
    found = producers(fleet)
    assert len(found) >= 10
    assert len({id for id, _ in found}) >= 3
    assert {epoch for _, epoch in found} == {0, 1, 2}
    assert fleet.ledger.done.count("initialise") == 1
    assert_same(fleet)


def test_with_one_epoch_for_each_id_every_transaction_has_another_id(
    fleet: TransactionFleet,
) -> None:
    fleet.ledger.epochs_each = 1
    begin(fleet)
    copy(fleet, 5)
    begin(fleet, "w2")
    copy(fleet, 5)
    assert {epoch for _, epoch in producers(fleet)} == {0}
    assert_same(fleet)


def test_the_protocol_is_changed_between_two_transactions(fleet: TransactionFleet) -> None:
    """It is changed up and down again, without an abort."""
    fleet.ledger.protocol = ADDED
    begin(fleet)
    for protocol in (ADDED, IMPLICIT, ADDED, IMPLICIT):
        fleet.ledger.protocol = protocol
        copy(fleet, 3)
        fleet.turns(3)
        assert in_use(fleet).protocol is protocol
    assert fleet.ledger.done.count("initialise") == 1
    assert_same(fleet)


def test_an_open_transaction_keeps_its_protocol(fleet: TransactionFleet) -> None:
    fleet.ledger.protocol = ADDED
    begin(fleet)
    copy(fleet, 1)
    fleet.turns(3)
    put(fleet, 0, 5)
    fleet.turns(2, skip_s=0.01)
    fleet.ledger.protocol = IMPLICIT
    put(fleet, 1, 5)
    fleet.turns(2, skip_s=0.01)
    assert in_use(fleet).protocol is ADDED
    copy(fleet, 1)
    assert_same(fleet)


@pytest.mark.parametrize("protocol", [ADDED, IMPLICIT])
def test_sequences_go_on_after_a_time_of_at_least_once(protocol: TransactionProtocol) -> None:
    """The producer is still the same with the first protocol when transactions hold data again."""
    fleet = TransactionFleet(protocol, "w1")
    fleet.checks = False
    fleet.give(0, "w1")
    worker = fleet.workers["w1"]
    once, at_least = Delivery.EXACTLY_ONCE, Delivery.AT_LEAST_ONCE
    for version, delivery in enumerate((once, at_least, once), start=1):
        fleet.settings, fleet.settings_version = replace(TRANSACTIONAL, delivery=delivery), version
        worker.copier.change_settings(PublishedSettings(ROUTE, version, fleet.settings))
        fleet.turns(30, skip_s=0.3)
        put(fleet, 0, 1, size=3_000)
        fleet.run_until_copied()
    reasons = [failure.reason for failure in worker.failures]
    fleet.close()
    assert len(reasons) == 2
    assert all(reason.startswith("delivery changes") for reason in reasons), reasons
    assert fleet.committed(0) == seen(records(fleet.source, ("t", 0)))
