"""Segments as bytes: few of them for each, so that a chunk can hold thousands. Pure.

Three numbers a segment: distance from the end of the segment before in the source, with two bits for
`repeated` and `follows`; length; distance from its end in the target. Each is a variable-length integer as in
Protocol Buffers (https://protobuf.dev/programming-guides/encoding/#varints), signed ones by zigzag.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ureplicator_common.offset_map.segments import MapSegment

REPEATED, FOLLOWS = 1, 2


def packed(segments: Iterable[MapSegment]) -> bytes:
    data = bytearray()
    source = target = 0
    for first, end, at, repeated, follows in segments:
        flags = repeated * REPEATED | follows * FOLLOWS
        gap, length, distance = first - source, end - first, at - target
        if 0 <= gap < 16 and 0 <= length < 64 and 0 <= distance < 64:  # most, in a byte each
            data += bytes((gap << 3 | flags, length << 1, distance << 1))
        else:
            for number in (_zigzag(gap) << 2 | flags, _zigzag(length), _zigzag(distance)):
                _append(data, number)
        source, target = end, at + end - first
    return bytes(data)


def _append(data: bytearray, number: int) -> None:
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)


def unpacked(data: bytes) -> Iterator[MapSegment]:
    source = target = 0
    numbers = _numbers(data)
    for number, length, distance in zip(numbers, numbers, numbers, strict=True):
        first, at = source + _signed(number >> 2), target + _signed(distance)
        source = first + _signed(length)
        target = at + source - first
        yield MapSegment(first, source, at, bool(number & REPEATED), bool(number & FOLLOWS))


def _numbers(data: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in data:
        if byte > 0x7F:
            number |= (byte & 0x7F) << shift
            shift += 7
            continue
        yield number | byte << shift
        number = shift = 0


def _zigzag(number: int) -> int:
    return number << 1 if number >= 0 else (-number << 1) - 1


def _signed(number: int) -> int:
    return number >> 1 if not number & 1 else -((number + 1) >> 1)
