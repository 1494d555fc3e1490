"""Offsets at the target of what was copied: where `target = source + constant`, and where it changes. Pure.

The constant changes where the source has offsets without a record to copy (compaction, markers, aborted
transactions, records that were skipped or that a handler dropped), and where the target has records of
others: markers of our own transactions, batches that were aborted, repeats. Between two changes lies a
*segment*.

An offset that lies in no segment is rounded down, to the end of the segment before (`target_offset`). A
consumer that goes on there repeats records and misses none. So any segment may be left out, and the number
is bounded: the newest are all kept, the oldest, and of the others so many that the distance from the end at
most quadruples from one to the next, much as MirrorMaker keeps its offset syncs (KIP-545). A consumer that
is far behind is rounded further down: by three times its distance at most.

In a transaction only what is committed counts (`commit`, `rewind`).

A position is stored with the end of the target's log (`position`, `target_end`). If the next batch lies
behind that end, so many records of that range may be there already: a former owner sent them after its last
commit, or their acknowledgement was lost. They are *repeated*: consumers that begin at the later place get
everything that follows. Outside of transactions nothing else writes there, unless other producers do.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter

from ureplicator_worker.copier.raw.batches.offsets import Run, SourceOffsets
from ureplicator_worker.lifeline.messages import Segment

EXACT_SEGMENTS = 32
SPREAD = 4
"""A segment that was left out lies between two others, of which the older one's distance from the end is at
most so many times that of the newer one."""
SPREAD_SEGMENTS = 64
"""Of which every second is `SPREAD` times as far away, or farther; a distance has 63 bits."""
MAX_SEGMENTS = EXACT_SEGMENTS + SPREAD_SEGMENTS + 2
RUNS_PER_BATCH = 8
"""A batch of a compacted topic may have a hole at each record."""
UNKNOWN = -1
_FIELDS = len(Segment._fields)
_TARGET = Segment._fields.index("target")


def target_offset(segments: Sequence[Segment], source: int) -> int | None:
    """Target offset at which a consumer goes on that has read everything before `source`, rounded down.

    None: `source` lies before what is known.
    """
    index = bisect_right(segments, source, key=attrgetter("first")) - 1
    if index < 0:
        return None
    found = segments[index]
    return found.target + min(source, found.end) - found.first


class TargetOffsets:
    """The newest segment in fields, those before it in an array: workers hold thousands of partitions."""

    __slots__ = (
        "_end",
        "_first",
        "_last",
        "_next",
        "_older",
        "_open_from",
        "_repeated",
        "_repeats",
        "_target",
    )

    def __init__(self, *, position: int, target_end: int) -> None:
        self._older = array("q")
        self._first = self._end = position
        self._target = self._next = target_end
        self._repeated = False
        self._repeats = 0
        """So many of the next records may be there already."""
        self._last = UNKNOWN
        """Source offset of the last record of a built batch."""
        self._open_from = UNKNOWN
        """Target offset at which the open transaction begins."""

    def acknowledged(
        self,
        first: int,
        offsets: SourceOffsets | None,
        *,
        target: int,
        records: int,
        transactional: bool,
    ) -> None:
        """A batch lies at this offset. Batches come in order. Hot path."""
        if transactional and self._open_from < 0:
            self._open_from = max(self._next, 0) if target == UNKNOWN else target
        if target == UNKNOWN:
            if self._target < 0:
                self._first = self._end = UNKNOWN
            self._next += records if self._next >= 0 else 0
            self._last = offsets.at(records - 1) if offsets else first + records - 1
            return
        if self._target < 0 <= self._first:  # the first batch: nothing lies between position and it
            self._target = target
        if not transactional and 0 <= self._next < target:
            self._repeats += target - self._next
        self._next = target + records
        if offsets is not None:
            for index, offset, count in distinct(offsets.runs, records, self._last):
                self._place(offset, target + index, count)
            self._last = offsets.at(records - 1)
        else:
            self._place(first, target, records)

    def _place(self, first: int, target: int, count: int) -> None:
        follows = first == self._end and target - first == self._target - self._first
        if follows and not self._repeats and not self._repeated:
            self._end += count
            return
        repeats = min(self._repeats, count)
        self._repeats -= repeats
        if repeats:
            self._add(first, target, repeats, repeated=True)
        if repeats < count:
            self._add(first + repeats, target + repeats, count - repeats, repeated=False)

    def _add(self, first: int, target: int, count: int, *, repeated: bool) -> None:
        self._cut(first, target)
        if self._target >= 0:
            follows = first == self._end and target - first == self._target - self._first
            if follows and self._repeated is repeated:
                self._end += count
                return
            if self._first < first:
                self._older.extend((self._first, self._end, self._target, self._repeated))
                if len(self._older) >= (MAX_SEGMENTS - 1) * _FIELDS:
                    self._thin()
        self._first, self._end, self._target = first, first + count, target
        self._repeated = repeated

    def _cut(self, first: int, target: int) -> None:
        """Forget what lies at these offsets of either log, or behind them: it is there no longer."""
        while self._target >= 0 and (self._first > first or self._target > target):
            self._restore_older()
        self._end = min(self._end, first, self._first + target - self._target)

    def _restore_older(self) -> None:
        if self._older:
            *place, repeated = self._older[-_FIELDS:]
            self._first, self._end, self._target = place
            self._repeated = bool(repeated)
            del self._older[-_FIELDS:]
        else:
            self._first = self._end = self._target = UNKNOWN

    def _thin(self) -> None:
        """Leave out older segments whose neighbours are close enough to each other."""
        older, end = self._older, self._end
        exact = len(older) - (EXACT_SEGMENTS - 1) * _FIELDS
        kept, near = older[exact:], end - older[exact]
        for at in range(exact - _FIELDS, -1, -_FIELDS):
            if at == 0 or end - older[at - _FIELDS] > SPREAD * near:
                kept, near = older[at : at + _FIELDS] + kept, end - older[at]
        self._older = kept

    def commit(self) -> None:
        """The transaction is committed."""
        self._open_from = UNKNOWN

    def rewind(self) -> None:
        """The transaction is aborted."""
        if self._open_from >= 0:
            self._cut(1 << 62, self._open_from)
        self._open_from = UNKNOWN

    def segments(self) -> tuple[Segment, ...]:
        """Segments that are committed, in order."""
        known, end = self._known(), self._open_from
        if end < 0:
            return tuple(known)
        return tuple(
            each._replace(end=min(each.end, each.first + end - each.target))
            for each in known
            if each.target <= end
        )

    def segments_from(self, target: int) -> tuple[Segment, ...]:
        """Segments from this target offset on, the newest in any case, also what is not committed."""
        if self._target < 0:
            return ()
        older, at = self._older, len(self._older)
        while at and older[at - _FIELDS + _TARGET] >= target:
            at -= _FIELDS
        return (*_segments(older[at:]), self._newest())

    def _newest(self) -> Segment:
        return Segment(self._first, self._end, self._target, self._repeated)

    def _known(self) -> Iterator[Segment]:
        yield from _segments(self._older)
        if self._target >= 0:
            yield self._newest()


def _segments(fields: array[int]) -> Iterator[Segment]:
    for at in range(0, len(fields), _FIELDS):
        first, end, target, repeated = fields[at : at + _FIELDS]
        yield Segment(first, end, target, bool(repeated))


def distinct(runs: Sequence[Run], records: int, last: int) -> Iterator[tuple[int, int, int]]:
    """Index, first offset and count of some runs of a batch, without the further outputs of a record.

    `last`: offset of the record before the batch. The last run with a first output is one of them.
    """
    step = -(-len(runs) // RUNS_PER_BATCH)
    passed = -1
    for number in range((len(runs) - 1) % step, len(runs), step):
        for place in range(number, passed, -1):  # back over runs of further outputs only
            index, offset, count = _first_outputs(runs, place, records, last)
            if count:
                yield index, offset, count
                break
        passed = number


def _first_outputs(
    runs: Sequence[Run], number: int, records: int, last: int
) -> tuple[int, int, int]:
    """Index, first offset and count of one run, without the further outputs of the record before."""
    index, offset = runs[number]
    stop = runs[number + 1][0] if number + 1 < len(runs) else records
    before = last
    if number:
        former_index, former_offset = runs[number - 1]
        before = former_offset + index - former_index - 1
    if before == offset:
        index, offset = index + 1, offset + 1
    return index, offset, stop - index
