"""Frames between the process of a handler and its copier, from the side of the process."""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Iterable

from ureplicator_worker.copier.record.frames import Frame, FrameReader, Head, encode

COUNT_KEPT_S = 10.0
"""Time for which the partition count of a target topic is taken from memory; it may grow."""
READ_BYTES = 1 << 20


class CopierGone(Exception):
    """The socket was closed."""


class Channel:
    """Frames over a blocking socket."""

    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer
        self._reader = FrameReader()
        self._frames: deque[Frame] = deque()

    def receive(self) -> Frame:
        """The next frame. Raises CopierGone."""
        while not self._frames:
            data = self._peer.recv(READ_BYTES)
            if not data:
                raise CopierGone
            self._frames += self._reader.feed(data)
        return self._frames.popleft()

    @property
    def readable(self) -> bool:
        """The copier has sent something more, at least in part, or has gone."""
        return bool(self._frames) or bool(select.select([self._peer], [], [], 0)[0])

    def send(self, head: Head, payload: Iterable[bytes | bytearray] = ()) -> None:
        for piece in encode(head, tuple(payload)):
            self._peer.sendall(piece)


class Inbox:
    """Work from the copier, in order, and its knowledge of the target."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._waiting: deque[Frame] = deque()
        self._counts: dict[str, tuple[int, float]] = {}

    def next(self) -> Frame:
        """Raises CopierGone."""
        return self._waiting.popleft() if self._waiting else self._channel.receive()

    def peek(self, *, wait: bool = False) -> Frame | None:
        """Frame that `next` would return at once; None if it would wait. Raises CopierGone.

        `wait`: the copier is known to send one.
        """
        if not self._waiting and (wait or self._channel.readable):
            self._waiting.append(self._channel.receive())
        return self._waiting[0] if self._waiting else None

    def partition_count(self, topic: str) -> int:
        """The copier knows the target; meanwhile it may send other work."""
        count, until_s = self._counts.get(topic, (0, 0.0))
        if time.monotonic() < until_s:
            return count
        self._channel.send({"which": topic})
        while True:
            frame = self._channel.receive()
            if frame[0].get("partitions") == topic:
                count = int(frame[0]["count"])
                if count:
                    self._counts[topic] = (count, time.monotonic() + COUNT_KEPT_S)
                return count
            self._waiting.append(frame)
