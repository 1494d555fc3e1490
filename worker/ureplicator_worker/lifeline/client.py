"""The copier's end of the lifeline: one connection to the driver, non-blocking once it is admitted."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator

from ureplicator_worker.lifeline import place
from ureplicator_worker.lifeline.codec import decode, encode
from ureplicator_worker.lifeline.handshake import new_nonce, respond
from ureplicator_worker.lifeline.messages import Challenge, CopierConfig, Hello, Message
from ureplicator_worker.lifeline.tcp import notice_lost_peer

CONNECT_TIMEOUT_S = 10.0
MAX_CHALLENGE_BYTES = 1 << 12
READ_BYTES = 1 << 16
MAX_LINE_BYTES = 64 << 20
"""An Add of all partitions of a large fleet fits; a longer line is no message."""


class LifelineClosed(Exception):
    """The driver is gone, or closed the connection."""


def open_lifeline(config: CopierConfig) -> socket.socket:
    """A connection on which both ends have proven the token. Raises LifelineClosed."""
    by_s = time.monotonic() + CONNECT_TIMEOUT_S
    try:
        connection = socket.create_connection((config.host, config.port), CONNECT_TIMEOUT_S)
        try:
            notice_lost_peer(connection)
            _shake_hands(connection, config, by_s)
            connection.settimeout(None)
        except BaseException:
            connection.close()
            raise
    except (OSError, ValueError) as error:
        raise LifelineClosed(str(error)) from error
    return connection


def _shake_hands(connection: socket.socket, config: CopierConfig, by_s: float) -> None:
    """Raises OSError, and ValueError for anything but a driver that has the token."""
    hello = Hello(config.copier, place.host(), os.getpid(), place.pid_space(), new_nonce())
    connection.sendall(encode(hello))
    challenge = decode(_first_line(connection, by_s))
    if not isinstance(challenge, Challenge):
        raise ValueError(f"no challenge but {type(challenge).__name__}")
    connection.sendall(encode(respond(config.token, hello, challenge)))


def _first_line(connection: socket.socket, by_s: float) -> bytes:
    """The one line that a driver sends before it has admitted the copier."""
    received = b""
    while not received.endswith(b"\n"):
        connection.settimeout(max(0.001, by_s - time.monotonic()))
        data = connection.recv(MAX_CHALLENGE_BYTES)
        received += data
        if not data or len(received) > MAX_CHALLENGE_BYTES:
            raise ValueError("no challenge of a driver")
    return received


class LifelineClient:
    """Messages over an admitted connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._connection.setblocking(False)
        self._incoming = bytearray()
        self._outgoing = bytearray()

    def fileno(self) -> int:
        return self._connection.fileno()

    urgent = False

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
        """The driver notices at once, whoever else has the socket's descriptor."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
