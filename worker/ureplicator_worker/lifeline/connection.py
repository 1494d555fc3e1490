"""One accepted connection of the lifeline, and the tokens that admit connections.

Nothing here waits. Lines are bounded, tightly before the Hello, because any process on the host can
connect.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from ureplicator_worker.lifeline.messages import CopierId

MAX_HELLO_BYTES = 4 * 1024
MAX_LINE_BYTES = 32 * 1024 * 1024
"""A CopierReport has some 250 bytes per partition: room for 100,000."""
READ_BYTES = 256 * 1024


@dataclass(slots=True, eq=False)
class LifelineConnection:
    """`copier` is known once its Hello was admitted."""

    peer: socket.socket
    opened_s: float
    copier: CopierId | None = None
    inbox: bytearray = field(default_factory=bytearray)
    outbox: bytearray = field(default_factory=bytearray)
    closing: bool = False

    def read(self) -> bytes | None:
        """Bytes that are there; empty at the end of the connection, None if there are none yet."""
        try:
            return self.peer.recv(READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def lines(self, data: bytes) -> Iterator[bytes]:
        """Complete lines, up to `data`. Raises ValueError for a line that is too long."""
        searched = len(self.inbox)
        self.inbox += data
        begin = 0
        while (end := self.inbox.find(b"\n", max(begin, searched))) >= 0:
            yield bytes(self.inbox[begin:end])
            begin = end + 1
            if self.closing:
                return
        del self.inbox[:begin]
        limit = MAX_HELLO_BYTES if self.copier is None else MAX_LINE_BYTES
        if len(self.inbox) > limit:
            raise ValueError(f"a line of more than {limit} bytes")

    def flush(self) -> None:
        """Send what the socket takes of the outbox. Raises OSError."""
        with contextlib.suppress(BlockingIOError):
            while self.outbox:
                del self.outbox[: self.peer.send(self.outbox)]


class Tokens:
    """Admission tokens of copier runs, each good for one connection. From any thread."""

    def __init__(self) -> None:
        self._tokens: dict[CopierId, str] = {}
        self._lock = threading.Lock()

    def issue(self, copier: CopierId) -> str:
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._tokens[copier] = token
        return token

    def withdraw(self, copier: CopierId) -> None:
        with self._lock:
            self._tokens.pop(copier, None)

    def redeem(self, token: str) -> CopierId | None:
        """The run that the token was issued for; it is used up by that."""
        with self._lock:
            for copier, known in self._tokens.items():
                if hmac.compare_digest(known.encode(), token.encode()):
                    del self._tokens[copier]
                    return copier
        return None
