"""The open transaction of a lane: what may be sent in it. Pure.

Before the first batch of a partition the coordinator must know that it takes part (KIP-98); with the second
version of the protocol the broker tells it (KIP-890), and the ownership thread confirms at once. While the
transaction is sealed, only batches that were sent before are sent: their outcome decides what it holds.
"""

from __future__ import annotations

from ureplicator_common.kafka.positions import Producer, TransactionProtocol
from ureplicator_worker.copier.raw.batches.send_window import SendWindow
from ureplicator_worker.copier.raw.partition import SendSide, TopicPartition


class LaneTransaction:
    """`number`: 1, 2, ..., so that what was requested for a former transaction is recognised."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.protocol = TransactionProtocol.ADDED
        self.sealed = False
        self.number = 0
        self._producer: tuple[int, int] | None = None
        self._joined: set[TopicPartition] = set()
        self._requested: set[TopicPartition] = set()
        self._joining: set[TopicPartition] = set()

    def begin(self, producer: Producer) -> None:
        """The next transaction, under this producer."""
        self._producer = (producer.id, producer.epoch)
        self.protocol = producer.protocol
        self.sealed = False
        self.number += 1
        self._joined.clear()
        self._requested.clear()
        self._joining.clear()

    def end(self) -> None:
        """Nothing is sent before the next one begins."""
        self._producer = None

    def may_send(self, send: SendSide) -> bool:
        """False while the partition does not take part, or the transaction is not open for it."""
        producer, window = self._producer, send.window
        if producer is None:
            return False
        if window.producer != producer:
            if unsettled(window):
                return False
            window.restart(*producer, transactional=True)
        if self.sealed and not unsettled(window):
            return False
        target = send.topic_partition
        if target not in self._joined and target not in self._requested:
            self._requested.add(target)
            self._joining.add(target)
        return target in self._joined

    def take_joining(self) -> frozenset[TopicPartition]:
        """Partitions that are to take part, since the last call."""
        joining = frozenset(self._joining)
        self._joining.clear()
        return joining

    def joined(self, number: int, targets: frozenset[TopicPartition]) -> None:
        """The coordinator knows that they take part in this transaction."""
        if number == self.number:
            self._joined |= targets


def unsettled(window: SendWindow) -> bool:
    """Something was sent whose outcome is unknown, or that is sent again."""
    head = window.waiting_head
    return window.in_flight > 0 or (head is not None and head.sequence >= 0)
