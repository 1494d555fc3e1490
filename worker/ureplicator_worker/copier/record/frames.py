"""Messages between a copier and the process of a handler, on a stream socket. Pure.

    4 bytes length of the head | 4 bytes length of the payload | head: JSON object | payload: bytes

    copier to process                               process to copier
    -------------------------------------------     -----------------------------------------
    handler, args, deadLetterTopic, timeout, memory {"ready": true}     the handler is made
                                                    {"broken": reason}  it cannot be made
    {"do": "assign", topic, partition, offset}      {"done": true}, or {"failed": reason}
    {"do": "release", topic, partition}
    {"do": "handle", topic, partition, target,      {"handled": next offset, batches: [...], counts},
     batches: [[size, position], ...], next, more}  often, then {"done": true, busyMs}, or {"failed": reason}
    {"partitions": topic, count}                    {"which": topic}    how many partitions has it?

`more`: the next chunk is sent behind this one. The process does one thing after the other, and its results
have the same order.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from typing import Any

_LENGTHS = struct.Struct(">II")
MAX_HEAD_BYTES = 16 << 20
MAX_PAYLOAD_BYTES = 256 << 20

Head = dict[str, Any]
Frame = tuple[Head, memoryview]


class MalformedFrame(Exception):
    """Bytes that no copier and no process sends."""


def encode(head: Head, payload: Sequence[bytes | bytearray | memoryview] = ()) -> list[Any]:
    """The pieces to send, in order."""
    text = json.dumps(head, separators=(",", ":")).encode()
    return [_LENGTHS.pack(len(text), sum(map(len, payload))) + text, *payload]


class FrameReader:
    """Frames from bytes that arrive in any pieces."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are whole now. Raises MalformedFrame."""
        self._data += data
        at = 0
        whole = self._data
        frames = []
        while len(whole) - at >= _LENGTHS.size:
            head_size, payload_size = _LENGTHS.unpack_from(whole, at)
            if head_size > MAX_HEAD_BYTES or payload_size > MAX_PAYLOAD_BYTES:
                raise MalformedFrame(f"a frame of {head_size} and {payload_size} bytes")
            start = at + _LENGTHS.size
            end = start + head_size + payload_size
            if end > len(whole):
                break
            middle = start + head_size
            with memoryview(whole) as view:
                payload = bytes(view[middle:end])
            frames.append((_head(whole[start:middle]), memoryview(payload)))
            at = end
        del whole[:at]
        return iter(frames)


def _head(text: bytearray) -> Head:
    try:
        head = json.loads(text)
    except ValueError as error:
        raise MalformedFrame(f"no JSON: {error}") from error
    if not isinstance(head, dict):
        raise MalformedFrame("no object")
    return head
