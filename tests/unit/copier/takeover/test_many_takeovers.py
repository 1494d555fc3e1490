"""Takeover of all partitions of a dead owner: a request is for as many partitions as there are."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from ureplicator_common.kafka import ClusterUnavailable, Position
from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.provenance import DataProducer, Provenance
from ureplicator_common.kafka.transactions.producers import TransactionProtocol
from ureplicator_common.model import GapPolicy, OwnerEpoch, Partition, RouteSettings
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.copier.fenced_fleet import FENCED
from ureplicator_testkit.copier.ledger_fleet import SteppedOwnership
from ureplicator_testkit.copier.line import ROUTE
from ureplicator_testkit.kafka.clients import MemoryCluster
from ureplicator_testkit.kafka.cluster import TopicPartition
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_testkit.kafka.transactions import MemoryTransactions, TransactionLedger
from ureplicator_testkit.records import batches
from ureplicator_testkit.records.batches import patched
from ureplicator_worker.copier.messages import Begun
from ureplicator_worker.lifeline.messages import Add, Grant, ProofRequest, ProofResponse

MANY, NODES, PRODUCERS = 1_000, 3, 20
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
        self.dead = producer = self.ledger.data_producer(DEAD)
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
        self.monkeypatch, self.clock, self.proof = monkeypatch, ManualClock(), 0
        self.ownership = SteppedOwnership(
            self.source, self.target, worker="w2", ledger=self.ledger, clock=self.clock
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

    def send_under(self, name: str, numbers: Iterable[int]) -> None:
        """These partitions had a producer of their own."""
        producer = self.ledger.data_producer(name)
        for number in numbers:
            former = Provenance.decode(self.ledger.positions["t", number].metadata)
            assert former is not None
            appends = DataProducer(name, producer.id, producer.epoch, COMMITTED)
            stored = Position(COMMITTED, 0, replace(former, appends=appends).encode())
            self.ledger.positions["t", number] = stored
            log = self.target.logs["t", number]
            log.taken = [patched(batch, producer_id=producer.id) for batch in log.taken]

    def begin(
        self, numbers: Iterable[int] = range(MANY), *, settings: RouteSettings = FENCED
    ) -> dict[int, int]:
        """Partitions that have begun, and where."""
        epochs = {Partition(ROUTE, "t", number): OwnerEpoch(2) for number in numbers}
        self.ownership.put(Add(epochs))
        self.clock.advance(1.0)
        self._perform()
        granted = {
            partition: Grant(epoch, "t", fence=("w1",), settings=settings)
            for partition, epoch in epochs.items()
        }
        self.ownership.put(ProofResponse(self.proof, granted, {}))
        return {event.partition.number: event.beginning.position for event in self._perform()}

    def _perform(self) -> list[Begun]:
        """Partitions that have begun; the last request for a proof is noted."""
        self.ownership.perform()
        begun: list[Begun] = []
        for event in self.ownership.events.take():
            if isinstance(event, ProofRequest):
                self.proof = event.request_id
            elif isinstance(event, Begun):
                begun.append(event)
        return begun

    def slow_fences(self, took_s: float) -> None:
        """Each takes so long, or fails when the time that it has is over."""
        client, fence = self.ownership.target_client, MemoryTransactions.fence_data

        def slow(store: MemoryTransactions, name: str, partitions: Iterable[TopicPartition]) -> Any:
            left_s = client.deadline_s(math.inf) - client.now_s()
            client.pause(min(took_s, max(0.0, left_s)))
            if left_s < took_s:
                raise ClusterUnavailable(f"{name}: no response", delay_s=0.0)
            return fence(store, name, partitions)

        self.monkeypatch.setattr(MemoryTransactions, "fence_data", slow)


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
        "cluster A: list offsets": NODES,
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
    late = range(0, MANY, 2)
    takeover.send_under(f"{DEAD}2", late)
    takeover.ledger.fail_next("fence data", "before")
    assert set(takeover.begin()) == set(range(1, MANY, 2))


def test_a_new_leader_of_the_source_is_asked_again_until_it_knows_its_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    takeover = Takeover(monkeypatch)
    takeover.source.logs["t", 0].lagging = COPIED
    assert set(takeover.begin()) == set(range(1, MANY))
    takeover.source.logs["t", 0].lagging = None
    assert takeover.begin([0]) == {0: COPIED}


def test_the_former_owner_is_fenced_in_a_target_topic_that_was_recreated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its late batches would be appended to the new one."""
    takeover = Takeover(monkeypatch)
    takeover.target.create("t", MANY)
    settings = replace(FENCED, on_gap=GapPolicy.EARLIEST)
    assert takeover.begin([0], settings=settings) == {0: 0}
    batch = batches.batch([(1, None, b"late", ())])
    late = patched(batch, producer_id=takeover.dead.id, producer_epoch=takeover.dead.epoch)
    error, _ = takeover.target.logs["t", 0].produce(late)
    assert error == ErrorCode.INVALID_PRODUCER_EPOCH


def test_producers_that_take_longer_than_the_time_of_a_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """A far target: each try fences some of them, until all are."""
    takeover = Takeover(monkeypatch)
    for number in range(PRODUCERS):
        takeover.send_under(f"{DEAD}{number}", range(number, MANY, PRODUCERS))
    takeover.slow_fences(0.4)
    begun: dict[int, int] = {}
    for _ in range(PRODUCERS):
        begun |= takeover.begin(set(range(MANY)) - begun.keys())
    assert begun == dict.fromkeys(range(MANY), COPIED)
