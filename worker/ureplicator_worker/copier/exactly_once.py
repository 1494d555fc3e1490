"""Exactly once, of handlers and queries: data and positions are in one transaction of the slot. Pure.

      begin(): a producer                seal(): due           commit(positions)
    WAITING -----------------> OPEN -----------------> SEALING -----------------> COMMITTING
       ^                        |  ^                      |                          |   |
       |      abort()           v  |      abort()         v         abort()          |   |
       +------------------------+--(----------------------+--------------------------+   |
                                   |                 committed(number, offsets)          |
                                   +-----------------------------------------------------+

OPEN        the lane sends
SEALING     it sends nothing new, and waits for what is in flight, `SETTLE_S` at most; it fetches on
COMMITTING  the positions behind all that was sent are committed with it
WAITING     the transaction is aborted, or of unknown outcome. The id is initialised again, which ends it,
            and only the positions that the store then shows are known to be committed: `restore`. What was
            sent beyond them is void, and is fetched again.

A transaction is sealed every interval while there is something to commit, and at once when a partition that
is being drained waits for nothing else. A record is to be visible within the interval, its commit included;
so the time between two seals is shorter by what commits take, up to half of it. The interval grows with the
number of partitions, since a commit costs something for each (`PARTITIONS_PER_INTERVAL`). While there is a
backlog it grows with the time that commits take, since nothing is sent meanwhile (`COMMIT_SHARE`). It ends
long before the coordinator aborts the transaction (`MAX_TRANSACTION_INTERVAL_MS`).

A transaction that does not settle in time is aborted: the partitions that hold it up are set aside, the
others go on without them.

Source: KIP-98, KIP-447 for positions in the transaction of the data, KIP-890 for what a commit returns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum

from ureplicator_common.errors import InvalidTransition
from ureplicator_common.model import (
    MAX_TRANSACTION_INTERVAL_MS,
    TRANSACTION_TIMEOUT_MS,
    Partition,
)
from ureplicator_worker.copier.at_least_once import RENEW_S, CommittedPosition, commit_again
from ureplicator_worker.copier.lane import Progress
from ureplicator_worker.lifeline.measures import TransactionCounts

PARTITIONS_PER_INTERVAL = 200
COMMIT_SHARE = 0.05
"""Part of the time that is spent on commits while there is a backlog."""
LONGEST_INTERVALS = 10
"""A commit that takes longer still makes no transaction longer than so many intervals."""
COMMIT_WEIGHT = 0.25
"""Weight of the last commit in the mean of all: a single slow one changes little."""
SETTLE_S = 10.0
"""Nothing new is sent meanwhile, so it is short. But a leader that is lost is replaced within it
(`broker.session.timeout.ms`, 9 s by default): before that the coordinator cannot end a transaction with its
partitions either. And the coordinator aborts a transaction much later (`TRANSACTION_TIMEOUT_MS`)."""


LONGEST_S = MAX_TRANSACTION_INTERVAL_MS / 1_000
IN_FLIGHT_S = 1.0
"""Time until the next look, after one that has found nothing but batches without an acknowledgement."""


class TransactionState(StrEnum):
    WAITING = "WAITING"
    OPEN = "OPEN"
    SEALING = "SEALING"
    COMMITTING = "COMMITTING"


TRANSITIONS = frozenset(
    {
        (TransactionState.WAITING, TransactionState.OPEN),
        (TransactionState.OPEN, TransactionState.SEALING),
        (TransactionState.SEALING, TransactionState.OPEN),
        (TransactionState.SEALING, TransactionState.COMMITTING),
        (TransactionState.COMMITTING, TransactionState.OPEN),
        *((state, TransactionState.WAITING) for state in TransactionState),
    }
)


class ExactlyOnce:
    """`number` of a transaction: 1, 2, ...; the outcome of a commit names it."""

    def __init__(self, *, interval_s: float) -> None:
        self.state = TransactionState.WAITING
        self.number = 0
        self.counts = TransactionCounts()
        self._interval_s = interval_s
        self._due_at_s = 0.0
        self._settle_by_s = 0.0
        self._sealed_at_s = 0.0
        self._open_since_s = 0.0
        self._commit_s = 0.0
        """Mean time of a commit, from the seal on."""
        self._partitions: dict[Partition, CommittedPosition] = {}

    def join(self, partition: Partition, *, committed: int, now_s: float) -> None:
        """A partition whose stored position is `committed`, of unknown age, so it is renewed soon; -1: the
        next transaction stores the first one."""
        self._partitions[partition] = CommittedPosition(committed, now_s - RENEW_S)

    def leave(self, partition: Partition) -> None:
        self._partitions.pop(partition, None)

    def offset(self, partition: Partition) -> int:
        """Committed offset; -1 for a partition that has none."""
        known = self._partitions.get(partition)
        return -1 if known is None else known.offset

    def is_stored(self, partition: Partition, progress: Progress) -> bool:
        """The store has all of the progress of a partition that has joined."""
        return progress.next_offset == self.offset(partition)

    def restore(self, partition: Partition, *, offset: int, now_s: float) -> None:
        """The store shows this after the transaction has ended."""
        if partition in self._partitions:
            self._partitions[partition] = CommittedPosition(offset, now_s)

    def complete_map(self, partitions: Iterable[Partition], now_s: float) -> None:
        """See `commit_again`."""
        commit_again(self._partitions, partitions, now_s)

    def begin(self, now_s: float) -> None:
        """A transaction may begin: the id was initialised, and the positions are restored."""
        self._move(TransactionState.OPEN)
        self._open_since_s = now_s
        self._set_due(now_s, since_s=now_s)

    def is_due(self, now_s: float, *, drained: bool) -> bool:
        """True if the open transaction is to be sealed, should there be anything to commit."""
        return self.state is TransactionState.OPEN and (drained or now_s >= self._due_at_s)

    def due(
        self, lane_progress: Mapping[Partition, Progress], now_s: float
    ) -> dict[Partition, Progress]:
        """Positions that differ from the stored ones, or are old."""
        return {
            partition: progress
            for partition, progress in lane_progress.items()
            if self._partitions[partition].is_due(progress, now_s)
        }

    def put_off(self, now_s: float, *, empty: bool) -> None:
        """Nothing was due: positions are compared once an interval, not at each turn of the loop. `empty`:
        the transaction holds nothing, nor does anything of it wait for an acknowledgement."""
        if empty:
            self._open_since_s = now_s
            self._set_due(now_s, since_s=now_s)
        else:
            self._due_at_s = now_s + min(self._spread_interval_s, IN_FLIGHT_S)

    def seal(self, now_s: float) -> None:
        self._move(TransactionState.SEALING)
        self._sealed_at_s = now_s
        self._settle_by_s = now_s + SETTLE_S

    def is_overdue(self, now_s: float) -> bool:
        """True if what is in flight has held up the commit for too long."""
        return self.state is TransactionState.SEALING and now_s >= self._settle_by_s

    def commit(self, partitions: Collection[Partition], now_s: float) -> bool:
        """Nothing is in flight any more. False if there is nothing to commit: the transaction goes on."""
        if not partitions:
            self._move(TransactionState.OPEN)
            self._open_since_s = now_s
            self._set_due(now_s, since_s=self._sealed_at_s)
            return False
        self._move(TransactionState.COMMITTING)
        self.number += 1
        return True

    def committed(
        self,
        number: int,
        offsets: Iterable[tuple[Partition, int]],
        now_s: float,
        *,
        backlog: bool = False,
    ) -> None:
        """Note that these positions are the store's; the next transaction is open. `backlog`: much
        waits to be sent in it."""
        if number != self.number:
            raise InvalidTransition(f"transaction {number} committed, {self.number} is under way")
        self._move(TransactionState.OPEN)
        self._open_since_s = now_s
        commit_s = now_s - self._sealed_at_s
        longest_s = LONGEST_INTERVALS * self._spread_interval_s * COMMIT_SHARE
        self._commit_s += COMMIT_WEIGHT * (min(commit_s, longest_s) - self._commit_s)
        done, aborted, total_ms = self.counts
        self.counts = TransactionCounts(done + 1, aborted, total_ms + round(commit_s * 1_000))
        self._set_due(now_s, since_s=self._sealed_at_s, backlog=backlog)
        for partition, offset in offsets:
            self.restore(partition, offset=offset, now_s=now_s)

    def abort(self, *, empty: bool = False) -> None:
        """Nothing of the transaction counts, as far as is known. `empty`: there was nothing in it."""
        if self.state is not TransactionState.WAITING and not empty:
            self.counts = self.counts._replace(aborted=self.counts.aborted + 1)
        self._move(TransactionState.WAITING)

    def _set_due(self, now_s: float, *, since_s: float, backlog: bool = False) -> None:
        interval_s = self._spread_interval_s
        if backlog:
            after_s = max(interval_s, self._commit_s / COMMIT_SHARE)
        else:
            after_s = max(interval_s - self._commit_s, interval_s / 2)
        self._due_at_s = max(now_s, min(since_s + after_s, self._open_since_s + LONGEST_S))

    @property
    def _spread_interval_s(self) -> float:
        spread_s = self._interval_s * max(1.0, len(self._partitions) / PARTITIONS_PER_INTERVAL)
        return min(spread_s, LONGEST_S)

    def has_expired(self, now_s: float) -> bool:
        """True if the coordinator has aborted the transaction, for all that is known here."""
        open_s = now_s - self._open_since_s
        return (
            self.state is not TransactionState.WAITING and open_s >= TRANSACTION_TIMEOUT_MS / 1_000
        )

    def _move(self, to: TransactionState) -> None:
        if (self.state, to) not in TRANSITIONS:
            raise InvalidTransition(f"transaction {self.number}: {self.state} -> {to}")
        self.state = to
