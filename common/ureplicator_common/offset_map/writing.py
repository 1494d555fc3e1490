"""Rows that a copier writes of a partition's map: only where a segment begins. Pure.

The chunk of the newest segments is written again at each commit in which one begins. Once it is full it is
sealed, and joined with the one before it as soon as that is less than twice as large, as in a log-structured
merge tree: so each segment is joined seven times at most, and few chunks are small. A chunk that is more than
half full stays as it is, and its row is not kept here. Nothing is left out, until a partition has more than
`MAX_CHUNKS`: then every second one of the older half is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ureplicator_common.model import Partition
from ureplicator_common.offset_map.chunks import (
    FULL_SEGMENTS,
    NO_PLACE,
    UNKNOWN,
    Chunk,
    is_large,
    together,
)
from ureplicator_common.offset_map.codec import (
    Row,
    decode_chunk,
    encode_chunk,
    row,
    tombstone,
)
from ureplicator_common.offset_map.segments import MapSegment, cut

CHUNK_SEGMENTS = 32
"""Segments of the newest chunk."""
MAX_CHUNKS = 4_096
"""Chunks at most, more than half full: at least 8 million segments, a day of 100 transactions a second."""


class Sealed(NamedTuple):
    """A chunk that is written again only to be joined. `value` is empty once that is done no more."""

    target: int
    size: int
    value: bytes = b""

    @classmethod
    def of(cls, chunk: Chunk) -> Sealed:
        return cls(chunk.target, chunk.size, b"" if is_large(chunk.size) else encode_chunk(chunk))


@dataclass(frozen=True, slots=True)
class Written:
    """Chunks of this owner in the topic. `begin`: see `Chunk`; `mapped`: as the last position names it.

    `former`: number of small chunks that former owners left.
    """

    partition: Partition
    source_topic: str
    target_topic: str
    begin: tuple[int, int] = NO_PLACE
    mapped: int = UNKNOWN
    chunk: Chunk | None = None
    sealed: tuple[Sealed, ...] = ()
    former: int = 0

    @property
    def chunks(self) -> int:
        """Number of small chunks of the partition in the topic."""
        small = sum(not is_large(chunk.size) for chunk in self.sealed)
        return self.former + small + (self.chunk is not None)

    def interrupted(self) -> Written:
        """Positions are committed without the map: what is written next does not go on from here.

        The chunks stay known, so that they are joined, and their keys deleted.
        """
        sealed = self.sealed
        if self.chunk:
            sealed += (Sealed.of(self.chunk),)
        return Written(
            self.partition,
            self.source_topic,
            self.target_topic,
            sealed=sealed,
            former=self.former,
        )


def advance(written: Written, newest: Sequence[MapSegment]) -> tuple[Written, list[Row]]:
    """`newest`: segments from the last one that was written, or all of them."""
    if not newest:
        return written, []
    chunk = written.chunk
    segments = _continued(chunk.segments if chunk else (), newest)
    if chunk and _only_grown(chunk, segments):
        return replace(written, chunk=replace(chunk, segments=segments)), []
    parts = _parts(written, segments)
    kept, gone = _kept(written, parts[0].target)
    rows = [tombstone(written.partition, target) for target in gone]
    rows += [row(written.partition, part) for part in parts]
    sealed, more = packed_up(written.partition, kept, parts[:-1])
    changed = replace(written, chunk=parts[-1], sealed=sealed, mapped=parts[-1].segments[-1].target)
    return changed, rows + more


def _continued(
    before: Sequence[MapSegment], newest: Sequence[MapSegment]
) -> tuple[MapSegment, ...]:
    """The first of the newest follows what it followed when it was written first: the lane may know others
    before it by then."""
    first = newest[0]
    kept = cut(before, first.target)
    same = before[len(kept)] if len(kept) < len(before) else None
    follows = same is not None and _is_same(same, first) and same.follows
    return (*kept, first._replace(follows=follows), *newest[1:])


def _is_same(one: MapSegment, other: MapSegment) -> bool:
    return (one.first, one.target) == (other.first, other.target)


def _only_grown(chunk: Chunk, segments: Sequence[MapSegment]) -> bool:
    """The last segment is the same up to its end."""
    last, before = segments[-1], chunk.segments[-1]
    return (
        len(segments) == len(chunk.segments)
        and segments[:-1] == chunk.segments[:-1]
        and last._replace(end=before.end) == before
        and last.end >= before.end
    )


def _parts(written: Written, segments: Sequence[MapSegment]) -> list[Chunk]:
    """Chunks of these segments: large ones, and the newest."""
    large = (len(segments) - 1) // CHUNK_SEGMENTS * CHUNK_SEGMENTS
    starts = [*range(0, large, FULL_SEGMENTS), large]
    stops = [*starts[1:], len(segments)]
    return [_part(written, segments, *bounds) for bounds in zip(starts, stops, strict=True)]


def _part(written: Written, segments: Sequence[MapSegment], at: int, stop: int) -> Chunk:
    first, chunk = segments[at], written.chunk
    if at:
        begin, after = NO_PLACE, segments[at - 1].target_end if first.follows else UNKNOWN
    elif chunk is None:
        begin, after = written.begin, UNKNOWN
    else:
        begin = chunk.begin
        after = chunk.after if _is_same(chunk.segments[0], first) else UNKNOWN
    return Chunk(
        written.source_topic,
        written.target_topic,
        (first._replace(follows=False), *segments[at + 1 : stop]),
        open=stop == len(segments),
        begin=begin,
        after=after,
    )


def _kept(written: Written, target: int) -> tuple[list[Sealed], list[int]]:
    """Sealed chunks before an offset of the target; ids of the chunks behind it, where the log went back."""
    kept = [chunk for chunk in written.sealed if chunk.target < target]
    gone = [chunk.target for chunk in written.sealed if chunk.target >= target]
    if written.chunk and written.chunk.target > target:
        gone.append(written.chunk.target)
    return kept, [other for other in gone if other != target]


def packed_up(
    partition: Partition, sealed: Sequence[Sealed], more: Iterable[Chunk]
) -> tuple[tuple[Sealed, ...], list[Row]]:
    """Sealed chunks with others behind them, joined, and at most `MAX_CHUNKS`. The rows of the others are
    written already; one that replaces several stands before their tombstones."""
    rows = list[Row]()
    start = max((at for at, chunk in enumerate(sealed, 1) if not chunk.value), default=0)
    chunks = list(sealed[:start])
    following: list[Sealed | Chunk] = [*sealed[start:], *more]
    for chunk in following:
        joined: Sealed | Chunk = chunk
        gone = list[int]()
        while chunks and _joins(chunks[-1], joined.size):
            gone.append(joined.target)
            joined = together(decode_chunk(chunks.pop().value), _chunk(joined))
        if gone:
            rows.append(row(partition, _chunk(joined)))
            rows += [tombstone(partition, target) for target in reversed(gone)]
        if is_large(joined.size):  # nothing before it is joined any more
            chunks = [before._replace(value=b"") for before in chunks]
        chunks.append(joined if isinstance(joined, Sealed) else Sealed.of(joined))
    if len(chunks) > MAX_CHUNKS:
        rows += [tombstone(partition, chunk.target) for chunk in chunks[1 : MAX_CHUNKS // 2 : 2]]
        del chunks[1 : MAX_CHUNKS // 2 : 2]
    return tuple(chunks), rows


def _joins(older: Sealed, size: int) -> bool:
    return bool(older.value) and older.size < 2 * size and older.size + size <= FULL_SEGMENTS


def _chunk(row: Sealed | Chunk) -> Chunk:
    return row if isinstance(row, Chunk) else decode_chunk(row.value)
