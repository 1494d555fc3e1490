"""Delivery of the partitions that an ownership thread holds: all of one kind at a time.

A commit of positions alone would end a transaction that holds data. So the first partition decides, until
none is held any more.
"""

from __future__ import annotations

from collections.abc import Callable

from ureplicator_common.kafka.positions import PositionStore
from ureplicator_common.kafka.transactions.producers import Producer
from ureplicator_common.model import Delivery
from ureplicator_worker.copier.ownership.protocol import TransactionBegun
from ureplicator_worker.lifeline.messages import Grant


class TransactionalDelivery:
    """`used`: data and positions are committed together."""

    def __init__(self) -> None:
        self.used = False
        self._announced: Producer | None = None

    def deliver(self, grant: Grant, *, alone: bool) -> bool:
        """False if the partition must wait. `alone`: none is held."""
        wanted = grant.settings.delivery is Delivery.EXACTLY_ONCE
        if alone:
            self.used, self._announced = wanted, None
        return self.used == wanted

    def announce(self, store: PositionStore, post: Callable[[TransactionBegun], None]) -> None:
        """Post the producer after each initialisation, once what is held is confirmed at its stored
        positions."""
        if self.used and store.producer != self._announced:
            self._announced = store.producer
            post(TransactionBegun(store.producer))

    def is_announced(self, producer: Producer) -> bool:
        """The lane's producer is the last one that there was."""
        return producer == self._announced

    def following(self, store: PositionStore) -> Producer | None:
        """The producer of the next transaction, after a commit, if data is sent in it."""
        self._announced = store.producer if self.used else None
        return self._announced
