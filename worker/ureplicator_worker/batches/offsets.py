"""Source offsets of the records in a batch to be sent.

Records of a batch that was built lie at offsets 0, 1, ... of the new batch; at the source there may be
holes between them (compaction, markers, aborted transactions). A batch of n records from few places takes
few `runs`, not n numbers.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from operator import itemgetter

Run = tuple[int, int]
"""Index of a record, and its offset; those behind it follow without a hole."""


@dataclass(frozen=True, slots=True)
class SourceOffsets:
    """`runs` in the order of their indexes; the first has index 0."""

    runs: tuple[Run, ...]

    @classmethod
    def from_(cls, first_offset: int) -> SourceOffsets:
        """Records without holes between them."""
        return cls(((0, first_offset),))

    def at(self, index: int) -> int:
        """Source offset of a record."""
        start, offset = self.runs[bisect_right(self.runs, index, key=itemgetter(0)) - 1]
        return offset + index - start

    def part(self, start: int, stop: int) -> SourceOffsets:
        """Offsets of the records from `start` to before `stop`, as a batch of their own."""
        inside = ((index - start, offset) for index, offset in self.runs if start < index < stop)
        return SourceOffsets(((0, self.at(start)), *inside))
