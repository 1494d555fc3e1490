"""Producers of data exactly once without transactions: each is named, and serves a target partition once."""

from __future__ import annotations

from itertools import count
from unittest.mock import patch

import pytest

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.transactions.producers import Producer
from ureplicator_common.model import Partition, Route
from ureplicator_testkit.copier.transaction_fleet import PROTOCOLS
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_testkit.kafka.transactions import TransactionLedger
from ureplicator_worker.copier.ownership.data_producers import AGAIN_S, RENEW_S, DataProducers

P0, P1 = (Partition(Route("a", "b"), "t", number) for number in range(2))
K0, K1 = ("t", 0), ("t", 1)


@pytest.fixture
def ledger() -> TransactionLedger:
    return TransactionLedger(MemoryKafka("B", {"t": 2}), PROTOCOLS[0])


@pytest.fixture
def data(ledger: TransactionLedger) -> DataProducers:
    names = count(1)
    return DataProducers(ledger.store("w.0"), lambda: f"w.0.{next(names)}")


def asked(ledger: TransactionLedger) -> list[str]:
    return [call[1] for call in ledger.calls if call[0] == "data producer"]


def test_partitions_share_a_producer_until_one_begins_again(
    ledger: TransactionLedger, data: DataProducers
) -> None:
    first = data.assign({P0: K0}, 0.0)[P0]
    assert data.assign({P1: K1}, 0.0) == {P1: first}
    again = data.assign({P0: K0}, 0.0)[P0]
    assert (again.name, again.id != first.id) == ("w.0.2", True)
    assert asked(ledger) == ["w.0.1", "w.0.2"]


def test_a_producer_in_use_is_renewed_in_time(
    ledger: TransactionLedger, data: DataProducers
) -> None:
    data.assign({P0: K0}, 0.0)
    assert data.renew(RENEW_S - 1) == []
    assert asked(ledger) == ["w.0.1"]
    assert data.renew(RENEW_S) == data.renew(RENEW_S + 1) == []
    assert asked(ledger) == ["w.0.1"] * 2


def test_a_producer_of_no_partition_is_left_to_expire(
    ledger: TransactionLedger, data: DataProducers
) -> None:
    """It serves no partition any more, as its coordinator may forget it at once."""
    data.assign({P0: K0}, 0.0)
    data.forget(P0)
    assert data.renew(RENEW_S) == []
    assert asked(ledger) == ["w.0.1"]
    assert data.assign({P1: K1}, RENEW_S)[P1].name == "w.0.2"


@pytest.mark.parametrize("forgotten", [True, False])
def test_a_producer_that_nobody_can_fence_by_its_name_is_replaced(
    ledger: TransactionLedger, data: DataProducers, forgotten: bool
) -> None:
    """Its coordinator has forgotten the name, or the id has had all its epochs: the name is another id's."""
    data.assign({P0: K0, P1: K1}, 0.0)
    if forgotten:
        ledger.forget_data_producers()
    else:
        ledger.data_epochs = 1
    assert data.renew(RENEW_S) == [P0, P1]
    assert data.renew(RENEW_S) == []
    assert data.assign({P0: K0}, RENEW_S)[P0].name == "w.0.2"


def test_a_renewal_without_a_response_is_repeated(
    ledger: TransactionLedger, data: DataProducers
) -> None:
    """The epoch that it took is one that nobody sends under: no batch is stamped anew."""
    producer = data.assign({P0: K0}, 0.0)[P0]
    ledger.fail_next("data producer", "after")
    with pytest.raises(ClusterUnavailable):
        data.renew(RENEW_S)
    assert data.renew(RENEW_S + AGAIN_S) == []
    fence, _ = ledger.store("w2").fence_data(producer.name, [K0])
    assert (fence.id, fence.epoch) == (producer.id, producer.epoch + 3)


def test_a_coordinator_that_is_away_does_not_delay_each_step(
    ledger: TransactionLedger, data: DataProducers
) -> None:
    """Each request waits for its time limit, and no commit is made meanwhile."""
    data.assign({P0: K0}, 0.0)
    ledger.fail_next("data producer", "before")
    with pytest.raises(ClusterUnavailable):
        data.renew(RENEW_S)
    for passed_s in range(round(AGAIN_S)):
        assert data.renew(RENEW_S + passed_s) == []
    assert asked(ledger) == ["w.0.1"] * 2
    assert data.renew(RENEW_S + AGAIN_S) == []
    assert asked(ledger) == ["w.0.1"] * 3


def test_what_is_lost_is_said_though_the_next_renewal_fails(
    ledger: TransactionLedger, data: DataProducers
) -> None:
    data.assign({P0: K0, P1: K1}, 0.0)
    data.assign({P1: K1}, 0.0)
    ledger.forget_data_producers()
    renew = ledger.data_producer

    def fail_second(name: str) -> Producer:
        if name == "w.0.2":
            raise ClusterUnavailable("away")
        return renew(name)

    with patch.object(ledger, "data_producer", fail_second):
        assert data.renew(RENEW_S) == [P0]
        with pytest.raises(ClusterUnavailable):
            data.renew(RENEW_S + AGAIN_S)
    assert data.renew(RENEW_S + 2 * AGAIN_S) == [P1]
