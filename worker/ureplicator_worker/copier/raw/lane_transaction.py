"""The open transaction of a lane: what may be sent in it. Pure.

Before the first batch of a partition the coordinator must know that it takes part (KIP-98); with the second
version of the protocol the broker tells it (KIP-890), and the ownership thread confirms at once. While the
transaction is sealed, only batches that belong to what was sent are sent: their outcome decides what it
holds.

There is one producer, so one series of sequences for each target partition. Where several windows send to one
(outputs of handlers), they take turns: one takes the series over when all that the former sent is
acknowledged; that sends nothing new while another waits. Outputs that belong together are begun when all
their target partitions take part, so that none holds up the transaction that waits for a leader.

A leader that a partition was not sent to before must show first that its log goes on where the acknowledged
batches end (`ownership.joining`).

A partition takes part only once its leader is connected: the coordinator ends no transaction with a partition
that has no leader. One that did not settle is *set aside*: it waits before it takes part again, longer each
time, so that it seldom holds up the others once more. A new leader is tried at once.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ureplicator_common.backoff import Backoff
from ureplicator_common.kafka.transactions.producers import Producer, TransactionProtocol
from ureplicator_worker.copier.position_values import AcknowledgedEnd
from ureplicator_worker.copier.raw.partition import Copied, SendSide, TopicPartition
from ureplicator_worker.copier.raw.send_window import SendWindow, acknowledged_end

SET_ASIDE_S = (10.0, 30.0, 100.0, 300.0)
"""Each return may hold up the slot for `exactly_once.SETTLE_S`: half of the time, soon a thirtieth."""


class Leading(NamedTuple):
    """Leader of a partition. `lost`: connections to it that were lost before."""

    node_id: int
    epoch: int
    lost: int


@dataclass(frozen=True, slots=True)
class SetAside:
    """Time for which a partition is left out that did not settle at the leader `node_id`."""

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
        self._joining: dict[TopicPartition, AcknowledgedEnd | None] = {}
        """Partitions with the end that its log must show; None if none is known, or it was shown."""
        self._showing: dict[TopicPartition, Leading] = {}
        self._shown: dict[TopicPartition, Leading] = {}
        """Leaders that have shown that their logs are long enough; over all transactions."""
        self._aside: dict[TopicPartition, SetAside] = {}
        self._holders: dict[TopicPartition, SendWindow] = {}
        """The windows that sent last under the last producer, also of partitions that the lane dropped."""
        self._waiting: dict[TopicPartition, SendSide] = {}
        self._last_producer: tuple[int, int] | None = None

    def begin(self, producer: Producer) -> None:
        """The next transaction, under this producer."""
        self._producer = (producer.id, producer.epoch)
        if self._producer != self._last_producer:
            self._holders.clear()
            self._waiting.clear()
        self._last_producer = self._producer
        self.protocol = producer.protocol
        self.sealed = False
        self.number += 1
        self.copied.clear()
        self.times_ms.clear()
        self._joined.clear()
        self._requested.clear()
        self._joining.clear()
        self._showing.clear()

    def end(self) -> None:
        """Nothing is sent before the next one begins."""
        self._producer = None

    def may_send(self, send: SendSide) -> bool:
        """False while the transaction is not open for the partition, or another window has its turn."""
        if self._producer is None or not goes_on(send.window, begin=not self.sealed):
            return False
        if not self._may_turn(send):
            return False
        if send.window.producer != self._producer:
            send.window.restart(*self._producer, transactional=True)
        return True

    def _may_turn(self, send: SendSide) -> bool:
        """True if its window has its turn, or may take it."""
        window, target = send.window, send.topic_partition
        holder, waiting = self._holders.get(target), self._waiting.get(target)
        if holder is window:
            return waiting is None or resends(window) or not self._goes_on(waiting)
        if window.in_flight or resends(window):
            return False
        if holder is not None and (holder.in_flight or resends(holder)):
            if waiting is None or not self._goes_on(waiting):
                self._waiting[target] = send
            return False
        return True

    def _goes_on(self, send: SendSide) -> bool:
        """True if it would send if it had its turn."""
        return goes_on(send.window, begin=self._may_begin(send))

    def _may_begin(self, send: SendSide) -> bool:
        """False while outputs that belong together would wait for one that takes no part."""
        others = send.outputs.keys() - self._joined
        return not self.sealed and all(send.outputs[target].window.empty for target in others)

    def taking_part(
        self,
        partitions: Iterable[SendSide],
        leading: Callable[[TopicPartition], Leading],
        now_s: float,
    ) -> deque[SendSide]:
        """Sides of them that take part, one for each target partition; that is requested for the
        others. `leading`: their leader."""
        found: dict[TopicPartition, SendSide] = {}
        for send in partitions:
            target = send.topic_partition
            if (
                target not in found
                and self._takes_part(send, leading(target), now_s)
                and (not send.outputs or self._goes_on(send))
                and self._turns(send)
            ):
                found[target] = send
        return deque(found.values())

    def _turns(self, send: SendSide) -> bool:
        """Give its window the turn, unless another took it since."""
        window, target, producer = send.window, send.topic_partition, self._producer
        assert producer is not None
        window.may_begin = not send.outputs or self._may_begin(send)
        holder = self._holders.get(target)
        if holder is window:
            return True
        if not self._may_turn(send):
            return False
        if holder is not None:
            window.restart(*producer, transactional=True, sequence=holder.next_sequence)
        self._holders[target] = window
        if self._waiting.get(target) is send:
            del self._waiting[target]
        return True

    def _takes_part(self, send: SendSide, leading: Leading, now_s: float) -> bool:
        """False until the coordinator knows of it and the leader has shown its end; requested once."""
        target = send.topic_partition
        shown = self._is_shown(send, leading)
        if target in self._joined:
            if shown:
                return True
            self._joined.discard(target)
            self._requested.discard(target)
        aside = self._aside.get(target)
        if target not in self._requested and (
            aside is None or aside.is_over(node_id=leading.node_id, now_s=now_s)
        ):
            self._requested.add(target)
            self._joining[target] = None if shown else acknowledged_end(send.window)
            self._showing[target] = leading
        return False

    def _is_shown(self, send: SendSide, leading: Leading) -> bool:
        known = self._shown.get(send.topic_partition)
        return acknowledged_end(send.window) is None if known is None else known == leading

    def set_aside(self, target: TopicPartition, *, node_id: int, now_s: float) -> None:
        """Leave a target partition out for a while, once for all windows that send to it."""
        former = self._aside.get(target)
        if former is not None and not former.is_over(node_id=node_id, now_s=now_s):
            return
        backoff = (former.backoff if former else Backoff(SET_ASIDE_S)).failed()
        self._aside[target] = SetAside(backoff, node_id, now_s + backoff.delay_s)

    def committed(self) -> None:
        """End the waiting time of what was sent in it: it has settled. A marker follows it in the log."""
        for send in self.copied:
            self._aside.pop(send.topic_partition, None)
            if self.holds(send):
                send.window.markers = 1

    def holds(self, send: SendSide) -> bool:
        """Something of the partition was acknowledged in it."""
        return send in self.copied and self.copied[send].records > 0

    def leave(self, send: SendSide) -> None:
        """The lane drops the partition. Another window goes on with its sequences: the broker knows the
        producer."""
        window = send.window
        if self._producer is not None and window.producer == self._producer:
            assert not unsettled(window), f"{send.topic_partition} leaves an open transaction"

    def take_joining(self) -> dict[TopicPartition, AcknowledgedEnd | None]:
        """Partitions that are to take part, since the last call, and the ends that they must show."""
        joining, self._joining = self._joining, {}
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
            for target in targets & self._showing.keys():
                self._shown[target] = self._showing[target]


def resends(window: SendWindow) -> bool:
    """The next batch was sent before."""
    return window.head is not None and window.head.sequence >= 0


def goes_on(window: SendWindow, *, begin: bool) -> bool:
    """A transaction may send its next batch. `begin`: one that belongs to nothing that was sent, too."""
    return window.head is not None and window.head.goes_on(begin=begin)


def unsettled(window: SendWindow) -> bool:
    """True if a transaction that ended now would hold something unknown, or part of a whole."""
    return window.in_flight > 0 or goes_on(window, begin=False)
