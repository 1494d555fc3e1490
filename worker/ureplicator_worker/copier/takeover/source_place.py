"""Place in the source's log behind a number of copied records. Pure.

The records that a lane copies are counted from the position on: what is committed, without control records.
The last one must be the record that the target has last (`Witness`): count and bytes agree. If they do not,
something was removed since it was copied, by compaction or retention, or the records were changed on their
way: then `matching` compares what both ends still have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from ureplicator_worker.batches.committed import committed_batches
from ureplicator_worker.batches.header import Kind
from ureplicator_worker.copier.behind import Behind, Disagreement, Place, Span
from ureplicator_worker.copier.takeover.reading import Unreadable
from ureplicator_worker.copier.takeover.witness import STAMPED_MS, Placed, Witness, records_of
from ureplicator_worker.wire.fetch_api import Fetched

SEARCHED = 10_000
"""Records of the source that are looked at beyond those that may be copied, for the key of the last copy."""


class SourcePlace:
    """`offset`: to be fetched next. `place`: the result, once it is known. `end`: a high watermark of the
    log; a leader that shows less does not know yet all that was committed under the one before it (KIP-207).
    """

    def __init__(self, *, position: int, behind: Behind, end: int) -> None:
        assert behind.count
        self.offset = self._position = position
        self.place: Place | None = None
        self._end = end
        self._behind = behind
        self._left = behind.count
        self._spans: list[Span] = []
        self._rows: list[Placed] = []

    @property
    def done(self) -> bool:
        return self.place is not None

    def out_of_range(self, log_start: int) -> None:
        """The log begins behind the offset, or ends before it. Raises Disagreement."""
        if log_start <= self.offset:
            raise Disagreement(f"the source's log ends before offset {self.offset:,}")
        if self._behind.copies is None:
            raise Disagreement(f"the source's log begins at {log_start:,} only")
        self.offset = log_start

    def add(self, records: bytes, row: Any) -> None:
        """Batches of a response with read_committed, from `offset` on. Raises CorruptBatch, Disagreement,
        Unreadable."""
        collects = self._behind.copies is not None
        for batch, header, kind in committed_batches(
            memoryview(records), fetched(row, len(records)), position=self.offset, check_crc=True
        ):
            copied = kind is Kind.PASS or kind is Kind.REBUILD
            if collects and copied:
                self._rows += records_of(batch, position=self.offset)
            elif kind is Kind.PASS and header.records < self._left:
                self._left -= header.records
                self._extend(header.base_offset, header.records)
            elif copied:
                self._count(records_of(batch, position=self.offset), header.leader_epoch)
            self.offset = header.last_offset + 1
            if self.done:
                return
        ended = self._has_ended(row)
        if collects and (ended or len(self._rows) >= self._behind.count + SEARCHED):
            self._match()
        elif ended and not collects:
            raise Disagreement(f"the log holds {self._left:,} records fewer than were copied")

    def _count(self, rows: Iterable[Placed], leader_epoch: int) -> None:
        """Count the rows, up to the one that was copied last."""
        for offset, witness in rows:
            self._left -= 1
            self._extend(offset, 1)
            if not self._left:
                last = self._behind.last
                if last is None or not last.is_copy_of(witness):
                    raise Disagreement(f"offset {offset:,} is not the record that was copied last")
                self.place = Place(offset + 1, leader_epoch, tuple(self._spans))
                return

    def _extend(self, first: int, records: int) -> None:
        """Add records to the spans of those that were copied."""
        if self._spans and sum(self._spans[-1]) == first:
            first, before = self._spans.pop()
            records += before
        self._spans.append(Span(first, records))

    def _has_ended(self, row: Any) -> bool:
        """True at the end of the log. Each record that was copied had an offset, so it lies behind so many.

        If it does not, the log was truncated. Raises Unreadable.
        """
        end, least = row.last_stable_offset, self._position + self._behind.count
        if self.offset < end or row.high_watermark < self._end:
            return False
        if end < least:
            reason = f"the log ends at {end:,}, before what was copied, up to {least:,} at least"
            raise Unreadable(reason, temporary=True)
        return True

    def _match(self) -> None:
        copies = self._behind.copies
        assert copies is not None
        at = matching(copies, self._rows[: self._behind.count])
        if at is None:
            at = self._before_all(copies)
        self.place = Place(at, -1)

    def _before_all(self, copies: Sequence[Witness]) -> int:
        """Offset to go on at if nothing copied is left at the source: behind all of it, if the source begins
        there; at the position, if newer records have taken the place of all. Raises Disagreement."""
        first = self._rows[0].offset if self._rows else self.offset
        least = self._position + self._behind.count
        if least <= first:
            return least
        key = copies[-1].key if copies else None
        if key is not None and any(row.witness.key == key for row in self._rows):
            return self._position
        raise Disagreement(
            f"{self._behind.count:,} records were copied behind offset {self._position:,}, and the source"
            " has none of them: was the route's handler or naming changed?"
        )


def fetched(row: Any, size: int) -> Fetched:
    """The row of a response as the lane's own decoder gives it, with its records from byte 0 on."""
    decoded = Fetched(
        (b"", row.partition_index),
        error=row.error_code,
        high_watermark=row.high_watermark,
        last_stable=row.last_stable_offset,
    )
    decoded.aborted = [
        (aborted.producer_id, aborted.first_offset) for aborted in row.aborted_transactions or ()
    ]
    decoded.end = size
    return decoded


def matching(copies: Sequence[Witness], rows: Sequence[Placed]) -> int | None:
    """Offset behind the last of the source's rows that was copied, by what is left of both, in order; None if
    none of the rows was copied.

    A log keeps the newest record of each key. So of two records of one key the older one is gone where the
    newer one is, and behind the last row that the target has, too, nothing is left that was copied.
    """
    places: dict[Witness, deque[int]] = {}
    for index, copy in enumerate(copies):
        places.setdefault(copy, deque()).append(index)
    at, behind = 0, None
    for offset, witness in rows:
        stamped = witness._replace(time_ms=STAMPED_MS)
        known = places.get(witness) or places.get(stamped) or deque()
        place = next((index for index in known if index >= at), -1)
        if place >= 0:
            at, behind = place + 1, offset + 1
    return behind
