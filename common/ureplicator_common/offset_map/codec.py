"""Rows of the topic: compact JSON arrays, a version first. Pure.

    key     [1, source cluster, target cluster, topic, partition, target offset of the chunk]
    value   [1, source topic id, target topic id, level, open, begin, end at begin, segments]

Segments are numbers in fours: distance from the end of the segment before in the source, length, distance
from its end in the target, repeated. Clusters have their names in the configuration, topics their ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from ureplicator_common.errors import PermanentError
from ureplicator_common.model import Partition, Route
from ureplicator_common.offset_map.chunks import Chunk
from ureplicator_common.offset_map.segments import MapSegment

FORMAT = 1
FIELDS = 4


class UnknownMapFormat(PermanentError):
    """A row of the map is of a format that this version does not read."""


class Row(NamedTuple):
    """`value` None: a tombstone."""

    key: bytes
    value: bytes | None


class MapKey(NamedTuple):
    """`target`: of the chunk's first segment."""

    partition: Partition
    target: int


def encode_key(key: MapKey) -> bytes:
    (source, target), topic, number = key.partition
    return _text([FORMAT, source, target, topic, number, key.target])


def decode_key(text: bytes) -> MapKey:
    """Raises UnknownMapFormat."""
    source, target, topic, number, offset = _fields("key", text, 5)
    return MapKey(Partition(Route(source, target), topic, number), offset)


def encode_chunk(chunk: Chunk) -> bytes:
    numbers = list(chain.from_iterable(_distances(chunk.segments)))
    begin, end = chunk.begin
    return _text(
        [
            FORMAT,
            chunk.source_topic,
            chunk.target_topic,
            chunk.level,
            int(chunk.open),
            begin,
            end,
            numbers,
        ]
    )


def decode_chunk(text: bytes) -> Chunk:
    """Raises UnknownMapFormat."""
    source, target, level, is_open, begin, end, numbers = _fields("value", text, 7)
    if not numbers or len(numbers) % FIELDS:
        raise UnknownMapFormat(f"offset map: a value with {len(numbers)} numbers")
    return Chunk(source, target, tuple(_segments(numbers)), bool(is_open), level, (begin, end))


def row(partition: Partition, chunk: Chunk) -> Row:
    return Row(encode_key(MapKey(partition, chunk.target)), encode_chunk(chunk))


def tombstone(partition: Partition, target: int) -> Row:
    return Row(encode_key(MapKey(partition, target)), None)


def _text(fields: Sequence[Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _fields(what: str, text: bytes, count: int) -> list[Any]:
    """Fields behind the version; what a later version adds at the end is ignored."""
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
    return fields[:count]


def _distances(segments: Sequence[MapSegment]) -> Iterator[tuple[int, int, int, int]]:
    source = target = 0
    for segment in segments:
        first, end, at, repeated = segment
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
