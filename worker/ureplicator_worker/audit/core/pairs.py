"""Segments of an offset map, from records of both sides that belong together. Pure.

What is only on one side ends a segment; so does a marker of a transaction, or a hole, in one of both logs.
Repeats are explained later than what follows them, so segments are put in order in the end. Only then are
segments with the same difference joined across a hole of both logs: until all is known, other records may
turn out to lie between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter

from ureplicator_common.offset_map.segments import MAX_SEGMENTS, MapSegment, thinned


class Pairs:
    """Pairs of offsets. At most twice `MAX_SEGMENTS` segments are kept; then older ones are thinned out."""

    def __init__(self) -> None:
        self._found: list[MapSegment] = []

    def add(self, offsets: Sequence[int], copies: Sequence[int], *, repeated: bool = False) -> None:
        """Source offsets, and the target offset of each one's copy, in ascending order."""
        first, last = 0, len(offsets) - 1
        if offsets[last] - offsets[0] == last == copies[last] - copies[0]:
            self._place(MapSegment(offsets[0], offsets[last] + 1, copies[0], repeated))
            return
        for index in range(1, len(offsets) + 1):
            if index <= last and copies[index] - offsets[index] == copies[first] - offsets[first]:
                continue
            end = offsets[index - 1] + 1
            self._place(MapSegment(offsets[first], end, copies[first], repeated))
            first = index

    def _place(self, segment: MapSegment) -> None:
        before = self._found[-1] if self._found else None
        if before is not None and before.end == segment.first and _belong_together(before, segment):
            self._found[-1] = before._replace(end=segment.end)
            return
        self._found.append(segment)
        if len(self._found) > 2 * MAX_SEGMENTS:
            self._found = list(self.segments())

    def __len__(self) -> int:
        """Segments that are kept."""
        return len(self._found)

    def segments(self) -> tuple[MapSegment, ...]:
        """Segments in the order of the target's log."""
        return thinned(_joined(sorted(self._found, key=attrgetter("target"))))


def _joined(segments: Iterable[MapSegment]) -> list[MapSegment]:
    """Neighbours with the same difference become one."""
    found: list[MapSegment] = []
    for segment in segments:
        if found and found[-1].end <= segment.first and _belong_together(found[-1], segment):
            found[-1] = found[-1]._replace(end=segment.end)
        else:
            found.append(segment)
    return found


def _belong_together(before: MapSegment, segment: MapSegment) -> bool:
    return (
        before.repeated == segment.repeated
        and before.target - before.first == segment.target - segment.first
    )
