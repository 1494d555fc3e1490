"""Renewal of a position whose partition cannot start, by a worker that sends data in transactions."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from ureplicator_common.kafka.provenance import Provenance
from ureplicator_common.kafka.transactions.producers import TransactionProtocol
from ureplicator_testkit.copier.ledger_fleet import LedgerFleet, put
from ureplicator_testkit.copier.transaction_fleet import TRANSACTIONAL
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_testkit.kafka.transactions import TransactionLedger

PROTOCOLS = list(TransactionProtocol)
K0, K1 = ("t", 0), ("t", 1)
LOST_END = 10**6


@pytest.fixture(params=PROTOCOLS, ids=[protocol.name for protocol in PROTOCOLS])
def fleet(request: pytest.FixtureRequest) -> Iterator[LedgerFleet]:
    """Partition 0 is copied by w1. Partition 1 is given to it, and cannot start: its position claims more
    than the target holds."""
    topics = {"t": 2}
    target = MemoryKafka("B", topics)
    fleet = LedgerFleet(
        MemoryKafka("A", topics),
        target,
        *("w1", "w2"),
        settings=TRANSACTIONAL,
        ledger=TransactionLedger(target, request.param),
    )
    for number, worker in enumerate(("w1", "w2")):
        fleet.give(number, worker)
        put(fleet, number, 5)
    fleet.run_until_copied()
    claim(fleet, LOST_END)
    fleet.ledger.calls.clear()
    fleet.give(1, "w1")
    fleet.turns(50)
    assert fleet.workers["w1"].failures[0].reason.startswith("target lost offsets")
    yield fleet
    fleet.close()


def claim(fleet: LedgerFleet, target_end: int) -> None:
    stored = fleet.ledger.positions[K1]
    provenance = Provenance.decode(stored.metadata)
    assert provenance is not None
    metadata = replace(provenance, target_end=target_end).encode()
    fleet.ledger.positions[K1] = replace(stored, metadata=metadata)


def test_it_is_renewed_once_and_data_is_copied_on(fleet: LedgerFleet) -> None:
    for _ in range(10):
        put(fleet, 0, 5)
        fleet.turns(10, skip_s=0.1)
    assert fleet.ledger.read(K0).offset == 55
    commits = [call[1] for call in fleet.ledger.calls if call[0] == "commit"]
    assert commits.count({K1: 5}) == 1
    assert not any(K1 in offsets for offsets in commits[commits.index({K1: 5}) + 1 :])


def test_it_is_not_renewed_once_another_worker_has_it(fleet: LedgerFleet) -> None:
    """It would go back, and what was committed since would be copied again."""
    claim(fleet, 0)
    fleet.give(1, "w2")
    put(fleet, 1, 5)
    fleet.turns(100, skip_s=0.1)
    assert fleet.ledger.read(K1).offset == 10
    put(fleet, 0, 5)
    fleet.turns(100, skip_s=0.1)
    assert (fleet.ledger.read(K0).offset, fleet.ledger.read(K1).offset) == (10, 10)
