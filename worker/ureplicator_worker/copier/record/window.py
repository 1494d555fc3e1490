"""Records of a partition between fetch and acknowledgement, and its position. Pure.

    keep()          take()            handled(next_offset, outputs)       settled()
    -----> waiting -------> handling -------------------------------> parts -------> position
              ^                | give_back(): its process was lost
              +----------------+

Stored batches wait, go to the handler as a *chunk*, and come back as *parts*: the outputs of a range of the
source, each sent in the window of its target partition. Those windows advance independently; so a part
counts its outputs that are not acknowledged. `position` passes a part when it has none left and all parts
before it are passed: one target partition that is slow holds the position, and the other targets go on
(KIP-3). A part without outputs (everything was filtered) is passed at once, so an idle target holds nothing.

A transaction ends at a part: with the first batch of a part, the rest of it and everything before it belong
to the transaction (`OutputBatch.goes_on`). While it is sealed nothing else is sent (`may_begin`). So that it
settles soon, no target is further ahead of another than PARTS_AHEAD.

To the source this is the window that it fills (`raw.partition`).
"""

from __future__ import annotations

from collections import deque

from ureplicator_worker.copier.net.buffers import Lease
from ureplicator_worker.copier.raw.batch import Batch
from ureplicator_worker.copier.raw.send_window import NEVER_MS, SendWindow

CHUNK_BYTES = 256 << 10
"""Bytes of stored batches for a handler; a larger one is a chunk alone."""
QUERY_CHUNK_BYTES = 1 << 20
"""Bytes of those for a query. The records of a chunk are put into batches all at once: with 1 KB records a
chunk of 256 KiB costs 1.7 microseconds for each, one of 1 MiB costs 1.0, and a larger one hardly less."""
PARTS_AHEAD = 10
"""Parts of one partition in a transaction; each chunk has at least two."""


class Stored:
    """A fetched batch, in memory of its own. Only its records from `position` on are to be copied.

    `next_offset`, `leader_epoch`: behind what follows it without records; `epoch` is that of the batch.
    """

    __slots__ = ("epoch", "leader_epoch", "lease", "next_offset", "position")

    def __init__(self, lease: Lease, *, position: int, next_offset: int, leader_epoch: int) -> None:
        self.lease = lease
        self.position = position
        self.next_offset = next_offset
        self.epoch = self.leader_epoch = leader_epoch

    @property
    def size_bytes(self) -> int:
        return len(self.lease.view)


class Chunk:
    """Batches of one leader epoch at the handler. `handled`: results came for everything before it.
    `void`: results that still come are discarded."""

    __slots__ = ("batches", "handled", "void")

    def __init__(self, batches: list[Stored]) -> None:
        self.batches = batches
        self.handled = batches[0].position
        self.void = False

    @property
    def next_offset(self) -> int:
        return self.batches[-1].next_offset

    @property
    def leader_epoch(self) -> int:
        return self.batches[-1].leader_epoch

    @property
    def size_bytes(self) -> int:
        return sum(stored.size_bytes for stored in self.batches)

    def release(self) -> None:
        for stored in self.batches:
            stored.lease.release()


class Part:
    """A handled range of the source up to `next_offset`, while outputs of it are `pending`.

    `number`: 1, 2, ... in the order of the source.
    """

    __slots__ = ("leader_epoch", "next_offset", "number", "pending", "window")

    def __init__(
        self, window: RecordWindow, number: int, *, next_offset: int, leader_epoch: int
    ) -> None:
        self.window = window
        self.number = number
        self.next_offset = next_offset
        self.leader_epoch = leader_epoch
        self.pending = 0


class OutputBatch(Batch):
    __slots__ = ("part",)

    part: Part

    def goes_on(self, *, begin: bool) -> bool:
        """The position stands before what was sent as long as anything before it, or of the same part,
        was not."""
        window = self.part.window
        last = window.unsettled_number + PARTS_AHEAD - 1 if begin else window.begun
        return self.sequence >= 0 or self.part.number <= max(last, window.begun)


class OutputWindow(SendWindow):
    """Outputs of one source partition for one target partition."""

    def __init__(self, owner: RecordWindow, *, position: int = 0, target_end: int = -1) -> None:
        super().__init__(position=position, leader_epoch=-1, target_end=target_end)
        self._owner = owner

    def next(self, expired_ms: int = NEVER_MS) -> Batch | None:
        head = self.head if self._transactional else None
        if head is not None and not head.goes_on(begin=self.may_begin):
            return None
        batch = super().next(expired_ms)
        if batch is not None:
            assert isinstance(batch, OutputBatch)
            self._owner.begun = max(self._owner.begun, batch.part.number)
        return batch

    def _advance(self, batch: Batch) -> None:
        super()._advance(batch)
        self._owner.settled(batch, 1)

    def replace_head(self, replacements: list[Batch], *, next_offset: int) -> None:
        """A refused batch is split or skipped: its part has other outputs now."""
        head = self.head
        assert isinstance(head, OutputBatch)
        outputs = [output_of(batch, head.part) for batch in replacements]
        super().replace_head(list(outputs), next_offset=next_offset)
        self._owner.settled(head, 1)


def output_of(batch: Batch, part: Part) -> OutputBatch:
    """The batch as an output of a part, which waits for it."""
    output = OutputBatch(
        batch.view,
        lease=batch.lease,
        first_offset=batch.first_offset,
        next_offset=batch.next_offset,
        leader_epoch=batch.leader_epoch,
        records=batch.records,
        max_timestamp_ms=batch.max_timestamp_ms,
        offsets=batch.offsets,
    )
    output.part = part
    part.pending += 1
    return output


class RecordWindow:
    """`outputs`: the windows of the target partitions; the first is that of the partition's own."""

    def __init__(
        self,
        *,
        position: int,
        leader_epoch: int,
        target_end: int,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self._chunk_bytes = chunk_bytes
        self.position = position
        self.leader_epoch = leader_epoch
        self.own = OutputWindow(self, position=position, target_end=target_end)
        self.outputs: list[OutputWindow] = [self.own]
        self._waiting: deque[Stored] = deque()
        self._handling: deque[Chunk] = deque()
        self._parts: deque[Part] = deque()
        self._numbered = 0
        self.begun = 0
        """Number of the last part of which something was sent."""

    @property
    def empty(self) -> bool:
        return not (self._waiting or self._handling or self._parts)

    @property
    def queued_bytes(self) -> int:
        fetched = sum(stored.size_bytes for stored in self._waiting)
        return fetched + sum(chunk.size_bytes for chunk in self._handling) + self.output_bytes

    @property
    def unsettled_number(self) -> int:
        """Number of the first part that is not passed."""
        return self._parts[0].number if self._parts else self._numbered + 1

    @property
    def output_bytes(self) -> int:
        return sum(window.queued_bytes for window in self.outputs)

    def output(self) -> OutputWindow:
        """A window for another target partition."""
        self.outputs.append(OutputWindow(self))
        return self.outputs[-1]

    def keep(self, lease: Lease, *, position: int, next_offset: int, leader_epoch: int) -> None:
        """A fetched batch, from a position on."""
        self._waiting.append(
            Stored(lease, position=position, next_offset=next_offset, leader_epoch=leader_epoch)
        )

    def pass_over(self, next_offset: int, leader_epoch: int) -> None:
        """Source offsets up to here hold nothing to handle."""
        last = self._last()
        if last is None:
            self.position, self.leader_epoch = next_offset, leader_epoch
        else:
            last.next_offset, last.leader_epoch = next_offset, leader_epoch

    def _last(self) -> Stored | Part | None:
        if self._waiting:
            return self._waiting[-1]
        if self._handling:
            return self._handling[-1].batches[-1]
        return self._parts[-1] if self._parts else None

    @property
    def waits(self) -> bool:
        """Something is to be handled."""
        return bool(self._waiting)

    def take(self) -> Chunk:
        """The next chunk for the handler."""
        batches = [self._waiting.popleft()]
        size = batches[0].size_bytes
        while self._waiting:
            following = self._waiting[0]
            size += following.size_bytes
            if size > self._chunk_bytes or following.epoch != batches[0].epoch:
                break
            batches.append(self._waiting.popleft())
        chunk = Chunk(batches)
        self._handling.append(chunk)
        return chunk

    def handled(self, chunk: Chunk, next_offset: int) -> Part | None:
        """A part of the chunk, up to `next_offset`; its outputs are to be added (`output_of`), and then
        `advance` called. None: the chunk is void."""
        if chunk.void:
            return None
        assert chunk is self._handling[0], "results are in order"
        chunk.handled = max(chunk.handled, next_offset)
        return self._part(next_offset=chunk.handled, leader_epoch=chunk.batches[0].epoch)

    def _part(self, *, next_offset: int, leader_epoch: int) -> Part:
        self._numbered += 1
        part = Part(self, self._numbered, next_offset=next_offset, leader_epoch=leader_epoch)
        self._parts.append(part)
        return part

    def done(self, chunk: Chunk) -> None:
        """All results of the chunk are here."""
        if chunk.void:
            return
        assert chunk is self._handling[0], "results are in order"
        self._handling.popleft()
        chunk.release()
        self._part(next_offset=chunk.next_offset, leader_epoch=chunk.leader_epoch)
        self.advance()

    def give_back(self, chunk: Chunk) -> None:
        """The last chunk that was taken waits again, from where results end: its process was lost."""
        if chunk.void:
            return
        assert chunk is self._handling[-1], "the last is given back first"
        self._handling.pop()
        for stored in chunk.batches:
            stored.position = max(stored.position, chunk.handled)
        self._waiting.extendleft(reversed(chunk.batches))

    def settled(self, batch: Batch, count: int) -> None:
        """Outputs were acknowledged, or skipped."""
        assert isinstance(batch, OutputBatch)
        batch.part.pending -= count
        assert batch.part.pending >= 0
        if not batch.part.pending:
            self.advance()

    def advance(self) -> None:
        """Pass the parts that are settled, up to the first that is not."""
        while self._parts and not self._parts[0].pending:
            part = self._parts.popleft()
            self.position, self.leader_epoch = part.next_offset, part.leader_epoch

    def shed(self) -> tuple[int, int] | None:
        """Give up what waits; it is to be fetched again from the offset and leader epoch returned."""
        if not self._waiting:
            return None
        drop(self._waiting)
        last = self._last()
        if last is None:
            return self.position, self.leader_epoch
        return last.next_offset, last.leader_epoch

    def finish(self) -> None:
        """Give up what has no outputs yet: nothing but what is on its way to the target remains."""
        drop(self._waiting)
        for chunk in self._handling:
            chunk.void = True
            chunk.release()
        self._handling.clear()

    def discard(self) -> None:
        """Discard everything that is not acknowledged."""
        self.finish()
        self._parts.clear()
        for window in self.outputs:
            window.discard()


def drop(waiting: deque[Stored]) -> None:
    for stored in waiting:
        stored.lease.release()
    waiting.clear()
