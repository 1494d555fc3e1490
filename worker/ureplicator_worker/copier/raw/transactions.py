"""Transactions of the raw lane: see `copier.lane.Transactions`."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from ureplicator_common.kafka.positions import Producer
from ureplicator_common.model import Partition
from ureplicator_worker.copier.lane import LaneEvent, PartitionsJoining, TransactionFailed
from ureplicator_worker.copier.raw.partition import RawPartition, TopicPartition
from ureplicator_worker.copier.raw.source import Source
from ureplicator_worker.copier.raw.target import Target
from ureplicator_worker.copier.raw.transaction import LaneTransaction, unsettled


class RawTransactions:
    """`partitions` and `events` are the lane's."""

    def __init__(
        self,
        transactional_id: str,
        *,
        partitions: Mapping[Partition, RawPartition],
        source: Source,
        target: Target,
        events: deque[LaneEvent],
    ) -> None:
        self._id = transactional_id
        self._partitions = partitions
        self._source = source
        self._target = target
        self._events = events

    def deliver(self, *, transactional: bool) -> None:
        assert not self._partitions
        if transactional is (self._target.transaction is None):
            self._target.transaction = LaneTransaction(self._id) if transactional else None

    def begin(self, producer: Producer) -> None:
        self._open.begin(producer)

    def joined(self, transaction: int, targets: frozenset[TopicPartition]) -> None:
        self._open.joined(transaction, targets)

    def seal(self) -> None:
        self._open.sealed = True

    def unseal(self) -> None:
        self._open.sealed = False

    @property
    def settled(self) -> bool:
        return not any(unsettled(send.window) for send in self._target.active)

    def end(self) -> None:
        self._open.end()

    def rewind(self, partition: Partition, offset: int, leader_epoch: int) -> None:
        raw = self._partitions[partition]
        raw.window.discard()
        raw.window.pass_over(offset, leader_epoch)
        self._source.restart(raw.fetch, offset, leader_epoch)

    @property
    def used(self) -> bool:
        """Data is sent in transactions."""
        return self._target.transaction is not None

    def fail(self, reason: str) -> None:
        self._events.append(TransactionFailed(reason))

    def request_joining(self) -> None:
        """Once a turn: partitions that have something to send for the first time."""
        transaction = self._target.transaction
        targets = transaction.take_joining() if transaction is not None else None
        if transaction is not None and targets:
            self._events.append(PartitionsJoining(transaction.number, targets))

    @property
    def _open(self) -> LaneTransaction:
        assert self._target.transaction is not None
        return self._target.transaction
