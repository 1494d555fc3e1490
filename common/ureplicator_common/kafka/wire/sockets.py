"""Reading from a blocking socket."""

from __future__ import annotations

import math
import socket
import time

READ_BYTES = 1 << 16
MOST_BYTES = 1 << 20
"""Bytes that one call reads of a large response."""


def receive_exactly(connection: socket.socket, size: int) -> bytearray:
    """`size` bytes. Raises ConnectionError when the peer ends first, TimeoutError."""
    buffer = bytearray(size)
    view = memoryview(buffer)
    filled = 0
    while filled < size:
        count = connection.recv_into(view[filled:])
        if count == 0:
            raise ConnectionResetError("connection closed by the broker")
        filled += count
    return buffer


class Incoming:
    """Bytes of a socket, read as many at once as have arrived: most responses are small, and a call to the
    system for each would have the thread wait for Python's lock as often."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._arrived = bytearray()

    def __bool__(self) -> bool:
        """True if something has arrived that nobody has taken."""
        return bool(self._arrived)

    def take(self, size: int, *, silence_s: float, deadline_s: float = math.inf) -> bytes:
        """The next `size` bytes. Raises ConnectionError when the peer ends first, TimeoutError."""
        while len(self._arrived) < size:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("no response within the deadline")
            self._connection.settimeout(max(0.001, min(silence_s, left_s)))
            missing = size - len(self._arrived)
            received = self._connection.recv(min(MOST_BYTES, max(READ_BYTES, missing)))
            if not received:
                raise ConnectionResetError("connection closed by the broker")
            self._arrived += received
        taken = bytes(self._arrived[:size])
        del self._arrived[:size]
        return taken
