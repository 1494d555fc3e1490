"""Connections over which a partition may be sent that is fenced and counted, exactly once.

A process that was stopped for longer than brokers keep a fence finds its connections closed. So a partition
is sent only over a connection that was opened, and to a leader of an epoch that was known, before its owner
was last confirmed: its position was committed once more since. That is refused to an owner that was replaced.

And it is confirmed again after so many records (`AHEAD`), if no commit has succeeded for long: a successor
counts what lies behind the position, and finds it at the source, in due time and below the half of the
sequences that there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ureplicator_worker.batches.header import SEQUENCE_MODULUS
from ureplicator_worker.copier.messages import ConfirmationNeeded
from ureplicator_worker.copier.net.connection import BrokerConnection
from ureplicator_worker.copier.net.connections import Connections
from ureplicator_worker.copier.raw.partition import SendSide

AHEAD = 1 << 24
"""Most records that are sent behind a position that is surely stored."""

FRESH_S = 60.0
"""Pause between the name of a producer and its first use after which the name is committed once more."""


class Confirmations:
    def __init__(
        self, connections: Connections, post: Callable[[ConfirmationNeeded], None]
    ) -> None:
        self._connections = connections
        self._post = post

    def sendable(
        self, partitions: deque[SendSide], connection: BrokerConnection
    ) -> deque[SendSide]:
        """The sides that may send over the connection. The others are held back until they are confirmed."""
        unconfirmed = [
            send for send in partitions if send.fenced and not self._is_confirmed(send, connection)
        ]
        if not unconfirmed:
            return partitions
        for send in unconfirmed:
            self.need(send)
        return deque(send for send in partitions if not send.confirming)

    def _is_confirmed(self, send: SendSide, connection: BrokerConnection) -> bool:
        serial, epoch = send.confirmed
        return (
            connection.serial <= serial
            and (send.window.next_sequence - send.stored_sequence) % SEQUENCE_MODULUS < AHEAD
            and self._connections.leader(*send.topic_partition).epoch <= epoch
        )

    def need(self, send: SendSide) -> None:
        """Hold the partition back until its position is committed once more, as it is now: a commit that is
        under way does not do."""
        if send.confirming:
            send.confirms_again = True
            return
        send.confirming = True
        self._mark(send)
        self._post(ConfirmationNeeded(send.partition))

    def confirmed(self, send: SendSide) -> None:
        """The position was committed once more since it was held back."""
        send.confirming = False
        if send.confirms_again:
            send.confirms_again = False
            self.need(send)

    def begin(self, send: SendSide, given_s: float, *, now_s: float) -> None:
        """The producer was given then, and named in the position since. A process that has slept for long
        in between may have opened its connections behind it."""
        if now_s - given_s > FRESH_S:
            self.need(send)
        else:
            self._mark(send)

    def _mark(self, send: SendSide) -> None:
        """Have the connections that are open now used as soon as the owner is confirmed. What is acknowledged
        now is stored then."""
        send.stored_sequence = send.window.acknowledged_sequence
        epoch = self._connections.leader(*send.topic_partition).epoch
        send.confirmed = self._connections.opened, epoch
