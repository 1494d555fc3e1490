"""Bytes of responses, one after the other: what is not looked at never comes into the process.

    kernel   | what the broker sends                                                     |
    buffer         | `_at` ... `_end` |   received, not taken yet
    response  ... taken | ---------- `left` ---------- |

The kernel discards what is passed over (`MSG_TRUNC`), which takes most of the cost away; with TLS it has to
be decrypted all the same. The headers of large batches are received alone, in portions of `HEADERS_BYTES`, so
that the records behind them can be discarded; small batches are received with what follows.

A thread that waits for a response is not woken for each packet, which costs more than all that is done with
the packet, but once for the whole response (`SO_RCVLOWAT`). It does not rely on that for longer than
`GATHERED_MS`: a line may be slow, and the window of a connection too small for so much.
"""

from __future__ import annotations

import mmap
import select
import socket
import ssl
import struct
from typing import Any

from crc32c import crc32c

BUFFER_BYTES = 128 << 10
HEADERS_BYTES = 4 << 10
"""Bytes that are received at once where most of a response is discarded."""
DISCARD_BYTES = 32 << 10
"""Bytes below which a rest is received with what follows: a system call costs more."""
MIN_GATHERED_BYTES = 64 << 10
GATHERED_MS = 10
SILENCE_S = 10

_SIZE = struct.Struct(">i")
_VOID_BYTES = 4 << 20
_DISCARD = int(socket.MSG_TRUNC | socket.MSG_WAITALL)


class Received:
    """The bytes of one response after the other, in order."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._discards = not isinstance(connection, ssl.SSLSocket)
        if self._discards:
            connection.settimeout(None)
            silence = struct.pack("ll", SILENCE_S, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, silence)
        else:
            connection.settimeout(SILENCE_S)
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._void = mmap.mmap(-1, _VOID_BYTES if self._discards else BUFFER_BYTES)
        self._at = self._end = 0
        self._portion = BUFFER_BYTES
        self._arrivals = select.poll()
        self._arrivals.register(connection, select.POLLIN)
        self.left = 0

    def begin(self) -> None:
        """The next response."""
        self.left = _SIZE.size
        (self.left,) = _SIZE.unpack(self.take(_SIZE.size))
        self._portion = BUFFER_BYTES
        self._gather(self.left - (self._end - self._at))

    def _gather(self, expected: int) -> None:
        """Sleep until this much has come, for `GATHERED_MS` at most."""
        if self._discards and expected >= MIN_GATHERED_BYTES:
            self._wake_at(expected)
            self._arrivals.poll(GATHERED_MS)
            self._wake_at(1)

    def _wake_at(self, count: int) -> None:
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    def take(self, count: int) -> memoryview:
        """The next bytes, valid until the next call. Raises ConnectionError, ValueError: there are less."""
        left = self.left - count
        if left < 0:
            raise ValueError(f"{count} bytes of a response that has {self.left}")
        if count > self._end - self._at:
            self._refill(count)
        self.left = left
        begin = self._at
        self._at = end = begin + count
        return self._buffer[begin:end]

    def _refill(self, count: int) -> None:
        end = self._end - self._at
        if end:
            self._buffer[:end] = bytes(self._buffer[self._at : self._end])
        most = min(max(self._portion, count), self.left)
        while end < count:
            into = self._buffer[end:] if end else self._buffer
            end += self._receive(into, most - end)
        self._at, self._end = 0, end

    def _receive(self, into: memoryview | mmap.mmap, most: int, flags: int = 0) -> int:
        """Wait for bytes: how many came, at least one."""
        count = self._connection.recv_into(into, most, flags)
        if not count:
            raise ConnectionResetError("connection closed by the broker")
        return count

    def skip(self, count: int) -> None:
        """Raises ConnectionError, ValueError: there are less."""
        if not 0 <= count <= self.left:
            raise ValueError(f"{count} bytes of a response that has {self.left}")
        buffered = self._end - self._at
        self.left -= count
        if count <= buffered:
            self._at += count
            return
        self._at = self._end = 0
        rest = count - buffered
        if rest > DISCARD_BYTES:
            self._discard(rest)
        else:
            self._portion = BUFFER_BYTES
            self.left += rest
            self.take(rest)

    def _discard(self, rest: int) -> None:
        self._portion = HEADERS_BYTES
        flags = _DISCARD if self._discards else 0
        while rest:
            most = min(rest, len(self._void))
            rest -= self._receive(self._void, most, flags)

    def checksum(self, count: int, crc: int) -> int:
        """The CRC goes on over the next bytes."""
        while count:
            portion = min(count, self._end - self._at or BUFFER_BYTES, BUFFER_BYTES)
            crc = crc32c(self.take(portion), crc)
            count -= portion
        return crc

    # Fields of the protocol.

    def number(self, form: struct.Struct) -> tuple[Any, ...]:
        return form.unpack(self.take(form.size))

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.skip(self.varint())
