"""Segments of a partition as they are stored: in chunks, put together again by `PartitionMap`. Pure.

A copier writes the chunk of its newest segments again whenever one begins. The last segment is *open*: its
constant holds up to each position that is committed with it, so it is not written again while it grows. The
position's metadata name that segment (`Provenance.mapped`). Positions that were committed without the map
name none; then the segment ends where it was known to end.

The first chunk of an owner names the position that it began at, and the end of the target's log there: up to
these the open segment of its predecessor holds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ureplicator_common.offset_map.segments import MapSegment, cut, joined

UNKNOWN = -1
NO_PLACE = (UNKNOWN, UNKNOWN)
FULL_SEGMENTS = 4_096
"""Segments of the largest chunk: three or four bytes each."""


def is_large(size: int) -> bool:
    """True for a chunk that stays as it is: it has more than half of the segments of a full one."""
    return size > FULL_SEGMENTS // 2


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive segments. `level`: 0 for one that was written as the newest of the log, more for others.

    `begin`: position and end of the target's log at which an owner began whose predecessor had committed its
    position with the map. `after`: target offset at which the segment ends that its first one follows, as in
    `MapSegment.follows`.
    """

    source_topic: str
    target_topic: str
    segments: tuple[MapSegment, ...]
    open: bool = False
    level: int = 0
    begin: tuple[int, int] = NO_PLACE
    after: int = UNKNOWN

    def __post_init__(self) -> None:
        assert self.segments, "a chunk without segments"

    @property
    def target(self) -> int:
        """Id of a chunk among the chunks of the partition."""
        return self.segments[0].target

    @property
    def size(self) -> int:
        return len(self.segments)


def extended(
    segments: tuple[MapSegment, ...], position: int, target_end: int
) -> tuple[MapSegment, ...]:
    """The last segment holds up to a position, and to the end that the target's log had there."""
    if not segments or position < 0 or target_end < 0:
        return segments
    last = segments[-1]
    end = min(position, last.first + target_end - last.target)
    return segments if end <= last.end else (*segments[:-1], last._replace(end=end))


def together(older: Chunk, newer: Chunk) -> Chunk:
    """One chunk for two neighbours, that says the same. Readers do not take it for the newest of the log."""
    before = cut(older.segments, newer.target)
    first = newer.segments[0]
    follows = first.follows or (newer.after == before[-1].target_end)
    segments = joined((*before, first._replace(follows=follows), *newer.segments[1:]))
    return replace(older, segments=segments, open=False, level=max(1, older.level, newer.level))
