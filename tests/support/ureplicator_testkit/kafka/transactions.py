"""Transactions of data and positions at a target in memory: the coordinator beside its brokers.

The rules are those of KIP-98, and of KIP-890 for the implicit protocol: batches of a former epoch are
refused, and a partition takes part that was added, or with its first batch. InitProducerId aborts what is
open. A commit stores the positions and writes the markers of all partitions at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.positions import (
    Fenced,
    Producer,
    TargetPartition,
    TransactionProtocol,
)
from ureplicator_testkit.kafka.cluster import TopicPartition
from ureplicator_testkit.kafka.ledger import MemoryPositions, ScriptedLedger
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_testkit.records.batches import TRANSACTIONAL, marker
from ureplicator_testkit.records.batches import field as header_field
from ureplicator_worker.copier.raw.net import produce_api

FIRST_PRODUCER_ID = 500


class TransactionLedger(ScriptedLedger):
    def __init__(self, target: MemoryKafka, protocol: TransactionProtocol) -> None:
        super().__init__()
        self.protocol = protocol
        self._target = target
        self._added: dict[str, set[TopicPartition]] = {}
        target.check_transaction = self._check

    def store(self, transactional_id: str) -> MemoryTransactions:
        return MemoryTransactions(self, transactional_id)

    def producer_id(self, transactional_id: str) -> int:
        return FIRST_PRODUCER_ID + list(self.epochs).index(transactional_id)

    def initialise(self, transactional_id: str) -> int:
        if transactional_id in self.epochs:
            self._end(transactional_id, commit=False)
        return super().initialise(transactional_id)

    def add(
        self, transactional_id: str, epoch: int | None, partitions: Iterable[TopicPartition]
    ) -> None:
        """Raises Fenced."""
        if not self.is_current(transactional_id, epoch):
            raise Fenced(transactional_id)
        self._added.setdefault(transactional_id, set()).update(partitions)

    def commit(
        self,
        transactional_id: str,
        epoch: int | None,
        positions: Mapping[TargetPartition, Position],
    ) -> None:
        super().commit(transactional_id, epoch, positions)
        self._end(transactional_id, commit=True)
        if self.protocol is TransactionProtocol.IMPLICIT:
            super().initialise(transactional_id)

    def _end(self, transactional_id: str, *, commit: bool) -> None:
        id = self.producer_id(transactional_id)
        for key in self._added.pop(transactional_id, set()):
            log = self._target.logs[key]
            if id in log.transactions:
                log.put(marker(base_offset=0, producer_id=id, commit=commit))

    def _check(self, key: TopicPartition, batch: bytes, version: int) -> int:
        if not header_field(batch, "attributes") & TRANSACTIONAL:
            return ErrorCode.NONE
        ids = {self.producer_id(each): each for each in self.epochs}
        id = ids[header_field(batch, "producer_id")]
        if not self.is_current(id, header_field(batch, "producer_epoch")):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if self.protocol is TransactionProtocol.IMPLICIT:
            assert version >= produce_api.IN_TRANSACTION
            self._added.setdefault(id, set()).add(key)
        else:
            assert version < produce_api.IN_TRANSACTION
        in_it = key in self._added.get(id, ())
        return ErrorCode.NONE if in_it else ErrorCode.INVALID_TXN_STATE


class MemoryTransactions(MemoryPositions):
    """A `PositionStore` whose transactions hold data, too."""

    ledger: TransactionLedger

    @property
    def producer(self) -> Producer:
        assert self._ready
        assert self.epoch is not None
        id = self.ledger.producer_id(self.transactional_id)
        return Producer(id, self.epoch, self.ledger.protocol)

    def add_partitions(self, partitions: Iterable[TargetPartition]) -> None:
        epoch, keys = self.epoch, list(partitions)
        if self.ledger.protocol is TransactionProtocol.IMPLICIT:
            return
        self._request(
            "join", keys, effect=lambda: self.ledger.add(self.transactional_id, epoch, keys)
        )

    def commit(self, positions: Mapping[TargetPartition, Position]) -> None:
        super().commit(positions)
        if self.ledger.protocol is TransactionProtocol.IMPLICIT:
            self.epoch = self.ledger.epochs[self.transactional_id]
