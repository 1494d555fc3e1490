"""Rows of the topic: compact JSON arrays, a version first. Pure.

    key     [1, source cluster, target cluster, topic, partition, target offset of the chunk]
    value   [1, source topic id, target topic id, level, open, begin, end at begin, segments,
             after, lowest source offset, highest one, size, all segments packed, in Base64]

Segments are numbers in fours: distance from the end of the segment before in the source, length, distance
from its end in the target, repeated. Clusters have their names in the configuration, topics their ids.

The second line is left out where it says nothing more. Readers of versions that do not know it find at most
`SAMPLES` of the segments in the first, and round down between them.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from ureplicator_common.errors import PermanentError
from ureplicator_common.model import Partition, Route
from ureplicator_common.offset_map.chunks import UNKNOWN, Chunk
from ureplicator_common.offset_map.packing import packed, unpacked
from ureplicator_common.offset_map.segments import MapSegment

FORMAT = 1
FIELDS = 4
SAMPLES = 32
PLAIN, WHOLE = 7, 12
"""Fields behind the version, without and with the second line."""


class UnknownMapFormat(PermanentError):
    """A row of the map is of a format that this version does not read."""


class Row(NamedTuple):
    """`value` None: a tombstone."""

    key: bytes
    value: bytes | None


class Head(NamedTuple):
    """A chunk without its segments. `low`, `high`: source offsets of all of them lie in this range."""

    target: int
    topics: tuple[str, str]
    level: int
    open: bool
    begin: tuple[int, int]
    after: int
    low: int
    high: int
    size: int


class MapKey(NamedTuple):
    """`target`: of the chunk's first segment."""

    partition: Partition
    target: int


def encode_key(key: MapKey) -> bytes:
    (source, target), topic, number = key.partition
    return _text([FORMAT, source, target, topic, number, key.target])


def decode_key(text: bytes) -> MapKey:
    """Raises UnknownMapFormat."""
    source, target, topic, number, offset = _fields("key", text, 5)[:5]
    return MapKey(Partition(Route(source, target), topic, number), offset)


def encode_chunk(chunk: Chunk) -> bytes:
    segments = chunk.segments
    samples = segments[:: -(-len(segments) // SAMPLES)]
    fields = [
        FORMAT,
        chunk.source_topic,
        chunk.target_topic,
        chunk.level,
        int(chunk.open),
        *chunk.begin,
        list(chain.from_iterable(_distances(samples))),
    ]
    if len(samples) < len(segments) or chunk.after != UNKNOWN or any(s.follows for s in segments):
        low, high = _range(segments)
        data = binascii.b2a_base64(packed(segments), newline=False).decode()
        fields += [chunk.after, low, high, len(segments), data]
    return _text(fields)


def decode_chunk(text: bytes) -> Chunk:
    """Raises UnknownMapFormat."""
    head, fields = _decoded(text)
    return Chunk(*head.topics, _all(fields), head.open, head.level, head.begin, head.after)


def decode_head(text: bytes) -> Head:
    """Raises UnknownMapFormat."""
    return _decoded(text)[0]


def _decoded(text: bytes) -> tuple[Head, list[Any]]:
    fields = _fields("value", text, PLAIN)
    source, target, level, is_open, *begin, numbers = fields[:PLAIN]
    if not numbers or len(numbers) % FIELDS:
        raise UnknownMapFormat(f"offset map: a value with {len(numbers)} numbers")
    first = next(_segments(numbers))
    if len(fields) < WHOLE:
        segments = tuple(_segments(numbers))
        after, (low, high), size = UNKNOWN, _range(segments), len(segments)
    else:
        after, low, high, size = fields[PLAIN : WHOLE - 1]
    place = (begin[0], begin[1])
    topics = (source, target)
    return Head(first.target, topics, level, bool(is_open), place, after, low, high, size), fields


def _all(fields: Sequence[Any]) -> tuple[MapSegment, ...]:
    if len(fields) < WHOLE:
        return tuple(_segments(fields[PLAIN - 1]))
    try:
        return tuple(unpacked(binascii.a2b_base64(fields[WHOLE - 1])))
    except (ValueError, TypeError) as error:
        raise UnknownMapFormat(f"offset map: segments that cannot be read: {error}") from error


def _range(segments: Sequence[MapSegment]) -> tuple[int, int]:
    return min(segment.first for segment in segments), max(segment.end for segment in segments)


def row(partition: Partition, chunk: Chunk) -> Row:
    return Row(encode_key(MapKey(partition, chunk.target)), encode_chunk(chunk))


def tombstone(partition: Partition, target: int) -> Row:
    return Row(encode_key(MapKey(partition, target)), None)


def _text(fields: Sequence[Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _fields(what: str, text: bytes, count: int) -> list[Any]:
    """Fields behind the version; a later version may add some at the end."""
    fields: list[Any]
    try:
        form, *fields = json.loads(text)
    except (ValueError, TypeError) as error:
        raise UnknownMapFormat(
            f"offset map: a {what} that is no JSON array: {text[:80]!r}"
        ) from error
    if form != FORMAT or len(fields) < count:
        raise UnknownMapFormat(
            f"offset map: a {what} of format {form!r}; this version reads format {FORMAT}"
        )
    return fields


def _distances(segments: Sequence[MapSegment]) -> Iterator[tuple[int, int, int, int]]:
    source = target = 0
    for segment in segments:
        first, end, at, repeated, _ = segment
        yield first - source, end - first, at - target, int(repeated)
        source, target = end, segment.target_end


def _segments(numbers: Sequence[int]) -> Iterator[MapSegment]:
    source = target = 0
    for at in range(0, len(numbers), FIELDS):
        first, length, distance, repeated = numbers[at : at + FIELDS]
        segment = MapSegment(
            source + first, source + first + length, target + distance, bool(repeated)
        )
        source, target = segment.end, segment.target_end
        yield segment
