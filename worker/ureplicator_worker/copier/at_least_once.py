"""Delivery: the decision when positions are committed, and which. Pure: no I/O, no clock, no thread.

Data is in no transaction: it is sent as it comes, and positions follow in transactions of their own. A
commit that is refused or of unknown outcome costs repeats after a restart, or a count, exactly once.

              seal(progress) -> positions that are due
       OPEN ---------------------------------------------> SEALED
        ^                                                    |
        |  committed(positions): they are the store's        |
        +----------------------------------------------------+
           aborted(): nothing is, as far as is known; the same positions are due again

One commit is under way at a time. It is due every interval, and at once when a partition that is being
drained waits for nothing else; after a failure the latter waits for COMMIT_RETRY_S. A position that did
not change is committed again before the target's retention of offsets lets it expire (RENEW_S).

Delivery in transactions that hold the data, too, has one step more: after an abort the lane goes back to
the positions that were committed, since what it sent beyond them is void.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from ureplicator_common.errors import InvalidTransition
from ureplicator_common.model import Partition
from ureplicator_worker.copier.lane import Progress

RENEW_S = 12 * 3600.0
"""Positions expire on the target after `offsets.retention.minutes` (7 days by default)."""
COMMIT_RETRY_S = 0.2
UNMAPPED_S = 30.0
"""A position that was committed without the offset map is committed again after this time: a partition that
moves meanwhile takes what the map lacks with it."""


class DeliveryState(StrEnum):
    OPEN = "OPEN"
    SEALED = "SEALED"


@dataclass(slots=True)
class CommittedPosition:
    """Commit side of one partition: the stored offset, and its time. `open`: it names a producer. Written by
    the delivery only."""

    offset: int
    at_s: float
    open: bool = False

    def is_due(self, progress: Progress, now_s: float) -> bool:
        """True if the position differs from the stored one, or that is old."""
        return not self.is_stored(progress) or now_s - self.at_s >= RENEW_S

    def is_stored(self, progress: Progress) -> bool:
        return progress.next_offset == self.offset and not (progress.closed and self.open)


def commit_again(
    known: Mapping[Partition, CommittedPosition], partitions: Iterable[Partition], now_s: float
) -> None:
    """Have positions committed again soon, since the offset map lacks a part of them."""
    for partition in known.keys() & set(partitions):
        known[partition].at_s = now_s + UNMAPPED_S - RENEW_S


class AtLeastOnce:
    """`number` of a commit: 1, 2, ...; the outcome of a commit names it."""

    def __init__(self, *, interval_s: float) -> None:
        self.state = DeliveryState.OPEN
        self.number = 0
        self._interval_s = interval_s
        self._due_at_s = 0.0
        self._retry_at_s = 0.0
        self._partitions: dict[Partition, CommittedPosition] = {}

    def join(
        self,
        partition: Partition,
        *,
        position: int,
        found: bool,
        now_s: float,
        open: bool = False,
    ) -> None:
        """A partition whose stored position is `position`.

        `found`: it was stored by a former owner. Its age is unknown, so it is renewed at once. `open`: it
        names the producer that sends what follows.
        """
        at_s = now_s - RENEW_S if found else now_s
        self._partitions[partition] = CommittedPosition(position, at_s, open)

    def renew(self, partition: Partition) -> None:
        """Have the position committed with the next commit, though it may not have changed."""
        self._partitions[partition].at_s = -math.inf

    def leave(self, partition: Partition) -> None:
        self._partitions.pop(partition, None)

    def offset(self, partition: Partition) -> int:
        """Committed offset; -1 for a partition that has not joined."""
        known = self._partitions.get(partition)
        return -1 if known is None else known.offset

    def is_due(self, now_s: float, *, drained: bool) -> bool:
        """True if a commit is due; `drained`: a partition waits for nothing but its commit."""
        if now_s < self._due_at_s and not (drained and now_s >= self._retry_at_s):
            return False
        self._due_at_s = now_s + self._interval_s
        return self.state is DeliveryState.OPEN

    def seal(
        self, lane_progress: Mapping[Partition, Progress], now_s: float
    ) -> dict[Partition, Progress]:
        """Positions to commit. None is due: nothing is sealed."""
        self._expect(DeliveryState.OPEN, "seal")
        due = {
            partition: progress
            for partition, progress in lane_progress.items()
            if self._partitions[partition].is_due(progress, now_s)
        }
        if due:
            self.state = DeliveryState.SEALED
            self.number += 1
        return due

    def committed(
        self,
        number: int,
        offsets: Iterable[tuple[Partition, int]],
        now_s: float,
        *,
        open: Collection[Partition] = (),
    ) -> None:
        """The store has these offsets, those that are `open` with a producer. A partition that left meanwhile
        is none of ours."""
        self._open(number, "committed")
        for partition, offset in offsets:
            if partition in self._partitions:
                position = CommittedPosition(offset, now_s, partition in open)
                self._partitions[partition] = position

    def is_stored(self, partition: Partition, progress: Progress) -> bool:
        """The store has all of the progress of a partition that has joined."""
        return self._partitions[partition].is_stored(progress)

    def complete_map(self, partitions: Iterable[Partition], now_s: float) -> None:
        """See `commit_again`."""
        commit_again(self._partitions, partitions, now_s)

    def aborted(self, number: int, now_s: float) -> None:
        """Note a transaction that was refused, fenced, or is of unknown outcome."""
        self._open(number, "aborted")
        self._retry_at_s = now_s + COMMIT_RETRY_S

    def _open(self, number: int, what: str) -> None:
        self._expect(DeliveryState.SEALED, what)
        if number != self.number:
            raise InvalidTransition(f"commit {number} {what}, {self.number} is under way")
        self.state = DeliveryState.OPEN

    def _expect(self, state: DeliveryState, what: str) -> None:
        if self.state is not state:
            raise InvalidTransition(f"{what} while {self.state}")
