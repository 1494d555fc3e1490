"""Unsigned varints of the flexible protocol versions (KIP-482). Hot path."""

from __future__ import annotations

from collections.abc import Mapping

from ureplicator_common.kafka.wire.reader import MAX_SHIFT
from ureplicator_common.kafka.wire.request import compact, varint


class MalformedResponse(Exception):
    """The bytes are no response of the protocol; whatever sent them, the connection is of no use."""


def read(buffer: bytearray | memoryview | bytes, at: int) -> tuple[int, int]:
    """(value, place behind it)."""
    byte = buffer[at]
    at += 1
    if byte < 0x80:
        return byte, at
    value = byte & 0x7F
    shift = 7
    while True:
        byte = buffer[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        if shift == MAX_SHIFT:
            raise MalformedResponse("malformed response: a varint of more than five bytes")
        shift += 7


encode, text = varint, compact
"""A value below 2^31 as bytes; a compact string."""


def read_text(buffer: bytearray | memoryview | bytes, at: int) -> tuple[str, int]:
    """(compact nullable string, place behind it); null is "" here."""
    size, at = read(buffer, at)
    if size <= 1:
        return "", at
    return bytes(buffer[at : at + size - 1]).decode(errors="replace"), at + size - 1


NO_TAGS: Mapping[int, int] = {}


def read_tags(buffer: bytearray | memoryview | bytes, at: int) -> tuple[Mapping[int, int], int]:
    """(places of the contents by tag, place behind the section)."""
    count, at = read(buffer, at)
    if not count:
        return NO_TAGS, at
    places: dict[int, int] = {}
    for _ in range(count):
        tag, at = read(buffer, at)
        size, at = read(buffer, at)
        places[tag] = at
        at += size
    return places, at


def skip_tags(buffer: bytearray | memoryview | bytes, at: int) -> int:
    """Place behind a tagged-field section, whose fields are skipped."""
    count, at = read(buffer, at)
    for _ in range(count):
        _tag, at = read(buffer, at)
        size, at = read(buffer, at)
        at += size
    return at
