"""Sockets that read what has arrived at once, and a `select` that knows it.

kazoo waits for four bytes, reads them, waits for the response that they announce, and reads that; each wait
makes and closes a selector. Here one `recv` takes what has arrived, often many responses, and a wait for
what is there already is none. With TLS `select` alone would be wrong: it sees neither data that is decrypted
already, nor that a record holds none (as a session ticket).
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Iterable, Sequence
from typing import Any

CHUNK_BYTES = 16 * 1024
"""Bytes at most in one record of TLS: reading so many leaves nothing decrypted inside OpenSSL."""


class BufferedSocket(socket.socket):
    """A socket that does not block and knows whether there is data to read."""

    _received = b""
    _ended = False

    @property
    def has_data(self) -> bool:
        """True if there is something to read, and at the end of the stream."""
        return bool(self._received) or self._ended

    def fill(self) -> None:
        """Take what has arrived, if nothing is left. Raises OSError."""
        if self.has_data:
            return
        try:
            self._received = super().recv(CHUNK_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        self._ended = not self._received

    def pending(self) -> int:
        return len(self._received)

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        self.fill()
        if not self.has_data:
            raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "no data yet")
        data, self._received = self._received[:buflen], self._received[buflen:]
        return data


class TlsSocket(BufferedSocket, ssl.SSLSocket):
    """A buffered socket with TLS."""


def buffered(plain: socket.socket) -> BufferedSocket:
    """The connection of a socket, which is closed by that."""
    timeout_s = plain.gettimeout()
    made = BufferedSocket(plain.family, plain.type, plain.proto, fileno=plain.detach())
    made.settimeout(timeout_s)
    return made


def select_buffered(
    rlist: Sequence[Any], wlist: Sequence[Any], timeout_s: float | None
) -> tuple[list[Any], list[Any]]:
    """Sockets of `rlist` with data, or at the end of their stream, and sockets of `wlist` that take data.

    `timeout_s`: None waits without an end. Raises OSError.
    """
    sockets = [sock for sock in rlist if isinstance(sock, BufferedSocket)]
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    left_s = timeout_s
    while True:
        has_data = any(sock.has_data for sock in sockets)
        fired = _polled(rlist, wlist, 0.0 if has_data else left_s)
        for sock in sockets:
            if sock.fileno() in fired:
                sock.fill()
        readable = [
            sock for sock in rlist if (sock.has_data if sock in sockets else sock.fileno() in fired)
        ]
        writable = [sock for sock in wlist if sock.fileno() in fired]
        if readable or writable:
            return readable, writable
        if deadline_s is not None:
            left_s = max(deadline_s - time.monotonic(), 0.0)
            if not left_s:
                return [], []


def _polled(rlist: Iterable[Any], wlist: Iterable[Any], timeout_s: float | None) -> set[int]:
    """Descriptors with an event. No descriptor is in both lists."""
    poll = select.poll()
    for sock in rlist:
        poll.register(sock, select.POLLIN)
    for sock in wlist:
        poll.register(sock, select.POLLOUT)
    timeout_ms = None if timeout_s is None else 1_000 * timeout_s
    return {descriptor for descriptor, _ in poll.poll(timeout_ms)}
