"""Transactions of the lane, for what handlers and queries put out: see `copier.lane.Transactions`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from ureplicator_common.kafka.transactions.producers import Producer
from ureplicator_common.model import Partition
from ureplicator_worker.copier.latency import Latencies
from ureplicator_worker.copier.messages import (
    ControlRecordsWritten,
    Join,
    Joined,
    LaneEvent,
    TransactionFailed,
)
from ureplicator_worker.copier.net.connections import available
from ureplicator_worker.copier.raw.counting import count_committed
from ureplicator_worker.copier.raw.lane_transaction import LaneTransaction, unsettled
from ureplicator_worker.copier.raw.partition import SendSide, TopicPartition
from ureplicator_worker.copier.raw.send_window import acknowledged_end
from ureplicator_worker.copier.raw.source import Source
from ureplicator_worker.copier.raw.target import Target
from ureplicator_worker.copier.record.partition import LanePartition

MOVING_S = 5.0
"""Lines deliver in gusts. A broker that hangs has been silent for longer when the time to settle is over."""
REFUSED_S = 1.0
"""Time until a partition that the coordinator has refused is tried again: it holds up no other."""
ASIDE = "set aside from transactions, since it did not settle"


class RawTransactions:
    """`partitions` and `events` are the lane's."""

    def __init__(
        self,
        transaction: LaneTransaction,
        *,
        partitions: Mapping[Partition, LanePartition],
        source: Source,
        target: Target,
        events: deque[LaneEvent],
        latency: Latencies,
    ) -> None:
        self._transaction = transaction
        """One transaction for ever: it knows the sequences that its last producer has used."""
        self._partitions = partitions
        self._source = source
        self._target = target
        self._events = events
        self._latency = latency

    def begin(self, producer: Producer) -> None:
        self._transaction.begin(producer)

    def joined(self, joined: Joined, now_s: float) -> None:
        self._transaction.joined(joined.transaction, joined.targets, joined.refused)
        if joined.gone and joined.transaction == self._transaction.number:
            self._lose(joined.gone)
        for send in self._active if joined.refused else ():
            reason = joined.refused.get(send.topic_partition)
            if reason is not None:
                send.error = f"takes no part in transactions: {reason}"
                send.retry_at_s = now_s + REFUSED_S

    def _lose(self, gone: Mapping[TopicPartition, range]) -> None:
        """Stop what continues behind offsets that the target has no longer."""
        sends = [send for raw in list(self._partitions.values()) for send in raw.sends]
        for send in sends:
            lost = gone.get(send.topic_partition, range(0))
            end = acknowledged_end(send.window)
            if send.transactional and lost and end is not None and sum(end) > lost.start:
                self._target.went_back(send, lost)

    def seal(self) -> None:
        self._transaction.sealed = True

    def unseal(self) -> None:
        self._transaction.sealed = False

    def wrote_control_records(self, written: ControlRecordsWritten, now_s: float) -> None:
        self._target.gap_filler.written(written, now_s)

    @property
    def settled(self) -> bool:
        return not any(unsettled(send.window) for send in self._active)

    def has_backlog(self, now_s: float) -> bool:
        return any(send.has_backlog(now_s) for send in self._active)

    def set_aside(self, now_s: float) -> str:
        """Discard what does not settle: it is void already, so no late response counts.

        Not at fault is what waits for the markers of the transaction before, or moves over a slow line.
        """
        reasons: list[str] = []
        for send in list(self._active):
            if (
                unsettled(send.window)
                and not send.waits_for_markers
                and not self._moves(send, now_s)
            ):
                node_id = self._target.leader(send)
                self._transaction.set_aside(send.topic_partition, node_id=node_id, now_s=now_s)
                send.error = set_aside_reason(send.error)
                send.window.discard()
                reasons.append(f"{send.partition}: {send.error}")
        return "; ".join(reasons)

    def _moves(self, send: SendSide, now_s: float) -> bool:
        """The target has taken bytes just now, and has refused none."""
        connections = self._target.connections
        via = available(connections, send.via(self._target.leader(send), now_s), now_s)
        connection = connections.connection_to(via, now_s)
        return not send.error and connection is not None and connection.silence_s(now_s) < MOVING_S

    def committed(self) -> None:
        self._transaction.committed()
        count_committed(self._transaction, self._latency)

    def end(self) -> None:
        self._transaction.end()

    def rewind(
        self, partition: Partition, offset: int, leader_epoch: int, *, committed: bool
    ) -> None:
        raw = self._partitions[partition]
        raw.window.discard()
        for send in raw.sends:
            if committed:
                send.window.offsets.commit()
            else:
                send.window.offsets.rewind()
        raw.window.pass_over(offset, leader_epoch)
        self._source.restart(raw.fetch, offset, leader_epoch)

    def markers(self, send: SendSide) -> int:
        """Markers that follow its last batch once the open transaction is committed."""
        return 1 if self._transaction.holds(send) else send.window.markers

    def fail(self, reason: str) -> None:
        self._events.append(TransactionFailed(reason))

    def request_joining(self) -> None:
        """Announce, once a turn, partitions that have something to send for the first time."""
        joining = self._transaction.take_joining()
        if joining:
            ends = {target: end for target, end in joining.items() if end is not None}
            self._events.append(Join(self._transaction.number, frozenset(joining), ends))

    @property
    def _active(self) -> Iterator[SendSide]:
        """Sides that may have something to send in the transaction."""
        return (send for send in self._target.active if send.transactional)


def set_aside_reason(error: str) -> str:
    """The reason for a partition that did not settle, once or again."""
    return error if error.startswith(ASIDE) else f"{ASIDE}: {error or 'no acknowledgement'}"
