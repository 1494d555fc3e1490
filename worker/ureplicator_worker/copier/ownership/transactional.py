"""Partitions that an ownership thread holds whose data is in transactions with their positions.

While there is one, each commit ends a transaction that may hold data.
"""

from __future__ import annotations

from collections.abc import Callable

from ureplicator_common.kafka.positions import PositionStore
from ureplicator_common.kafka.transactions.producers import Producer
from ureplicator_common.model import Partition
from ureplicator_worker.copier.messages import Begun, TransactionBegun
from ureplicator_worker.copier.ownership.position_records import is_transactional


class TransactionalDelivery:
    def __init__(self) -> None:
        self._partitions: set[Partition] = set()
        self._announced: Producer | None = None

    @property
    def used(self) -> bool:
        """True if data may be in the open transaction."""
        return bool(self._partitions)

    def begin(self, begun: Begun) -> None:
        if is_transactional(begun.partition, begun.grant):
            self._partitions.add(begun.partition)

    def forget(self, partition: Partition) -> None:
        self._partitions.discard(partition)
        if not self.used:
            self._announced = None

    def announce(self, store: PositionStore, post: Callable[[TransactionBegun], None]) -> None:
        """Post the producer after each initialisation, once what is held is confirmed at its stored
        positions, and before the first of these partitions begins."""
        if self.used and store.producer != self._announced:
            self._announced = store.producer
            post(TransactionBegun(store.producer))

    def is_announced(self, producer: Producer) -> bool:
        """True of the last producer that there was for the lane."""
        return producer == self._announced

    def following(self, store: PositionStore) -> Producer | None:
        """The producer of the next transaction, after a commit, if data is sent in it."""
        self._announced = store.producer if self.used else None
        return self._announced
