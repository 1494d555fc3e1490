"""Segments of an offset map: where `target = source + constant`. Pure.

Segments of a partition are in the order of the target's log. There the source's offsets may go back: records
that were sent, and whose position was not committed, are sent again. So a source offset may lie in several
segments. Translation forward names the last copy, translation backward starts from any of them.

Between two segments nothing was copied, if the second one *follows* the first: then an offset in between
means the beginning of the second, at both ends. Else segments may have been left out there, and the offset is
rounded down, to the end of the segment before. A consumer that goes on there misses nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

MAX_SEGMENTS = 4_096
"""Segments of one partition in an audit; of more the older half is thinned out."""
_FIRST = attrgetter("first")


class MapSegment(NamedTuple):
    """Source offsets from `first` to before `end` lie at the target from offset `target` on.

    `repeated`: they may lie at smaller offsets, too. `follows`: no record was copied between the segment
    before and this one.
    """

    first: int
    end: int
    target: int
    repeated: bool = False
    follows: bool = False

    @property
    def target_end(self) -> int:
        return self.target + self.end - self.first


class Part(NamedTuple):
    """Consecutive segments. `rises`: the source's offsets do in them, so that they can be searched."""

    segments: Sequence[MapSegment]
    rises: bool

    @classmethod
    def of(cls, segments: Sequence[MapSegment]) -> Part:
        return cls(segments, all(a.end <= b.first for a, b in pairwise(segments)))

    def covering(self, source_offset: int, *, ends: bool) -> int:
        """Index of the last segment with this offset, else of the last one that begins before it; -1 without
        one. `ends`: a segment that ends at the offset counts as one that has it."""
        segments = self.segments
        if self.rises:
            return bisect_right(segments, source_offset, key=_FIRST) - 1
        before = -1
        for index in range(len(segments) - 1, -1, -1):
            first, end, *_ = segments[index]
            if first > source_offset:
                continue
            if source_offset < end or (ends and before < 0 and source_offset == end):
                return index
            before = max(before, index)
        return before


def merged(old: Sequence[MapSegment], new: Sequence[MapSegment]) -> tuple[MapSegment, ...]:
    """Segments of a log to which `new` was added behind `old`, with runs joined.

    What `old` has at offsets of `new`, or behind them, is gone.
    """
    kept = cut(old, new[0].target) if new else old
    return thinned(joined((*kept, *new)))


def cut(segments: Iterable[MapSegment], target_end: int) -> tuple[MapSegment, ...]:
    """Segments, and parts of them, before an offset of the target."""
    return tuple(
        segment._replace(end=min(segment.end, segment.first + target_end - segment.target))
        for segment in segments
        if segment.target < target_end
    )


def joined(segments: Iterable[MapSegment]) -> tuple[MapSegment, ...]:
    """Neighbours with the same difference become one; an empty one counts only at the beginning."""
    found: list[MapSegment] = []
    for segment in segments:
        last = found[-1] if found else None
        if last and (last.end, last.target_end) == (segment.first, segment.target):
            if last.repeated == segment.repeated or last.first == last.end:
                found[-1] = last._replace(end=segment.end, repeated=segment.repeated)
                continue
            if segment.first == segment.end:
                continue
        found.append(segment)
    return tuple(found)


def thinned(segments: Sequence[MapSegment], limit: int = MAX_SEGMENTS) -> tuple[MapSegment, ...]:
    """Segments, at most `limit`: the newest all, of the older ones every second, fourth, eighth, ..."""
    while len(segments) > limit:
        middle = max(2, len(segments) // 2)
        segments = (*segments[:middle:2], *segments[middle:])
    return tuple(segments)
