"""Chunks that former owners left: the present owner takes them over, so that their number is bounded. Pure.

    adopted(written, what the topic holds) -> what is written then, rows

Each owner leaves at least one chunk, and a partition may have many owners. The chunks are packed: small ones
are joined, and more than `PER_LEVEL` of a level are thinned out as those of one owner are. Former owners are
fenced, so nobody else writes these keys. Rewritten chunks have a level of at least 1, as readers take one of
level 0 for the newest of the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from ureplicator_common.offset_map.chunks import NO_PLACE, Chunk, PartitionMap, extended
from ureplicator_common.offset_map.codec import Row, decode_chunk, encode_chunk, row, tombstone
from ureplicator_common.offset_map.segments import cut, joined
from ureplicator_common.offset_map.writing import CHUNK_SEGMENTS, Sealed, Written, thinned_out

MAX_FORMER = 64
"""Chunks of former owners, above which they are adopted."""


def adopted(written: Written, known: PartitionMap) -> tuple[Written, list[Row]]:
    """`known`: all that former owners wrote, and maybe some of what this one did."""
    own = _first_own(written)
    if own is None:
        return written, []
    packed = _packed(_levelled(_closed(_former(known, own), own), _level(written)))
    before = {each.target: encode_chunk(each) for each in known.chunks}
    before |= {each.target: each.value for each in written.sealed}
    sealed, _ = thinned_out(written.partition, (*_sealed(packed), *written.sealed))
    return replace(written, sealed=sealed, former=0), _rows(written, before, known.keys, sealed)


def _first_own(written: Written) -> Chunk | None:
    return decode_chunk(written.sealed[0].value) if written.sealed else written.chunk


def _level(written: Written) -> int:
    """Lowest one that may stand before the sealed chunks of this owner."""
    return max(1, written.sealed[0].level if written.sealed else 0)


def _former(known: PartitionMap, own: Chunk) -> list[Chunk]:
    topics = own.source_topic, own.target_topic
    return [
        each
        for each in known.chunks
        if each.target < own.target and (each.source_topic, each.target_topic) == topics
    ]


def _closed(former: Sequence[Chunk], own: Chunk) -> list[Chunk]:
    """Each up to where it holds: an open one to where its follower began."""
    closed = []
    for chunk, follower in pairwise([*former, own]):
        segments = chunk.segments
        if chunk.open:
            segments = extended(segments, *follower.begin)
        segments = cut(segments, follower.target)
        closed.append(replace(chunk, segments=segments, open=False, begin=NO_PLACE))
    return closed


def _levelled(chunks: Sequence[Chunk], level: int) -> list[Chunk]:
    """Levels that do not rise towards the end of the log, as `thinned_out` wants them."""
    found = []
    for chunk in reversed(chunks):
        level = max(level, chunk.level)
        found.append(replace(chunk, level=level))
    return found[::-1]


def _packed(chunks: Iterable[Chunk]) -> list[Chunk]:
    packed: list[Chunk] = []
    for chunk in chunks:
        last = packed[-1] if packed else None
        if last and last.level == chunk.level:
            together = joined((*last.segments, *chunk.segments))
            if len(together) <= CHUNK_SEGMENTS:
                packed[-1] = replace(last, segments=together)
                continue
        packed.append(chunk)
    return packed


def _sealed(chunks: Iterable[Chunk]) -> Iterator[Sealed]:
    for chunk in chunks:
        yield Sealed(chunk.level, chunk.target, encode_chunk(chunk))


def _rows(
    written: Written, before: Mapping[int, bytes], keys: Iterable[int], after: Sequence[Sealed]
) -> list[Row]:
    """What differs; a chunk stands before the tombstones of those that it replaces."""
    kept = {each.target for each in after}
    if written.chunk:
        kept.add(written.chunk.target)
    rows = [
        row(written.partition, decode_chunk(each.value))
        for each in after
        if before.get(each.target) != each.value
    ]
    gone = sorted({*keys, *(each.target for each in written.sealed)} - kept)
    return rows + [tombstone(written.partition, target) for target in gone]
