"""Chunks that former owners left: the present owner takes them over, so that their number is bounded. Pure.

    adopted(written, what the topic holds) -> what is written then, rows

Each owner leaves some small chunks, and a partition may have many owners. Neighbours are joined, without a
loss, and no more than `MAX_CHUNKS` of all owners stay. Former owners are fenced, so nobody else writes these
keys.
Rewritten chunks have a level of at least 1, as readers take one of level 0 for the newest of the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import zip_longest

from ureplicator_common.offset_map.chunks import (
    FULL_SEGMENTS,
    NO_PLACE,
    UNKNOWN,
    Chunk,
    extended,
    is_large,
    together,
)
from ureplicator_common.offset_map.codec import Row, decode_chunk, encode_chunk, row, tombstone
from ureplicator_common.offset_map.partition_map import Entry, PartitionMap
from ureplicator_common.offset_map.segments import MapSegment, cut
from ureplicator_common.offset_map.writing import Sealed, Written, packed_up

MAX_FORMER = 64
"""Small chunks of former owners, above which they are adopted."""


def adopted(written: Written, known: PartitionMap) -> tuple[Written, list[Row]]:
    """`known`: all that former owners wrote, and maybe some of what this one did."""
    own = [*(chunk.target for chunk in written.sealed), *_open(written)]
    if not own:
        return written, []
    former = _former(known, written, own[0])
    packed = _packed(_closed(former))
    values = {chunk.target: chunk.value for chunk in former}
    rows = [
        row(written.partition, chunk)
        for chunk in packed
        if isinstance(chunk, Chunk) and encode_chunk(chunk) != values[chunk.target]
    ]
    before = [Sealed(chunk.target, _size(chunk)) for chunk in packed]
    sealed, _ = packed_up(written.partition, [*before, *written.sealed], ())
    kept = {*(chunk.target for chunk in sealed), *_open(written)}
    gone = sorted({*known.keys, *own} - kept)
    rows += [tombstone(written.partition, target) for target in gone]
    return replace(written, sealed=sealed, former=0), rows


def _open(written: Written) -> Sequence[int]:
    return [written.chunk.target] if written.chunk else []


def _size(row: Chunk | Entry) -> int:
    return row.size if isinstance(row, Chunk) else row.head.size


def _former(known: PartitionMap, written: Written, own: int) -> Sequence[Entry]:
    if known.topics != (written.source_topic, written.target_topic):
        return []
    return [entry for entry in known.entries if entry.target < own]


def _closed(former: Sequence[Entry]) -> Iterable[Chunk | Entry]:
    """Small ones up to where they hold, which their follower says of an open one."""
    after = UNKNOWN
    for entry, follower in zip_longest(former, former[1:]):
        if entry.value is None or is_large(entry.head.size):
            after = UNKNOWN
            yield entry
            continue
        chunk = decode_chunk(entry.value)
        if after != UNKNOWN:
            chunk = replace(chunk, after=after, level=max(1, chunk.level))
        after = UNKNOWN
        if follower is not None:
            begin = follower.head.begin if chunk.open else NO_PLACE
            segments = cut(extended(chunk.segments, *begin), follower.target)
            after = segments[-1].target_end if segments[-1].end == begin[0] else UNKNOWN
            chunk = _until(chunk, segments)
        yield chunk


def _until(chunk: Chunk, segments: tuple[MapSegment, ...]) -> Chunk:
    if not chunk.open and segments == chunk.segments:
        return chunk
    return replace(chunk, segments=segments, open=False, level=max(1, chunk.level))


def _packed(chunks: Iterable[Chunk | Entry]) -> list[Chunk | Entry]:
    """An open one is the last: it stays, as the first chunk of the present owner says where it ends."""
    packed: list[Chunk | Entry] = []
    for chunk in chunks:
        last = packed[-1] if packed else None
        if isinstance(last, Chunk) and isinstance(chunk, Chunk) and _join(last, chunk):
            packed[-1] = together(last, chunk)
        else:
            packed.append(chunk)
    return packed


def _join(last: Chunk, chunk: Chunk) -> bool:
    return not chunk.open and last.size + chunk.size <= FULL_SEGMENTS
