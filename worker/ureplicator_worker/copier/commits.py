"""Commits of a route's positions, by the lanes of its partitions.

Data of a handler or a query is, exactly once, in a transaction with its positions (`transaction_committer`).
The positions of all other partitions are committed without data (`committer`): alone, or, while a transaction
of data may be open, with that. One commit is under way at a time.

    no partition with transactions    Committer.work -------------------------------> Commit
    some                              Committer.take --> TransactionCommitter.work --> Commit

The first partition with transactions may join while a commit without data is under way. That ends what the
ownership thread calls the open transaction, so data waits for the producer that its outcome names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.transactions.producers import Producer
from ureplicator_common.model import Partition, Route
from ureplicator_worker.copier.at_least_once import AtLeastOnce
from ureplicator_worker.copier.commit_failures import (
    COMMITS_WAIT_S,
    TRANSACTIONS_WAIT_S,
    CommitFailures,
)
from ureplicator_worker.copier.committer import Committer, Riders
from ureplicator_worker.copier.exactly_once import ExactlyOnce
from ureplicator_worker.copier.lane import Lane, Progress
from ureplicator_worker.copier.lifecycle import OwnedPartition
from ureplicator_worker.copier.messages import Begun, CommitFailed, Committed, FencedOut
from ureplicator_worker.copier.ownership.thread import Ownership
from ureplicator_worker.copier.transaction_committer import TransactionCommitter
from ureplicator_worker.lifeline.measures import TransactionCounts


class Commits:
    def __init__(
        self,
        route: Route,
        *,
        lane: Lane,
        ownership: Ownership,
        commit_interval_s: float,
        transaction_interval_s: float,
        failures: CommitFailures | None = None,
    ) -> None:
        self._failures = failures or CommitFailures(route)
        at_least_once = AtLeastOnce(interval_s=commit_interval_s)
        exactly_once = ExactlyOnce(interval_s=transaction_interval_s)
        self._alone = Committer(delivery=at_least_once, lane=lane, ownership=ownership)
        self._transactions = TransactionCommitter(
            route,
            delivery=exactly_once,
            lane=lane,
            ownership=ownership,
            failures=self._failures,
            riders=Riders(self._alone),
        )
        self._of: Mapping[bool, tuple[Committer | TransactionCommitter, AtLeastOnce | ExactlyOnce]]
        self._of = {False: (self._alone, at_least_once), True: (self._transactions, exactly_once)}
        self._joined: dict[Partition, bool] = {}
        """True for those whose data is in transactions."""
        self._exactly_once = exactly_once

    @property
    def counts(self) -> TransactionCounts:
        return self._exactly_once.counts

    def join(self, begun: Begun, now_s: float) -> None:
        within = begun.grant.settings.is_transactional(begun.partition.topic)
        self._joined[begun.partition] = within
        committer, _ = self._of[within]
        committer.join(begun, now_s)

    def leave(self, partition: Partition, now_s: float) -> None:
        """Let a partition go, before the lane drops it."""
        committer, _ = self._of[self._joined.pop(partition)]
        committer.leave(partition, now_s)

    def confirm(self, partition: Partition) -> None:
        """Commit the position once more, and tell the lane (`ConfirmationNeeded`)."""
        self._alone.confirm(partition)

    def is_stored(self, partition: Partition, progress: Progress) -> bool:
        _, delivery = self._of[self._joined[partition]]
        return delivery.is_stored(partition, progress)

    def offset(self, partition: Partition) -> int:
        """Committed offset; -1 for a partition that has none."""
        if partition not in self._joined:
            return -1
        _, delivery = self._of[self._joined[partition]]
        return delivery.offset(partition)

    def work(self, owned: Collection[OwnedPartition], *, drained: bool, now_s: float) -> None:
        """Commit what is due. `drained`: a partition waits for nothing but that."""
        if self._transactions.in_use:
            self._transactions.work(owned, drained=drained, now_s=now_s)
            return
        self._alone.work(owned, drained=drained, now_s=now_s)
        if self._alone.under_way:
            self._transactions.next = None

    def on_committed(self, event: Committed, now_s: float) -> None:
        """Number 0: first positions, which the ownership thread commits before copying begins."""
        if not event.number or not self._alone.under_way:
            self._transactions.on_committed(event, now_s)
            return
        self._failures.succeeded()
        self._alone.on_committed(event.positions, now_s)
        if event.producer is not None:
            self._transactions.on_begun(event.producer, now_s)

    def on_failed(self, event: CommitFailed, now_s: float) -> None:
        self._aborted(event.number, now_s)
        self._transactions.on_failed(event, now_s)

    def on_fenced(self, event: FencedOut, now_s: float) -> str:
        """Text of what happened, for the log."""
        self._aborted(event.number, now_s)
        return self._transactions.on_fenced(event, now_s)

    def _aborted(self, number: int, now_s: float) -> None:
        """`number`: of the commit that failed; 0 for what is none of them."""
        if number and self._alone.under_way:
            self._alone.aborted(now_s)

    def error(self, now_s: float) -> str:
        """Reason if no commit has succeeded for too long; "" otherwise."""
        wait_s = TRANSACTIONS_WAIT_S if self._transactions.in_use else COMMITS_WAIT_S
        return self._failures.error(now_s, wait_s=wait_s)

    def on_confirmed(self, partition: Partition, stored: Position, now_s: float) -> None:
        """Have transactions go back to what is stored. Without them copying went on meanwhile."""
        self._transactions.on_confirmed(partition, stored, now_s)

    def on_begun(self, producer: Producer, now_s: float) -> None:
        """A transaction may begin, unless a commit that the thread has still before it ends it."""
        if not self._alone.under_way:
            self._transactions.on_begun(producer, now_s)

    def abort(self, reason: str, now_s: float) -> None:
        """The open transaction can only be aborted."""
        self._transactions.abort(reason, now_s)
