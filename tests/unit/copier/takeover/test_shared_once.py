"""Producers that are shared once: what a start has found counts when it begins, and not later."""

from __future__ import annotations

from dataclasses import replace

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.provenance import DataProducer, Provenance, SameOffsets
from ureplicator_common.kafka.transactions.producers import TransactionProtocol
from ureplicator_testkit.kafka.clients import MemoryCluster
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_testkit.kafka.transactions import TransactionLedger
from ureplicator_worker.copier.behind import Behind
from ureplicator_worker.copier.takeover.takeovers import Takeovers

KEY = ("t", 0)
CLOSED = Provenance("A", "A-t", "B-t", "w1", 0, 1, target_end=0, same=SameOffsets(since=0))


class SharedStarts:
    """Starts of a partition whose former owner `w1` has named a producer, and sent nothing."""

    def __init__(self) -> None:
        source, target = (MemoryKafka(name, {"t": 1}) for name in "AB")
        self.ledger = TransactionLedger(target, TransactionProtocol.ADDED)
        store, self._target = self.ledger.store("w2"), MemoryCluster(target)
        store.initialise()
        self.takeovers = Takeovers(store, source=MemoryCluster(source), target=self._target)
        producer = self.ledger.data_producer("w1.0.run")
        appends = DataProducer("w1.0.run", producer.id, producer.epoch)
        self.named = replace(CLOSED, appends=appends)

    def shares(self, provenance: Provenance) -> bool:
        """A start finds this stored, and the producer may be used on."""
        stored = {KEY: Position(0, 0, provenance.encode())}
        view = self._target.view(["t"])
        behind = self.takeovers.at_target(stored, view, {KEY: 0}, shareable={KEY: 0}).get(KEY)
        return isinstance(behind, Behind) and behind.shared is not None


def test_a_producer_that_was_shared_in_vain_is_fenced() -> None:
    starts = SharedStarts()
    assert starts.shares(starts.named)
    starts.takeovers.began(KEY)
    assert not starts.shares(starts.named)
    assert starts.ledger.done == ["initialise", "fence data"]


def test_what_a_start_found_that_was_not_begun_is_forgotten() -> None:
    """Meanwhile another owner has closed the position."""
    starts = SharedStarts()
    assert starts.shares(starts.named)
    assert not starts.shares(CLOSED)
    starts.takeovers.began(KEY)
    assert starts.shares(starts.named)
