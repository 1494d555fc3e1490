"""One accepted connection of the lifeline.

Nothing here waits. Lines are bounded, tightly before the admission, because any process that reaches the
port can connect.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field

from ureplicator_worker.lifeline.codec import encode
from ureplicator_worker.lifeline.handshake import Admissions
from ureplicator_worker.lifeline.messages import (
    Challenge,
    ChallengeResponse,
    CopierId,
    Hello,
    Message,
)

MAX_HELLO_BYTES = 4 * 1024
MAX_LINE_BYTES = 32 * 1024 * 1024
"""A CopierReport has some 250 bytes per partition: room for 100,000."""
READ_BYTES = 256 * 1024
STACK_LINES = (b"Timeout (", b"Thread 0x", b"Current thread 0x", b"  ")
"""Begins of the lines that `faulthandler` writes, besides empty ones."""
MESSAGE_BEGIN = b'{"type":'
"""No line of stacks has it."""
MAX_STACK_LINES = 5_000
MAX_STACK_LINE_BYTES = 300


@dataclass(slots=True, eq=False)
class LifelineConnection:
    """`hello` and `challenge` are set while the handshake runs, `copier` once it is admitted."""

    peer: socket.socket
    opened_s: float
    hello: Hello | None = None
    challenge: Challenge | None = None
    copier: CopierId | None = None
    inbox: bytearray = field(default_factory=bytearray)
    outbox: bytearray = field(default_factory=bytearray)
    closing: bool = False
    stack_lines: int = 0

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
            yield from self._parts(bytes(self.inbox[begin:end]))
            begin = end + 1
            if self.closing:
                return
        del self.inbox[:begin]
        limit = MAX_HELLO_BYTES if self.copier is None else MAX_LINE_BYTES
        if len(self.inbox) > limit:
            raise ValueError(f"a line of more than {limit} bytes")

    def _parts(self, line: bytes) -> Iterator[bytes]:
        """A stack dump that was cut off, since the driver did not read, and the message behind it."""
        at = line.find(MESSAGE_BEGIN) if self.copier and line.startswith(STACK_LINES) else -1
        if at > 0:
            yield line[:at]
        yield line[max(0, at) :]

    def shake_hands(self, message: Message, admissions: Admissions) -> Hello | None:
        """One step of the handshake: the Hello of an admitted copier, or None with the challenge in the
        outbox. Raises ValueError for anything else."""
        if self.hello is None and isinstance(message, Hello):
            self.challenge = admissions.challenge(message)
            self.hello = message
            self.outbox += encode(self.challenge)
            return None
        if self.hello is None or self.challenge is None:
            raise ValueError(f"{type(message).__name__} before a Hello")
        if not isinstance(message, ChallengeResponse):
            raise ValueError(f"{type(message).__name__} in place of a response")
        admissions.redeem(self.hello, self.challenge, message)
        return self.hello

    def stack_line(self, line: bytes) -> str | None:
        """The text of a line of a stack dump; None for a message. Raises ValueError for too many.

        A copier whose loop is stuck writes its stacks in plain text. No message begins like their lines.
        """
        if self.copier is None or (line and not line.startswith(STACK_LINES)):
            return None
        self.stack_lines += 1
        if self.stack_lines > MAX_STACK_LINES:
            raise ValueError(f"more than {MAX_STACK_LINES} lines of stacks")
        return line[:MAX_STACK_LINE_BYTES].decode(errors="replace")

    def flush(self) -> None:
        """Send what the socket takes of the outbox. Raises OSError."""
        with contextlib.suppress(BlockingIOError):
            while self.outbox:
                del self.outbox[: self.peer.send(self.outbox)]
