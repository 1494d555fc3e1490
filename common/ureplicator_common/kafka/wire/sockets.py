"""Reading from a blocking socket."""

from __future__ import annotations

import math
import socket
import time


def receive_exactly(
    connection: socket.socket,
    size: int,
    *,
    silence_s: float | None = None,
    deadline_s: float = math.inf,
) -> bytearray:
    """`size` bytes. Raises ConnectionError when the peer ends first, TimeoutError."""
    buffer = bytearray(size)
    view = memoryview(buffer)
    filled = 0
    while filled < size:
        if silence_s is not None:
            connection.settimeout(max(0.001, min(silence_s, deadline_s - time.monotonic())))
        count = connection.recv_into(view[filled:])
        if count == 0:
            raise ConnectionResetError("connection closed by the broker")
        filled += count
    return buffer
