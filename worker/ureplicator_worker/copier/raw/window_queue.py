"""Batches of a partition that wait and that are in flight, with the gaps between them. Pure.

Where offsets are to be the same, a gap of the source waits in the queue like a batch (`send_window`).
"""

from __future__ import annotations

from collections import deque

from ureplicator_worker.copier.raw.batch import Batch
from ureplicator_worker.copier.raw.target_offsets import TargetOffsets

MARKERS_AT_MOST = 10_000
"""Largest gap that is filled in a log that holds records. Brokers write some 600 a second."""


class WindowQueue:
    """`fills`: source offsets without a record are filled; then each batch has no holes. `short`: so many
    offsets are never filled, since they are too many. `sure_end`: the log has surely
    reached it: of many control records in a request the answer names the outcome of the last one."""

    def __init__(self, *, position: int, leader_epoch: int, target_end: int, fills: bool) -> None:
        self.fills = fills
        self.position = position
        self.leader_epoch = leader_epoch
        self.target_end = self.sure_end = target_end
        self.short = 0
        self.offsets = TargetOffsets(position=position, target_end=target_end)
        self.queued_bytes = 0
        self._queue: deque[Batch] = deque()
        self._in_flight: deque[Batch] = deque()

    def push(self, batch: Batch) -> None:
        if not self.fills:
            self._append(batch)
            return
        after, batch.next_offset = batch.next_offset, batch.first_offset + batch.records
        self._leave(batch.first_offset, batch.leader_epoch, seen_from=batch.first_offset)
        self._append(batch)
        self._leave(after, batch.leader_epoch, seen_from=after)

    def _append(self, batch: Batch) -> None:
        self._queue.append(batch)
        self.queued_bytes += len(batch.view)

    def _leave(self, next_offset: int, leader_epoch: int, *, seen_from: int) -> None:
        """Queue the gap up to an offset, if there is one. `seen_from`: see `pass_over`."""
        last = self._last
        end = self.position if last is None else last.next_offset
        if next_offset <= end:
            return
        if last is None or not last.is_gap or not self._queue:
            last = Batch.gap(end, next_offset, leader_epoch)
            self._queue.append(last)
        if last.is_initial:
            self.position = last.first_offset = next_offset
        last.next_offset, last.leader_epoch = next_offset, leader_epoch
        last.hollow |= seen_from > end

    def leave_initial_gap(self, *, begins: bool) -> None:
        """Queue what the target's log is short of before the first batch. As long as nothing waits behind it,
        the position moves with it. `begins`: the target's log is to begin behind it."""
        if begins or (self.fills and self.target_end < self.position - self.short):
            self._queue.append(Batch.gap(self.position, self.position, self.leader_epoch))

    @property
    def _last(self) -> Batch | None:
        if self._queue:
            return self._queue[-1]
        return self._in_flight[-1] if self._in_flight else None

    def pass_over(
        self, next_offset: int, leader_epoch: int, *, seen_from: int | None = None
    ) -> None:
        """Source offsets up to here hold nothing to send. `seen_from`: the source still holds all from there
        on, markers or what was aborted, which nobody has copied."""
        last = self._last
        if self.fills:
            seen_from = next_offset if seen_from is None else seen_from
            self._leave(next_offset, leader_epoch, seen_from=seen_from)
        elif last is None:
            self.position, self.leader_epoch = next_offset, leader_epoch
        else:
            last.next_offset, last.leader_epoch = next_offset, leader_epoch

    @property
    def last_gap(self) -> Batch | None:
        """The gap that was found last, if nothing was fetched behind it."""
        last = self._last
        return last if last is not None and last.is_gap else None

    @property
    def due_gap(self) -> Batch | None:
        """The gap that is to be filled before anything else is sent."""
        head = self.head
        return head if head is not None and head.is_gap and not self._in_flight else None

    def missing_before(self, gap: Batch) -> int:
        """Offsets that the target's log is short of those of the source behind a gap."""
        return max(0, gap.next_offset - self.short - self.target_end)

    def begin_gap(self) -> Batch:
        """The due gap, in flight: what fills it is requested."""
        assert self.due_gap is not None
        gap = self._queue.popleft()
        gap.settled = gap.acknowledged = False
        self._in_flight.append(gap)
        return gap

    def filled(self, gap: Batch, offsets: int) -> None:
        """So many offsets of the target were filled; the rest of the gap waits again."""
        self._in_flight.remove(gap)
        self.target_end += offsets
        if offsets == 1:
            self.sure_end = self.target_end
        self.offsets.pass_over(self.target_end)
        if self.missing_before(gap):
            self._queue.appendleft(gap)
        else:
            self.position, self.leader_epoch = gap.next_offset, gap.leader_epoch

    def put_first(self, filler: Batch) -> None:
        """Send a filler before the due gap."""
        assert self.due_gap is not None
        self._queue.appendleft(filler)
        self.queued_bytes += len(filler.view)

    @property
    def head(self) -> Batch | None:
        """The batch to be sent next."""
        return self._queue[0] if self._queue else None
