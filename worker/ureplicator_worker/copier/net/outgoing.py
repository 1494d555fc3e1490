"""Bytes that a connection has still to send, in order.

While a login is repeated, what follows it is held: a broker accepts nothing else until it is complete.
"""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import Iterable, Iterator

from ureplicator_worker.copier.net.buffers import BufferPool, Lease
from ureplicator_worker.wire.produce_api import Piece

PIECES_PER_CALL = 512
"""Pieces of one call, below IOV_MAX, which is 1024 on Linux."""
TLS_PIECE_BYTES = 1 << 16


class Outgoing:
    def __init__(self, pool: BufferPool) -> None:
        self._pool = pool
        self._ready: deque[memoryview] = deque()
        self._held: deque[memoryview] = deque()
        self._holds = False
        self._detached: list[Lease] = []

    def __bool__(self) -> bool:
        """True while there is something to send now."""
        return bool(self._ready)

    @property
    def held_bytes(self) -> int:
        return sum(map(len, self._held))

    def add(self, pieces: Iterable[Piece]) -> int:
        """Queue them, or hold them; returns their size."""
        queue = self._held if self._holds else self._ready
        size = 0
        for piece in pieces:
            queue.append(memoryview(piece))
            size += len(piece)
        return size

    def hold(self) -> None:
        """Hold what is added from here on, except by `insert`."""
        self._holds = True

    def insert(self, piece: Piece) -> None:
        """Queue it before all that is held."""
        self._ready.append(memoryview(piece))

    def let_go(self) -> None:
        """Queue what was held."""
        self._holds = False
        self._ready.extend(self._held)
        self._held.clear()

    def pieces(self) -> list[memoryview]:
        """The next ones, for one call of a plain socket."""
        return [piece for piece, _ in zip(self._ready, range(PIECES_PER_CALL), strict=False)]

    def block(self) -> bytes | memoryview:
        """The next bytes, for one call of a socket with TLS.

        One that the socket did not accept is given again, perhaps with more at its end: OpenSSL wants that.
        """
        head = self._ready[0][:TLS_PIECE_BYTES]
        if len(head) == TLS_PIECE_BYTES or len(self._ready) == 1:
            return head
        return b"".join(self._up_to(TLS_PIECE_BYTES))

    def _up_to(self, left: int) -> Iterator[memoryview]:
        for piece in self._ready:
            yield piece[:left]
            left -= len(piece)
            if left <= 0:
                return

    def sent(self, count: int) -> bool:
        """The socket has accepted so many bytes. True if a piece is left in part."""
        while count:
            piece = self._ready[0]
            if count < len(piece):
                self._ready[0] = piece[count:]
                return True
            count -= len(piece)
            self._ready.popleft()
        if not (self._ready or self._held):
            self._release()
        return False

    def detach(self) -> None:
        """Copy, once, what the socket has not accepted: nothing is sent from other buffers then."""
        if self._detached:
            return
        for queue in (self._ready, self._held):
            if queue:
                lease = self._pool.adopt(b"".join(queue))
                self._detached.append(lease)
                queue.clear()
                queue.append(lease.view)

    def clear(self) -> None:
        self._ready.clear()
        self._held.clear()
        self._release()

    def _release(self) -> None:
        while self._detached:
            self._detached.pop().release()


def send_some(connection: socket.socket, outgoing: Outgoing) -> int:
    """One call of the socket; the bytes that it has accepted. Raises OSError."""
    if isinstance(connection, ssl.SSLSocket):
        return connection.send(outgoing.block())
    return connection.sendmsg(outgoing.pieces())
