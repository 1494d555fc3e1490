"""Transactions of a route, for partitions with a handler or a query: `exactly_once` decides, the lane sends,
the ownership thread commits.

    work()   due ------------> transactions.seal(), riders.take()
             transactions.settled ---> Commit(positions of all that was sent, and of the riders)
             overdue ---------> transactions.set_aside(), Abort
    events   Committed ------> transactions.begin(the next producer)
             failed, fenced -> transactions.end(); the thread initialises the id and asks for the proof
             Committed after our abort -> transactions.begin if the next producer is another: then the abort
                               has no effect; else the thread performs it, and nothing begins before
             OwnershipConfirmed(stored) -> transactions.rewind(stored), each partition
             TransactionBegun ----------> transactions.begin

What is in a transaction without its position must not be committed: the next owner would copy it again. So
a partition that leaves while something of it is uncommitted aborts the transaction.

*Riders* are positions of the other partitions, whose data is in no transaction: committed alone they would
end this one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.transactions.producers import Producer
from ureplicator_common.model import TRANSACTION_TIMEOUT_MS, Partition, Route
from ureplicator_worker.copier.commit_failures import CommitFailures
from ureplicator_worker.copier.committer import MappedSegments, Riders, commitment, unmapped
from ureplicator_worker.copier.exactly_once import (
    SETTLE_S,
    ExactlyOnce,
    TransactionState,
)
from ureplicator_worker.copier.lane import Lane, Progress
from ureplicator_worker.copier.lifecycle import IN_LANE, OwnedPartition
from ureplicator_worker.copier.messages import (
    Abort,
    Begun,
    Commit,
    CommitFailed,
    Committed,
    FencedOut,
)
from ureplicator_worker.copier.ownership.thread import Ownership

UNSENT = (TransactionState.OPEN, TransactionState.SEALING)
"""States in which no commit is under way, and a transaction may be open."""

logger = logging.getLogger(__name__)


class TransactionCommitter:
    """`next`: the producer under which a transaction may begin; None: not before one is known."""

    def __init__(
        self,
        route: Route,
        *,
        delivery: ExactlyOnce,
        lane: Lane,
        ownership: Ownership,
        failures: CommitFailures,
        riders: Riders,
    ) -> None:
        self._route = route
        self._delivery = delivery
        self._lane = lane
        self._ownership = ownership
        self._failures = failures
        self._riders = riders
        self._begun: dict[Partition, Begun] = {}
        self._requested: dict[Partition, int] = {}
        """Positions of the last commit whose outcome is not known."""
        self._maps = MappedSegments(lane)
        self._producer: Producer | None = None
        self.next: Producer | None = None
        self._aborted = False
        """Nothing worse than an abort of our own since the last commit or begin."""

    @property
    def in_use(self) -> bool:
        """A transaction may be open."""
        return bool(self._begun) or self._delivery.state is TransactionState.COMMITTING

    def join(self, begun: Begun, now_s: float) -> None:
        self._begun[begun.partition] = begun
        committed = begun.beginning.committed
        self._delivery.join(begun.partition, committed=committed, now_s=now_s)
        self._begin_next(now_s)

    def leave(self, partition: Partition, now_s: float) -> None:
        """Let a partition go, before the lane drops it."""
        (progress,) = self._lane.progress([partition]).values()
        stored = self._delivery.offset(partition)
        if self._delivery.state in UNSENT and (
            progress.next_offset != stored or not progress.exact
        ):
            self.abort(f"{partition} leaves before it is committed", now_s)
        del self._begun[partition]
        self._requested.pop(partition, None)
        self._maps.leave(partition)
        self._delivery.leave(partition)
        if not self._begun and self._delivery.state in UNSENT:
            self._stop(self._producer, now_s)

    def work(self, owned: Iterable[OwnedPartition], *, drained: bool, now_s: float) -> None:
        if self._delivery.is_due(now_s, drained=drained or self._riders.pressing):
            self._riders.take(owned, drained=drained, now_s=now_s)
            if self._riders.taken or self._due(owned, now_s):
                self._delivery.seal(now_s)
                self._lane.transactions.seal()
            else:
                self._delivery.put_off(now_s, empty=self._lane.transactions.settled)
        if self._delivery.state is TransactionState.SEALING and self._lane.transactions.settled:
            self._commit(owned, now_s)
        elif self._delivery.is_overdue(now_s):
            failing = self._lane.transactions.set_aside(now_s)
            if failing:
                reason = f"not settled in {SETTLE_S:.0f} s: {failing}"
                self.abort(reason, now_s, waited_s=SETTLE_S)

    def _due(self, owned: Iterable[OwnedPartition], now_s: float) -> dict[Partition, Progress]:
        """Positions of everything in the lane: a suspended partition was aborted with the rest."""
        in_lane = [
            held.partition
            for held in owned
            if held.state in IN_LANE and held.partition in self._begun
        ]
        return self._delivery.due(self._lane.progress(in_lane), now_s)

    def _commit(self, owned: Iterable[OwnedPartition], now_s: float) -> None:
        due = self._due(owned, now_s)
        if not self._delivery.commit(due.keys() | self._riders.taken.keys(), now_s):
            self._lane.transactions.unseal()
            return
        commitments = {
            partition: commitment(self._begun[partition], progress, self._maps)
            for partition, progress in due.items()
        }
        self._requested = {partition: item.position for partition, item in commitments.items()}
        positions = {**commitments, **self._riders.put()}
        self._ownership.put(Commit(positions, self._delivery.number))

    def on_committed(self, event: Committed, now_s: float) -> None:
        """Number 0: first positions. The delivery changes with the partition that begins at them."""
        self._failures.succeeded()
        if not event.number:
            return
        self._riders.on_committed(event.positions, now_s)
        self._requested = {}
        positions = {part: item for part, item in event.positions.items() if part in self._begun}
        self._maps.committed(positions)
        offsets = ((part, item.position) for part, item in positions.items())
        if self._is_void(event.producer):
            self._lane.transactions.committed()
            for partition, offset in offsets:
                self._delivery.restore(partition, offset=offset, now_s=now_s)
            self._delivery.complete_map(unmapped(positions), now_s)
            return
        backlog = self._lane.transactions.has_backlog(now_s)
        self._delivery.committed(event.number, offsets, now_s, backlog=backlog)
        self._delivery.complete_map(unmapped(positions), now_s)
        self._lane.transactions.committed()
        if event.producer is None or not self._begun:
            self._stop(event.producer, now_s)
        else:
            self._begin(event.producer)

    def _is_void(self, following: Producer | None) -> bool:
        """The transaction was committed before the thread had our abort, which it performs then: the id is
        initialised again, unless the next transaction has another producer."""
        waiting = self._delivery.state is TransactionState.WAITING
        return waiting and following == self._producer

    def on_failed(self, event: CommitFailed, now_s: float) -> None:
        self._failures.failed(event.reason, now_s, waited_s=event.waited_s)
        self._aborted = False
        self._end(now_s)
        self._riders.on_failed(event.number, now_s)

    def on_fenced(self, event: FencedOut, now_s: float) -> str:
        """Text of what happened, for the log."""
        why = self._explained(f"fenced ({event.reason})", now_s)
        self._end(now_s)
        self._riders.on_failed(event.number, now_s)
        return why

    def _explained(self, reason: str, now_s: float) -> str:
        """The reason with the cause of an error that a coordinator tells like the loss of ownership."""
        if not self._delivery.has_expired(now_s):
            return reason
        return (
            f"{reason}: the transaction was open for longer than its time-out of"
            f" {TRANSACTION_TIMEOUT_MS // 1_000} s, after which the target aborts it; look for a worker that"
            " was stopped or had no processor, or a slow target"
        )

    def abort(self, reason: str, now_s: float, *, waited_s: float = 0.0) -> None:
        """The thread initialises the id again, unless it does already."""
        if self._delivery.state is not TransactionState.WAITING:
            reason = self._explained(reason, now_s)
            self._failures.failed(reason, now_s, waited_s=waited_s)
            self._aborted = True
            logger.warning(
                "%s: transaction %d aborted: %s", self._route, self._delivery.number, reason
            )
            assert self._producer is not None
            self._ownership.put(Abort(self._producer))
            self._end(now_s)

    def _end(self, now_s: float) -> None:
        self._delivery.abort()
        self._close(None, now_s)

    def _stop(self, following: Producer | None, now_s: float) -> None:
        """No partition is left. `following`: the next transaction may begin under it."""
        self._delivery.abort(empty=True)
        self._close(following, now_s)

    def _close(self, following: Producer | None, now_s: float) -> None:
        self._lane.transactions.end()
        self.next = following
        self._riders.left(now_s)

    def on_confirmed(self, partition: Partition, stored: Position, now_s: float) -> None:
        """Go back to the stored position, or to the first one if no transaction was committed yet: it may lie
        behind the stored one, where a lost owner has sent without transactions what is counted."""
        begun = self._begun.get(partition)
        if begun is None:
            return
        assert self._delivery.state is TransactionState.WAITING, "a transaction is open"
        committed = stored.offset == self._requested.get(partition)
        self._delivery.restore(partition, offset=stored.offset, now_s=now_s)
        start = begun.beginning
        place = start.position, start.leader_epoch
        if stored.offset >= 0 and stored.offset != start.committed:
            place = stored.offset, stored.leader_epoch
        self._lane.transactions.rewind(partition, *place, committed=committed)

    def on_begun(self, producer: Producer, now_s: float) -> None:
        if self._delivery.state is TransactionState.WAITING:
            self.next = producer
            self._begin_next(now_s)
            if self._aborted:  # else only a commit shows that commits succeed
                self._failures.succeeded()

    def _begin_next(self, now_s: float) -> None:
        """Nothing is sent without partitions, so no transaction begins."""
        waiting = self._delivery.state is TransactionState.WAITING
        if waiting and self._begun and self.next is not None:
            self._delivery.begin(now_s)
            self._requested = {}
            self._begin(self.next)

    def _begin(self, producer: Producer) -> None:
        self._producer, self.next = producer, None
        self._lane.transactions.begin(producer)
