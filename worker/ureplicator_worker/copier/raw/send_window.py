"""Sending one partition's batches in order, exactly as an idempotent producer may. Pure.

    queue ----next()----> in flight ----acknowledged()----> position
      ^                        |
      +------ settled ---------+  lost(): wait until all in flight are settled, then send again, in
                                  order, the same bytes with the same sequences

The rules, and why:

* A producer id that a broker does not know may begin at any sequence. So if the first of several batches
  in flight is lost, the second is taken for the beginning, and the first stays out of order. Hence one
  in flight until the first acknowledgement under a producer id and after each disturbance; then up to
  five, as many as a broker remembers for recognising duplicates.
* Brokers forget a producer that long appended nothing (`producer.id.expiration.ms`), by the time of the
  last batch that they appended, not by the time of its arrival: when old data is copied they may forget it
  between any two batches. Hence one in flight, too, next to a batch whose time is older than that, and
  after a pause. And the outcome of a try is in doubt as soon as any batch that was sent since is so old.
* A batch of unknown outcome is sent again from memory with the same sequence: the broker recognises a
  duplicate. Fetched again it might have other boundaries, and would not be recognised.
* Sequences are assigned when a batch is first sent, so that waiting batches can be stamped again at no
  cost when a broker has lost our producer's state and a new producer id is needed (`restart`).
* Where offsets are to be the same (`fills`), each source offset without a record takes one at the target: a
  *gap* waits in the queue like a batch, without bytes, and nothing is in flight beside it (`gap_filling`).
* After a batch was refused permanently and taken out, those behind it were refused too (their sequences
  do not follow): they are renumbered from its sequence. But brokers check a batch before they look for its
  duplicate. If the outcome of a former try is unknown (`may_be_there`), the next batch under its sequence
  would be taken for the duplicate, and be lost: then what follows needs another producer.

`position` is the next source offset after everything acknowledged without a gap, and after what needed
no sending (`pass_over`). `target_end` is the next offset of the target's log after the last of it;
`offsets` knows where the records before it lie (`target_offsets`).

Batches are appended in order, so each begins at `target_end` or behind it, recognised duplicates too. One
that begins before it shows that the log is another one, or lost records (`acknowledged`). It is judged in
order: a batch whose outcome was unknown may be acknowledged after its successors.
"""

from __future__ import annotations

from itertools import pairwise, takewhile

from ureplicator_worker.batches.header import next_sequence, stamp
from ureplicator_worker.batches.merge_rules import FAR_MERGED_BYTES
from ureplicator_worker.copier.position_values import AcknowledgedEnd
from ureplicator_worker.copier.raw.batch import UNKNOWN_OFFSET, Batch
from ureplicator_worker.copier.raw.window_queue import WindowQueue

MAX_IN_FLIGHT_NEW_PRODUCER = 1
MAX_IN_FLIGHT_BATCHES = 5
NEVER_MS = -(1 << 63)


class SendWindow(WindowQueue):
    """`missing`: records that the target lost, before it was decided to go on without them. `markers`: of
    committed transactions, that follow at `target_end`. `merged_bytes`: limit for batches that are merged;
    lower where the target refused one as too large. `far_bytes`: the same where the broker that they are
    sent to is far away, else 0. `proven`: the target has acknowledged something. `limit`: most batches in
    flight."""

    def __init__(
        self,
        *,
        position: int,
        leader_epoch: int,
        target_end: int = UNKNOWN_OFFSET,
        fills: bool = False,
    ) -> None:
        super().__init__(
            position=position, leader_epoch=leader_epoch, target_end=target_end, fills=fills
        )
        self.markers = 0
        self.missing = 0
        self.merged_bytes = FAR_MERGED_BYTES
        self.far_bytes = 0
        self.proven = False
        self.limit = MAX_IN_FLIGHT_NEW_PRODUCER
        self._appended_ms = NEVER_MS
        self._disturbed = False
        self.producer: tuple[int, int] | None = None
        self._transactional = False
        self.may_begin = True
        """False: of outputs that belong together only the rest is sent (`record.window`)."""
        self.next_sequence = 0
        """Sequence of the next batch that is sent for the first time."""
        self.acknowledged_sequence = 0
        """Sequence behind `position`."""
        self._discarded_sent = False
        self.astray = False
        """A batch of this producer may be under way on a connection that is lost."""

    @property
    def empty(self) -> bool:
        return not self._queue and not self._in_flight

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def uncertain(self) -> bool:
        """Something may be appended that is not acknowledged."""
        waiting = any(batch.sequence >= 0 for batch in self._queue)
        return self._discarded_sent or bool(self._in_flight) or waiting

    def restart(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        transactional: bool = False,
        sequence: int = 0,
    ) -> None:
        """Send under another producer, from its next sequence; only while nothing is in flight."""
        assert not self._in_flight
        self.producer = (producer_id, producer_epoch)
        self._transactional = transactional
        self.next_sequence = sequence
        self.astray = False
        self.limit = MAX_IN_FLIGHT_NEW_PRODUCER
        for batch in self._queue:
            batch.sequence = -1

    def may_be_forgotten(self, expired_ms: int) -> bool:
        """Brokers may have forgotten the producer since its last batch."""
        return NEVER_MS < self._appended_ms < expired_ms

    def can_send(self, expired_ms: int = NEVER_MS) -> bool:
        """True if `next` has a batch. Brokers may have forgotten a producer whose last batch is of a time
        before `expired_ms`."""
        if not self._queue or self.producer is None or self._queue[0].is_gap:
            return False
        if not self._in_flight:
            return True
        return (
            not self._in_flight[-1].is_gap
            and len(self._in_flight) < self.limit
            and not self._disturbed
            and self._appended_ms >= expired_ms
            and self._in_flight[-1].max_timestamp_ms >= expired_ms
            and self._queue[0].max_timestamp_ms >= expired_ms
        )

    def next(self, expired_ms: int = NEVER_MS) -> Batch | None:
        """The next batch, stamped and in flight; None while nothing may be sent."""
        if not self.can_send(expired_ms):
            return None
        batch = self._queue.popleft()
        if batch.sequence < 0:
            assert self.producer is not None
            id, epoch = self.producer
            batch.sequence = self.next_sequence
            batch.may_be_there = False
            stamp(
                batch.view,
                producer_id=id,
                producer_epoch=epoch,
                sequence=batch.sequence,
                transactional=self._transactional,
                checked=batch.checked,
            )
            batch.checked = True
            self.next_sequence = next_sequence(self.next_sequence, batch.records)
        batch.settled = batch.acknowledged = False
        self._in_flight.append(batch)
        return batch

    def acknowledged(self, batch: Batch, target_base: int) -> range | None:
        """The broker has it (now, or since an earlier try), at this offset of its log.

        Returns the offsets that the target has lost: they were acknowledged, and a later batch was
        appended over them. The window then stands behind that batch.
        """
        self.proven = batch.settled = batch.acknowledged = batch.may_be_there = True
        batch.target_base = target_base
        while self._in_flight and self._in_flight[0].acknowledged:
            head = self._in_flight.popleft()
            gone = range(head.target_base, self.sure_end)
            self._advance(head)
            if gone and head.target_base != UNKNOWN_OFFSET:
                self.missing += len(gone)
                return gone
        if self._disturbed:
            self._settle()
        else:
            self.limit = MAX_IN_FLIGHT_BATCHES
        return None

    def _advance(self, batch: Batch) -> None:
        if not batch.is_filler:
            self.position, self.leader_epoch = batch.next_offset, batch.leader_epoch
        self._appended_ms = batch.max_timestamp_ms
        self.acknowledged_sequence = next_sequence(batch.sequence, batch.records)
        if batch.target_base != UNKNOWN_OFFSET:
            self.target_end = self.sure_end = batch.target_base + batch.records
            self.markers = 0
        if batch.is_filler:
            self.offsets.pass_over(self.target_end)
        else:
            self.offsets.acknowledged(
                batch.first_offset,
                batch.offsets,
                target=batch.target_base,
                records=batch.records,
                transactional=self._transactional,
            )
        self.queued_bytes -= len(batch.view)
        batch.release()

    def lost(self, batch: Batch) -> None:
        """A batch was refused for now, or is without a response: it is sent again."""
        batch.settled = True
        self._disturbed = True
        self.limit = MAX_IN_FLIGHT_NEW_PRODUCER
        self._settle()

    def _settle(self) -> None:
        """Requeue the batches in flight once all are settled: brokers recognise the duplicates."""
        if all(batch.settled for batch in self._in_flight):
            self._queue.extendleft(reversed(self._in_flight))
            self._in_flight.clear()
            self._disturbed = False
            sent = [*takewhile(lambda batch: batch.sequence >= 0, self._queue)]
            for behind, batch in pairwise(reversed(sent)):
                batch.oldest_ms = min(batch.oldest_ms, behind.oldest_ms)

    def is_in_flight(self, batch: Batch) -> bool:
        """False once it was discarded: a late response says nothing about what the window holds now."""
        return batch in self._in_flight

    def is_head(self, batch: Batch) -> bool:
        """Everything before it is acknowledged, so a refusal concerns this batch."""
        return bool(self._in_flight) and self._in_flight[0] is batch

    def replace_head(self, replacements: list[Batch], *, next_offset: int) -> None:
        """Take the first waiting batch out (refused permanently) and put these in its place.

        Only while nothing is in flight. What waits is renumbered from its sequence. With no
        replacement its offsets, up to `next_offset`, count as passed over.
        """
        assert not self._in_flight
        head = self._queue.popleft()
        self.queued_bytes -= len(head.view)
        self.next_sequence = head.sequence
        if not replacements and self.fills:
            replacements = [Batch.gap(head.first_offset, next_offset, head.leader_epoch)]
            replacements[0].lossy = True
        self._queue.extendleft(reversed(replacements))
        self.queued_bytes += sum(len(batch.view) for batch in replacements)
        for batch in self._queue:
            batch.sequence = -1
        if not replacements:
            self.position, self.leader_epoch = next_offset, head.leader_epoch
        head.release()

    def shed(self) -> tuple[int, int] | None:
        """Give up what was never sent, except for the first batch; it is to be fetched again.

        Returns offset and leader epoch to fetch from; None if there is nothing to give up.
        """
        last: Batch | None = None
        while len(self._queue) > 1 and self._queue[-1].sequence < 0:
            last = self._queue.pop()
            self.queued_bytes -= len(last.view)
            last.release()
        if last is None:
            return None
        return self._queue[-1].next_offset, self._queue[-1].leader_epoch

    def detach(self) -> None:
        """See `Batch.detach`."""
        for batch in (*self._queue, *self._in_flight):
            batch.detach()

    def discard(self) -> None:
        """Discard everything that is not acknowledged."""
        self._discarded_sent = self.uncertain
        for batch in self._queue:
            batch.release()
        for batch in self._in_flight:
            if batch.lease is not None:
                batch.lease.abandon()
                batch.lease = None
        self._queue.clear()
        self._in_flight.clear()
        self._disturbed = False
        self.queued_bytes = 0


def at_beginning(window: SendWindow) -> bool:
    """The initial gap waits, and nothing behind it."""
    gap = window.last_gap
    return gap is not None and gap.is_initial and not window.is_in_flight(gap)


def acknowledged_end(window: SendWindow) -> AcknowledgedEnd | None:
    """End that the target's log has at least; None while that is not known."""
    if window.target_end == UNKNOWN_OFFSET:
        return None
    return AcknowledgedEnd(window.target_end, window.markers)
