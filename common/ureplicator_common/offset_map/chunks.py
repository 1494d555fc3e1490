"""Segments of a partition as they are stored: in chunks, put together again by `PartitionMap`. Pure.

A copier writes the chunk of its newest segments again whenever one begins. The last segment is *open*: its
constant holds up to each position that is committed with it, so it is not written again while it grows. The
position's metadata name that segment (`Provenance.mapped`). Positions that were committed without the map
name none; then the segment ends where it was known to end.

The first chunk of an owner names the position that it began at, and the end of the target's log there: up to
these the open segment of its predecessor holds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from ureplicator_common.offset_map.segments import MapSegment, cut, merged

UNKNOWN = -1
NO_PLACE = (UNKNOWN, UNKNOWN)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive segments. `level`: how many times every second one was left out.

    `begin`: position and end of the target's log at which an owner began whose predecessor had committed its
    position with the map.
    """

    source_topic: str
    target_topic: str
    segments: tuple[MapSegment, ...]
    open: bool = False
    level: int = 0
    begin: tuple[int, int] = NO_PLACE

    def __post_init__(self) -> None:
        assert self.segments, "a chunk without segments"

    @property
    def target(self) -> int:
        """Its id among the chunks of the partition."""
        return self.segments[0].target


class PartitionMap:
    """Map of one partition, from the rows of the topic in their order.

    `keys`: target offsets of all chunks that the topic holds, also of those that count no more.
    """

    __slots__ = ("_chunks", "_segments", "keys")

    def __init__(self) -> None:
        self.keys: set[int] = set()
        self._chunks: list[Chunk] = []
        self._segments: tuple[MapSegment, ...] | None = ()

    def __bool__(self) -> bool:
        return bool(self.keys)

    @property
    def chunks(self) -> Sequence[Chunk]:
        """Those that count, in the order of the target's log."""
        return self._chunks

    def add(self, chunk: Chunk) -> None:
        """A row. One of a recreated topic ends what was known of the former topic."""
        self._segments = None
        self.keys.add(chunk.target)
        others = [each for each in self._chunks if _topics(each) == _topics(chunk)]
        if not chunk.level:
            others = [each for each in others if each.target < chunk.target]
        self._chunks = [each for each in others if each.target != chunk.target]
        self._chunks.insert(self._place(chunk.target), chunk)

    def remove(self, target: int) -> None:
        """A tombstone."""
        self._segments = None
        self.keys.discard(target)
        self._chunks = [each for each in self._chunks if each.target != target]

    def _place(self, target: int) -> int:
        return bisect_left(self._chunks, target, key=attrgetter("target"))

    @property
    def topics(self) -> tuple[str, str]:
        """Ids of the source's and the target's topic."""
        return _topics(self._chunks[-1]) if self._chunks else ("", "")

    @property
    def newest(self) -> int:
        """Target offset of the newest segment; -1 without one."""
        return self._chunks[-1].segments[-1].target if self._chunks else UNKNOWN

    def segments(self) -> tuple[MapSegment, ...]:
        """Segments, each up to where it was known to reach when it was written."""
        if self._segments is None:
            self._segments = self._flat()
        return self._segments

    def _flat(self) -> tuple[MapSegment, ...]:
        found: tuple[MapSegment, ...] = ()
        is_open = False
        for chunk in self._chunks:
            if is_open:
                found = extended(found, *chunk.begin)
            found = merged(found, chunk.segments)
            is_open = chunk.open
        return found

    def until(self, position: int, target_end: int, *, mapped: int) -> tuple[MapSegment, ...]:
        """Segments, the open one up to a committed position. It may be joined with the one before it.

        `target_end`, `mapped`: of the position's metadata. A position that was committed with another segment
        changes nothing.
        """
        segments = self.segments()
        if not self._chunks or not self._chunks[-1].open or self.newest != mapped:
            return segments
        return extended(segments, position, target_end)


def extended(
    segments: tuple[MapSegment, ...], position: int, target_end: int
) -> tuple[MapSegment, ...]:
    """The last segment holds up to a position, and to the end that the target's log had there."""
    if not segments or position < 0 or target_end < 0:
        return segments
    last = segments[-1]
    end = min(position, last.first + target_end - last.target)
    return segments if end <= last.end else (*segments[:-1], last._replace(end=end))


def thinner(older: Chunk, newer: Chunk) -> Chunk:
    """One chunk for two neighbours, with every second segment: the gaps are rounded down."""
    together = (*cut(older.segments, newer.target), *newer.segments)
    return replace(
        older, segments=together[::2], open=False, level=max(older.level, newer.level) + 1
    )


def _topics(chunk: Chunk) -> tuple[str, str]:
    return chunk.source_topic, chunk.target_topic
