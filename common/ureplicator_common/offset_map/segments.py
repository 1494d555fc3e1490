"""Segments of an offset map: where `target = source + constant`. Pure.

Segments of a partition are in the order of the target's log. There the source's offsets may go back: records
that were sent, and whose position was not committed, are sent again. So a source offset may lie in several
segments. Translation forward names the last copy, translation backward starts from any of them.

An offset between two segments is rounded down, to the end of the segment before: there is no copy of a record
in between, as far as is known. A consumer that goes on there misses nothing. So any segment may be left out,
and the number is bounded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

MAX_SEGMENTS = 4_096
"""Of one partition; the older half of more is thinned out."""


class MapSegment(NamedTuple):
    """Source offsets from `first` to before `end` lie at the target from offset `target` on.

    `repeated`: they may lie at smaller offsets, too.
    """

    first: int
    end: int
    target: int
    repeated: bool = False

    @property
    def target_end(self) -> int:
        return self.target + self.end - self.first


def forward(segments: Sequence[MapSegment], source_offset: int) -> int | None:
    """Target offset at which a consumer goes on that has read everything before `source_offset`.

    None: it lies before what is known. Where the last copy ends before this offset, and an older one goes
    beyond it, the older one counts: operators may set a position back and forth.
    """
    newest: MapSegment | None = None
    for segment in reversed(segments):
        if segment.first > source_offset:
            continue
        if source_offset < segment.end or (newest is None and source_offset == segment.end):
            return segment.target + source_offset - segment.first
        newest = newest or segment
    return None if newest is None else newest.target_end


def translation(segments: Sequence[MapSegment]) -> Callable[[int], int | None]:
    """`forward` for many offsets: a search in the segments, unless the source's offsets go back in them."""
    if any(later.first < each.end for each, later in pairwise(segments)):
        return partial(forward, segments)
    firsts = [each.first for each in segments]

    def translate(source_offset: int) -> int | None:
        index = bisect_right(firsts, source_offset) - 1
        if index < 0:
            return None
        first, end, target, _ = segments[index]
        return target + min(source_offset, end) - first

    return translate


def backward(segments: Sequence[MapSegment], target_offset: int) -> int | None:
    """Source offset at which a consumer goes on that has read everything before `target_offset`.

    None: it lies before what is known. Between several outputs of one record it is the record behind.
    """
    index = bisect_right(segments, target_offset, key=attrgetter("target")) - 1
    if index < 0:
        return None
    segment = segments[index]
    return min(segment.end, segment.first + target_offset - segment.target)


def merged(
    old: Sequence[MapSegment],
    new: Sequence[MapSegment],
    *,
    source_start: int = 0,
    target_start: int = 0,
) -> tuple[MapSegment, ...]:
    """Segments of a log to which `new` was added behind `old`, with runs joined.

    What `old` has at offsets of `new`, or behind them, is gone. What lies before the starts of both logs
    is left out.
    """
    kept = cut(old, new[0].target) if new else old
    known = (
        each
        for each in (*kept, *new)
        if each.end >= source_start or each.target_end >= target_start
    )
    return thinned(joined(known))


def cut(segments: Iterable[MapSegment], target_end: int) -> tuple[MapSegment, ...]:
    """Segments, and parts of them, before an offset of the target."""
    return tuple(
        each._replace(end=min(each.end, each.first + target_end - each.target))
        for each in segments
        if each.target < target_end
    )


def joined(segments: Iterable[MapSegment]) -> tuple[MapSegment, ...]:
    """Neighbours with the same difference become one; an empty one counts only at the beginning."""
    found: list[MapSegment] = []
    for segment in segments:
        last = found[-1] if found else None
        if last and (last.end, last.target_end) == (segment.first, segment.target):
            if last.repeated == segment.repeated or last.first == last.end:
                found[-1] = MapSegment(last.first, segment.end, last.target, segment.repeated)
                continue
            if segment.first == segment.end:
                continue
        found.append(segment)
    return tuple(found)


def thinned(segments: Sequence[MapSegment], limit: int = MAX_SEGMENTS) -> tuple[MapSegment, ...]:
    """At most `limit` of them: the newest all, of the older ones every second, fourth, eighth, ..."""
    while len(segments) > limit:
        middle = max(2, len(segments) // 2)
        segments = (*segments[:middle:2], *segments[middle:])
    return tuple(segments)
