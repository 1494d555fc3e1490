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
    """Frames from bytes that arrive in any pieces. A payload is copied once, to memory of its own."""

    def __init__(self) -> None:
        self._begun = bytearray()
        """Lengths and head of a frame whose head is not whole."""
        self._head: Head | None = None
        self._payload = bytearray()
        self._filled = 0

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are whole now. Raises MalformedFrame."""
        frames: list[Frame] = []
        left = memoryview(data)
        while left:
            if self._head is None:
                left = self._read_head(left)
            if self._head is not None:
                left = self._read_payload(left)
                if self._filled == len(self._payload):
                    frames.append((self._head, memoryview(self._payload)))
                    self._head = None
        return iter(frames)

    def _read_head(self, data: memoryview) -> memoryview:
        """Return what is behind it. Raises MalformedFrame."""
        data = self._begin(data, _LENGTHS.size)
        if len(self._begun) < _LENGTHS.size:
            return data
        head_size, payload_size = _LENGTHS.unpack_from(self._begun)
        if head_size > MAX_HEAD_BYTES or payload_size > MAX_PAYLOAD_BYTES:
            raise MalformedFrame(f"a frame of {head_size} and {payload_size} bytes")
        end = _LENGTHS.size + head_size
        data = self._begin(data, end)
        if len(self._begun) == end:
            self._head = _head(self._begun[_LENGTHS.size :])
            self._payload, self._filled = bytearray(payload_size), 0
            self._begun.clear()
        return data

    def _begin(self, data: memoryview, end: int) -> memoryview:
        """Read lengths and head up to `end`."""
        missing = max(0, end - len(self._begun))
        self._begun += data[:missing]
        return data[missing:]

    def _read_payload(self, data: memoryview) -> memoryview:
        begin = self._filled
        taken = min(len(data), len(self._payload) - begin)
        self._filled += taken
        self._payload[begin : self._filled] = data[:taken]
        return data[taken:]


def _head(text: bytearray) -> Head:
    try:
        head = json.loads(text)
    except ValueError as error:
        raise MalformedFrame(f"no JSON: {error}") from error
    if not isinstance(head, dict):
        raise MalformedFrame("no object")
    return head
