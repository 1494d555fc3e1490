"""Takeover of all partitions of a dead owner: a request is for as many partitions as there are."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.provenance import DataProducer, Provenance
from ureplicator_common.kafka.transactions.producers import TransactionProtocol
from ureplicator_common.model import OwnerEpoch, Partition
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.copier.fenced_fleet import FENCED
from ureplicator_testkit.copier.ledger_fleet import SteppedOwnership
from ureplicator_testkit.copier.line import ROUTE
from ureplicator_testkit.kafka.clients import MemoryCluster
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_testkit.kafka.transactions import TransactionLedger
from ureplicator_testkit.records import batches
from ureplicator_testkit.records.batches import patched
from ureplicator_worker.copier.messages import Begun
from ureplicator_worker.lifeline.messages import Add, Grant, ProofRequest, ProofResponse

MANY, NODES = 1_000, 3
COPIED, COMMITTED = 2, 1
"""Records of each partition; one more waits at the source."""
DEAD = "w1.0.run"


class Takeover:
    """The ownership thread of a worker that takes over what `w1` has sent, and the requests that it makes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests: Counter[str] = Counter()
        topics = {"t": MANY}
        self.source = MemoryKafka("A", topics, nodes=NODES)
        self.target = MemoryKafka("B", topics, nodes=NODES)
        self.ledger = TransactionLedger(self.target, TransactionProtocol.ADDED)
        producer = self.ledger.data_producer(DEAD)
        for number in range(MANY):
            for offset in range(COPIED + 1):
                batch = batches.batch([(1, None, b"t/%d/%d" % (number, offset), ())])
                self.source.logs["t", number].put(batch)
                if offset < COPIED:
                    sent = patched(batch, producer_id=producer.id, base_sequence=offset)
                    self.target.logs["t", number].put(patched(sent, producer_epoch=producer.epoch))
            self.ledger.positions["t", number] = self._position(producer.id, producer.epoch)
        monkeypatch.setattr(
            MemoryCluster, "_request", lambda client, name: self._count(client, name)
        )
        self.ownership = SteppedOwnership(
            self.source, self.target, worker="w2", ledger=self.ledger, clock=ManualClock()
        )

    def _count(self, client: MemoryCluster, name: str) -> None:
        self.requests[f"{client.name}: {name}"] += 1

    def _position(self, id: int, epoch: int) -> Position:
        provenance = Provenance(
            source_cluster=self.source.cluster_id,
            source_topic=self.source.topic_ids["t"],
            target_topic=self.target.topic_ids["t"],
            worker="w1",
            slot=0,
            owner_epoch=1,
            target_end=COMMITTED,
            appends=DataProducer(DEAD, id, epoch, COMMITTED),
        )
        return Position(COMMITTED, 0, provenance.encode())

    def begin(self) -> dict[int, int]:
        """Partitions that have begun, and where."""
        epochs = {Partition(ROUTE, "t", number): OwnerEpoch(2) for number in range(MANY)}
        self.ownership.put(Add(epochs))
        self.ownership.perform()
        (proof,) = self.ownership.events.take()
        assert isinstance(proof, ProofRequest)
        granted = {
            partition: Grant(epoch, "t", fence=("w1",), settings=FENCED)
            for partition, epoch in epochs.items()
        }
        self.ownership.put(ProofResponse(proof.request_id, granted, {}))
        self.ownership.perform()
        begun = [event for event in self.ownership.events.take() if isinstance(event, Begun)]
        return {event.partition.number: event.beginning.position for event in begun}


def test_a_thousand_partitions_of_a_dead_owner_take_few_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    takeover = Takeover(monkeypatch)
    assert takeover.begin() == dict.fromkeys(range(MANY), COPIED)
    assert takeover.ledger.done == [
        "initialise",
        "fence",
        "read",
        "fence data",
        "data producer",
        "commit",
    ]
    assert takeover.requests == {
        "cluster A: metadata": 1,
        "cluster A: fetch": NODES,
        "cluster B: metadata": 1,
        "cluster B: list offsets": NODES,
        "cluster B: fetch": NODES,
    }


def test_a_producer_that_is_not_fenced_holds_up_only_its_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its coordinator still ends a transaction, since a replica of one partition is away."""
    takeover = Takeover(monkeypatch)
    other = takeover.ledger.data_producer(f"{DEAD}2")
    late = {("t", number) for number in range(0, MANY, 2)}
    for key in late:
        former = Provenance.decode(takeover.ledger.positions[key].metadata)
        assert former is not None
        appends = DataProducer(f"{DEAD}2", other.id, other.epoch, COMMITTED)
        stored = Position(COMMITTED, 0, replace(former, appends=appends).encode())
        takeover.ledger.positions[key] = stored
    takeover.ledger.fail_next("fence data", "before")
    begun = takeover.begin()
    assert set(begun) == {number for number in range(MANY) if ("t", number) not in late}
