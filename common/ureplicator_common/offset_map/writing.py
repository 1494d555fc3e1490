"""Rows that a copier writes of a partition's map: only where a segment begins. Pure.

    advance(written, the lane's newest segments) -> what is written then, rows

A chunk that is full is sealed, and a new one begins. The number of chunks is bounded: once there are more
than `PER_LEVEL` of a level, two neighbours become one of the next level, with every second segment. So the
newest segments are all kept, and farther from the end a part that shrinks with the distance.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ureplicator_common.model import Partition
from ureplicator_common.offset_map.chunks import NO_PLACE, UNKNOWN, Chunk, thinner
from ureplicator_common.offset_map.codec import (
    Row,
    decode_chunk,
    encode_chunk,
    row,
    tombstone,
)
from ureplicator_common.offset_map.segments import MapSegment, cut

CHUNK_SEGMENTS = 32
PER_LEVEL = 4


class Sealed(NamedTuple):
    """A chunk that is not written again, encoded: a slot holds many."""

    level: int
    target: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Written:
    """Chunks of this owner in the topic. `begin`: see `Chunk`; `mapped`: as the last position names it.

    `former`: number of chunks that former owners left.
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
        """Number of chunks of the partition in the topic."""
        return self.former + len(self.sealed) + (self.chunk is not None)

    def interrupted(self) -> Written:
        """Positions are committed without the map: what is written next does not go on from here.

        The chunks stay known, so that they are thinned, and their keys deleted.
        """
        sealed = self.sealed
        if self.chunk:
            sealed += (Sealed(0, self.chunk.target, encode_chunk(self.chunk)),)
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
    before = chunk.segments if chunk else ()
    segments = (*cut(before, newest[0].target), *newest)
    if chunk and _only_grown(chunk, segments):
        return replace(written, chunk=replace(chunk, segments=segments)), []
    parts = [
        Chunk(
            written.source_topic,
            written.target_topic,
            segments[at : at + CHUNK_SEGMENTS],
            open=at + CHUNK_SEGMENTS >= len(segments),
            begin=NO_PLACE if at else written.begin if not chunk else chunk.begin,
        )
        for at in range(0, len(segments), CHUNK_SEGMENTS)
    ]
    kept, gone = _kept(written, parts[0].target)
    rows = [tombstone(written.partition, target) for target in gone]
    rows += [row(written.partition, part) for part in parts]
    sealed = (*kept, *(Sealed(0, part.target, encode_chunk(part)) for part in parts[:-1]))
    thinned, more = thinned_out(written.partition, sealed)
    changed = replace(
        written, chunk=parts[-1], sealed=thinned, mapped=parts[-1].segments[-1].target
    )
    return changed, rows + more


def _only_grown(chunk: Chunk, segments: Sequence[MapSegment]) -> bool:
    """The last segment is the same up to its end."""
    last, before = segments[-1], chunk.segments[-1]
    return (
        len(segments) == len(chunk.segments)
        and segments[:-1] == chunk.segments[:-1]
        and last._replace(end=before.end) == before
        and last.end >= before.end
    )


def _kept(written: Written, target: int) -> tuple[list[Sealed], list[int]]:
    """Sealed chunks before an offset of the target; ids of the chunks behind it, where the log went back."""
    kept = [each for each in written.sealed if each.target < target]
    gone = [each.target for each in written.sealed if each.target >= target]
    if written.chunk and written.chunk.target > target:
        gone.append(written.chunk.target)
    return kept, [each for each in gone if each != target]


def thinned_out(
    partition: Partition, sealed: Iterable[Sealed]
) -> tuple[tuple[Sealed, ...], list[Row]]:
    """At most `PER_LEVEL` of each level."""
    chunks, rows = list(sealed), []
    while (at := _crowded(chunks)) is not None:
        older, newer = (decode_chunk(each.value) for each in chunks[at : at + 2])
        one = thinner(older, newer)
        chunks[at : at + 2] = [Sealed(one.level, one.target, encode_chunk(one))]
        rows += [row(partition, one), tombstone(partition, newer.target)]
    return tuple(chunks), rows


def _crowded(chunks: Sequence[Sealed]) -> int | None:
    """Index of the oldest chunk of a level that has too many; they are in the order of their levels."""
    for level in {each.level for each in chunks}:
        places = [at for at, each in enumerate(chunks) if each.level == level]
        if len(places) > PER_LEVEL:
            return places[0]
    return None
