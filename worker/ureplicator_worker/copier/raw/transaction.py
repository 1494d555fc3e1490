"""The open transaction of a lane: what may be sent in it. Pure.

Before the first batch of a partition the coordinator must know that it takes part (KIP-98); with the second
version of the protocol the broker tells it (KIP-890), and the ownership thread confirms at once. While the
transaction is sealed, only batches that were sent before are sent: their outcome decides what it holds.

A partition takes part only once its leader is connected: the coordinator ends no transaction with a partition
that has no leader. One that did not settle is *set aside*: it waits before it takes part again, longer each
time, so that it seldom holds up the others once more. A new leader is tried at once.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass

from ureplicator_common.backoff import Backoff
from ureplicator_common.kafka.positions import Producer, TransactionProtocol
from ureplicator_worker.copier.raw.batches.send_window import SendWindow
from ureplicator_worker.copier.raw.partition import Copied, SendSide, TopicPartition

SET_ASIDE_S = (10.0, 30.0, 100.0, 300.0)
"""Each return may hold up the slot for `exactly_once.SETTLE_S`: half of the time, soon a thirtieth."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """Of a partition that did not settle at the leader `node_id`."""

    backoff: Backoff
    node_id: int
    until_s: float

    def is_over(self, *, node_id: int, now_s: float) -> bool:
        return now_s >= self.until_s or node_id != self.node_id


class LaneTransaction:
    """`number`: 1, 2, ..., so that what was requested for a former transaction is recognised.

    `copied`, `times_ms`: what was acknowledged in it, and the times of the batches.
    """

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.protocol = TransactionProtocol.ADDED
        self.sealed = False
        self.number = 0
        self.copied: defaultdict[SendSide, Copied] = defaultdict(Copied)
        self.times_ms: list[int] = []
        self._producer: tuple[int, int] | None = None
        self._joined: set[TopicPartition] = set()
        self._requested: set[TopicPartition] = set()
        self._joining: set[TopicPartition] = set()
        self._aside: dict[TopicPartition, SetAside] = {}
        self._last_producer: tuple[int, int] | None = None
        self._left: dict[TopicPartition, int] = {}
        """Next sequences of partitions that the lane dropped, under the last producer."""

    def begin(self, producer: Producer) -> None:
        """The next transaction, under this producer."""
        self._producer = (producer.id, producer.epoch)
        if self._producer != self._last_producer:
            self._left.clear()
        self._last_producer = self._producer
        self.protocol = producer.protocol
        self.sealed = False
        self.number += 1
        self.copied.clear()
        self.times_ms.clear()
        self._joined.clear()
        self._requested.clear()
        self._joining.clear()

    def end(self) -> None:
        """Nothing is sent before the next one begins."""
        self._producer = None

    def may_send(self, send: SendSide) -> bool:
        """False while the transaction is not open for the partition."""
        producer, window = self._producer, send.window
        if producer is None:
            return False
        if window.producer != producer:
            if unsettled(window):
                return False
            sequence = self._left.pop(send.topic_partition, 0)
            window.restart(*producer, transactional=True, sequence=sequence)
        return not self.sealed or is_sent_again(window)

    def taking_part(
        self, partitions: Iterable[SendSide], node_id: int, now_s: float
    ) -> deque[SendSide]:
        """Those of them that take part; that is requested for the others. `node_id`: their leader."""
        return deque(
            send
            for send in partitions
            if self._takes_part(send.topic_partition, node_id=node_id, now_s=now_s)
        )

    def _takes_part(self, target: TopicPartition, *, node_id: int, now_s: float) -> bool:
        """False until the coordinator knows of it, which is requested once."""
        if target in self._joined:
            return True
        aside = self._aside.get(target)
        if target not in self._requested and (
            aside is None or aside.is_over(node_id=node_id, now_s=now_s)
        ):
            self._requested.add(target)
            self._joining.add(target)
        return False

    def set_aside(self, target: TopicPartition, *, node_id: int, now_s: float) -> None:
        former = self._aside.get(target)
        backoff = (former.backoff if former else Backoff(SET_ASIDE_S)).failed()
        self._aside[target] = SetAside(backoff, node_id, now_s + backoff.delay_s)

    def committed(self) -> None:
        """End the waiting time of what was sent in it: it has settled."""
        for send in self.copied:
            self._aside.pop(send.topic_partition, None)

    def leave(self, send: SendSide) -> None:
        """The lane drops the partition. If it returns, its sequences go on: the broker knows the producer."""
        window = send.window
        if self._producer is not None and window.producer == self._producer:
            assert not unsettled(window), f"{send.topic_partition} leaves an open transaction"
            self._left[send.topic_partition] = window.next_sequence

    def take_joining(self) -> frozenset[TopicPartition]:
        """Partitions that are to take part, since the last call."""
        joining = frozenset(self._joining)
        self._joining.clear()
        return joining

    def joined(
        self,
        number: int,
        targets: frozenset[TopicPartition],
        refused: Iterable[TopicPartition] = (),
    ) -> None:
        """The coordinator knows that they take part; the refused may be requested again."""
        if number == self.number:
            self._joined |= targets
            self._requested.difference_update(refused)


def unsettled(window: SendWindow) -> bool:
    """Something was sent whose outcome is unknown, or that is sent again."""
    return window.in_flight > 0 or is_sent_again(window)


def is_sent_again(window: SendWindow) -> bool:
    """The next batch was sent before."""
    head = window.waiting_head
    return head is not None and head.sequence >= 0
