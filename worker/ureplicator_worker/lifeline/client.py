"""The copier's end of the lifeline: one connection to the driver, non-blocking once connected."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from ureplicator_worker.lifeline.messages import Message, decode, encode

CONNECT_TIMEOUT_S = 10.0
READ_BYTES = 1 << 16
MAX_LINE_BYTES = 64 << 20
"""An Add of all partitions of a large fleet fits; a longer line is no message."""


class LifelineClosed(Exception):
    """The driver is gone, or closed the connection."""


class LifelineClient:
    def __init__(self, host: str, port: int) -> None:
        """Raises LifelineClosed."""
        try:
            self._connection = socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S)
        except OSError as error:
            raise LifelineClosed(str(error)) from error
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection.setblocking(False)
        self._incoming = bytearray()
        self._outgoing = bytearray()

    def fileno(self) -> int:
        return self._connection.fileno()

    @property
    def wants_write(self) -> bool:
        return bool(self._outgoing)

    def send(self, message: Message) -> None:
        """Queue a message. Raises LifelineClosed."""
        self._outgoing += encode(message)
        self.on_writable()

    def on_writable(self) -> None:
        """Raises LifelineClosed."""
        try:
            while self._outgoing:
                del self._outgoing[: self._connection.send(self._outgoing)]
        except BlockingIOError:
            return
        except OSError as error:
            raise LifelineClosed(str(error)) from error

    def on_readable(self) -> Iterator[Message]:
        """Complete messages received so far. Raises LifelineClosed."""
        try:
            data = self._connection.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise LifelineClosed(str(error)) from error
        if not data:
            raise LifelineClosed("closed by the driver")
        self._incoming += data
        if len(self._incoming) > MAX_LINE_BYTES:
            raise LifelineClosed("line too long")
        while (end := self._incoming.find(b"\n")) >= 0:
            line = bytes(self._incoming[:end])
            del self._incoming[: end + 1]
            yield decode(line)

    def close(self) -> None:
        self._connection.close()
