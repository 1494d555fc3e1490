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

With an offset map nothing is left out before it is written there (`segments_from`), so the map is exact. Each
segment says whether it follows the one before it: then no record of the source lies between them.

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
from itertools import pairwise
from operator import attrgetter

from ureplicator_common.offset_map.segments import MapSegment
from ureplicator_worker.batches.offsets import Run, SourceOffsets
from ureplicator_worker.lifeline.measures import Segment

EXACT_SEGMENTS = 32
SPREAD = 4
"""A segment that was left out lies between two others, of which the older one's distance from the end is at
most so many times that of the newer one."""
SPREAD_SEGMENTS = 64
"""Segments of which every second is `SPREAD` times as far away, or farther; a distance has 63 bits."""
MAX_SEGMENTS = EXACT_SEGMENTS + SPREAD_SEGMENTS + 2
RUNS_PER_BATCH = 8
"""A batch of a compacted topic may have a hole at each record."""
UNWRITTEN_SEGMENTS = 1 << 17
"""Segments that wait with an offset map, between two commits: 4 MiB of a partition. A lane that copies
a compacted topic at full speed has fewer in a second."""
UNKNOWN = -1
_FIELDS = len(Segment._fields)
_TARGET = Segment._fields.index("target")
_REPEATED, _FOLLOWS = 1, 2
"""Bits of the last field."""


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
        "_apart",
        "_end",
        "_first",
        "_follows",
        "_last",
        "_next",
        "_older",
        "_open_from",
        "_repeated",
        "_repeats",
        "_target",
        "mapped",
    )

    def __init__(self, *, position: int, target_end: int, mapped: bool = False) -> None:
        """`mapped`: the segments go to an offset map."""
        self.mapped = mapped
        self._older = array("q")
        self._first = self._end = position
        self._target = self._next = target_end
        self._repeated = self._follows = False
        self._apart = False
        """Records may lie behind the newest segment that is known."""
        self._repeats = 0
        """Number of the next records that may be there already."""
        self._last = UNKNOWN
        """Source offset of the last record of the batch before: the next may hold further outputs of it."""
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
            self._apart = True
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
            runs = offsets.runs
            if self.mapped and self._is_plain(runs):
                self._place_all(runs, target, records)
            else:
                most = len(runs) if self.mapped else RUNS_PER_BATCH
                for index, offset, count in distinct(runs, records, self._last, most=most):
                    self._place(offset, target + index, count)
            self._last = offsets.at(records - 1)
        else:
            self._place(first, target, records)
            self._last = first + records - 1

    def _is_plain(self, runs: Sequence[Run]) -> bool:
        """Each run begins behind the one before, and the first behind all that is known."""
        return (
            len(runs) > 2
            and not self._repeats
            and self._last < runs[0][1] >= self._end
            and all(f - i < g - j for (i, f), (j, g) in pairwise(runs))
        )

    def _place_all(self, runs: Sequence[Run], target: int, records: int) -> None:
        """Place each run as `_place` does. A batch of a compacted topic may have a thousand runs."""
        (_, first), (second, _), *_ = runs
        self._place(first, target, second)
        fields = [self._first, self._end, self._target, self._flags]
        for (index, offset), (following, _) in pairwise(runs[1:]):
            fields += (offset, offset + following - index, target + index, _FOLLOWS)
        self._older.extend(array("q", fields))
        index, first = runs[-1]
        self._first, self._end, self._target = first, first + records - index, target + index
        self._follows = True
        if len(self._older) >= UNWRITTEN_SEGMENTS * _FIELDS:
            self._older = _thinned(self._older, self._end, len(self._older))

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
                self._older.extend((self._first, self._end, self._target, self._flags))
                self._follows = True
                most = UNWRITTEN_SEGMENTS if self.mapped else MAX_SEGMENTS - 1
                if len(self._older) >= most * _FIELDS:
                    self._older = _thinned(self._older, self._end, len(self._older))
        self._follows = self._follows and not self._apart
        self._apart = False
        self._first, self._end, self._target = first, first + count, target
        self._repeated = repeated

    @property
    def _flags(self) -> int:
        return self._repeated * _REPEATED | self._follows * _FOLLOWS

    def _cut(self, first: int, target: int) -> None:
        """Forget what lies at these offsets of either log, or behind them: it is there no longer. A segment
        of which nothing is left goes too, unless it is where all began."""
        while self._target >= 0:
            if self._first <= first and self._target <= target:
                self._end = min(self._end, first, self._first + target - self._target)
                if self._first < self._end or not self._older:
                    return
            self._apart = self._apart or not self._follows
            self._restore_older()

    def _restore_older(self) -> None:
        if self._older:
            *place, flags = self._older[-_FIELDS:]
            self._first, self._end, self._target = place
            self._repeated, self._follows = bool(flags & _REPEATED), bool(flags & _FOLLOWS)
            del self._older[-_FIELDS:]
        else:
            self._first = self._end = self._target = UNKNOWN
            self._follows = False

    def pass_over(self, target: int) -> None:
        """Nothing of the source lies before this target offset but what is known."""
        self._next = target

    def commit(self) -> None:
        """The transaction is committed."""
        self._open_from = UNKNOWN

    def rewind(self) -> None:
        """The transaction is aborted."""
        if self._open_from >= 0:
            self._cut(1 << 62, self._open_from)
        self._open_from = self._last = UNKNOWN

    def segments(self) -> tuple[Segment, ...]:
        """Segments that are committed, in order."""
        older, open_from = self._older, self._open_from
        if len(older) >= MAX_SEGMENTS * _FIELDS:
            older = _thinned(older, self._end, len(older))
        known = [*_segments(older), *((self._newest(),) if self._target >= 0 else ())]
        return tuple(
            Segment(
                first,
                end if open_from < 0 else min(end, first + open_from - target),
                target,
                repeated,
            )
            for first, end, target, repeated, _ in known
            if open_from < 0 or target <= open_from
        )

    def segments_from(self, target: int) -> tuple[MapSegment, ...]:
        """Segments from this target offset on, the newest in any case, also what is not committed. Some of
        those before it, which are in the map, are left out from now on."""
        if self._target < 0:
            return ()
        older, at = self._older, len(self._older)
        while at and older[at - _FIELDS + _TARGET] >= target:
            at -= _FIELDS
        found = (*_segments(older[at:]), self._newest())
        if len(older) >= MAX_SEGMENTS * _FIELDS:
            self._older = _thinned(older, self._end, at)
        return found

    def _newest(self) -> MapSegment:
        return MapSegment(self._first, self._end, self._target, self._repeated, self._follows)


def _segments(fields: array[int]) -> Iterator[MapSegment]:
    numbers = iter(fields)
    for first, end, target, flags in zip(numbers, numbers, numbers, numbers, strict=True):
        yield MapSegment(first, end, target, bool(flags & _REPEATED), bool(flags & _FOLLOWS))


def _thinned(older: array[int], end: int, stop: int) -> array[int]:
    """The segments without those whose neighbours are close enough to each other: older ones, and
    before the field `stop`. What stood behind one follows nothing."""
    stop = min(stop, len(older) - (EXACT_SEGMENTS - 1) * _FIELDS)
    if stop <= 0:
        return older
    near, kept = end - older[stop], [stop]
    for at in range(stop - _FIELDS, -1, -_FIELDS):
        if at == 0 or end - older[at - _FIELDS] > SPREAD * near:
            kept.append(at)
            near = end - older[at]
    found, before = array("q"), -_FIELDS
    for at in reversed(kept):
        part = older[at:] if at == stop else older[at : at + _FIELDS]
        if at - before > _FIELDS:
            part[_FIELDS - 1] &= _REPEATED
        found.extend(part)
        before = at
    return found


def distinct(
    runs: Sequence[Run], records: int, last: int, *, most: int
) -> Iterator[tuple[int, int, int]]:
    """Index, first offset and count of some runs of a batch, without the further outputs of a record.

    `most`: so many at most. `last`: offset of the record before the batch. The last run with a first output
    is one of them.
    """
    step = -(-len(runs) // most)
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
