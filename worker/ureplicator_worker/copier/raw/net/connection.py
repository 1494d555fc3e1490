"""One non-blocking connection to a broker, for Fetch and Produce.

Responses come in the order of the requests (brokers process a connection one by one), so a queue of
requests is all the bookkeeping. The socket is connected, encrypted and authenticated elsewhere,
blocking (`ureplicator_common.kafka.client.connect`), and handed over ready. The sizes of its buffers are
left to the kernel, which fits them to the line; an option would switch that off.

A connection with requests is silent while no byte moves: nothing is received, and the peer's kernel takes
nothing of the oldest request. Later requests do not count: a frozen broker's kernel still takes them.
"""

from __future__ import annotations

import fcntl
import socket
import ssl
import struct
import sys
import termios
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ureplicator_worker.copier.raw.net.buffers import BufferPool, Lease
from ureplicator_worker.copier.raw.net.line_rate import ReceiveRate, SendProgress
from ureplicator_worker.copier.raw.net.produce_api import Piece
from ureplicator_worker.copier.raw.net.varint import MalformedResponse

PIECES_PER_CALL = 512
"""Below IOV_MAX, which is 1024 on Linux."""
MAX_UNDER_WAY_BYTES = 20 << 20
TLS_PIECE_BYTES = 1 << 16
READS_PER_TURN = 16
"""After that other connections are read."""
MAX_RESPONSE_BYTES = 1 << 30
"""Above the largest batch that a broker can be configured to accept; more is no broker's response."""

_SIZE = struct.Struct(">i")
_CORRELATION_ID = struct.Struct(">i")

WOULD_BLOCK = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class _Request(NamedTuple):
    """`end`: its place in the stream of all requests; `reserved_bytes`: memory for its response."""

    correlation_id: int
    context: Any
    end: int
    reserved_bytes: int


class ConnectionClosed(Exception):
    """The connection is closed; requests in flight get no response."""


class BrokerConnection:
    """Requests out, responses in; `fileno`, `wants_write`, `on_readable`, `on_writable` for a selector."""

    def __init__(
        self,
        connection: socket.socket,
        *,
        pool: BufferPool,
        newest: Mapping[int, int],
        urgent: bool = False,
    ) -> None:
        """`newest`: the highest version that the broker supports, by API key."""
        connection.setblocking(False)
        self.urgent = urgent
        self.newest = newest
        self._connection = connection
        self._pool = pool
        self._outgoing: deque[memoryview] = deque()
        self._detached: Lease | None = None
        self._requests: deque[_Request] = deque()
        self.receive_rate = ReceiveRate()
        self.send_progress = SendProgress()
        self._moved_s = 0.0
        self._correlation_id = 0
        self._size = bytearray(4)
        self._size_filled = 0
        self._lease: Lease | None = None
        self._filled = 0

    def fileno(self) -> int:
        return self._connection.fileno()

    @property
    def in_flight(self) -> int:
        return len(self._requests)

    @property
    def wants_write(self) -> bool:
        return bool(self._outgoing)

    def silence_s(self, now_s: float) -> float:
        """Time since the last byte moved; 0 without a request that waits for a response."""
        self.observe(now_s)
        return now_s - self._moved_s if self._requests else 0.0

    def observe(self, now_s: float) -> None:
        """Note what the peer has taken. To be called many times a second while requests are sent."""
        if self._requests:
            end = self._requests[0].end
            unacknowledged = _unacknowledged_bytes(self._connection)
            if self.send_progress.observe(unacknowledged, oldest_end=end, now_s=now_s):
                self._moved_s = now_s

    def next_correlation_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        return self._correlation_id

    def send(
        self,
        pieces: Iterable[Piece],
        *,
        correlation_id: int,
        context: Any,
        now_s: float,
        response_bytes: int = 0,
    ) -> None:
        """Queue a framed request and send what the socket accepts now. Raises ConnectionClosed.

        `response_bytes`: most bytes of the response, reserved until it comes.
        """
        if not self._requests:
            self._moved_s = now_s
        for piece in pieces:
            self._outgoing.append(memoryview(piece))
            self.send_progress.queued += len(piece)
        self._pool.reserve(response_bytes)
        end = self.send_progress.queued
        self._requests.append(_Request(correlation_id, context, end, response_bytes))
        self.on_writable()

    def on_writable(self) -> None:
        """Raises ConnectionClosed."""
        try:
            while self._outgoing:
                self._sent(self._send_some())
            self._release_detached()
        except WOULD_BLOCK:
            return
        except OSError as error:
            raise ConnectionClosed(str(error)) from error

    def _send_some(self) -> int:
        if isinstance(self._connection, ssl.SSLSocket):
            return self._connection.send(self._outgoing[0][:TLS_PIECE_BYTES])
        pieces = [piece for piece, _ in zip(self._outgoing, range(PIECES_PER_CALL), strict=False)]
        return self._connection.sendmsg(pieces)

    def _sent(self, count: int) -> None:
        self.send_progress.accepted += count
        while count:
            piece = self._outgoing[0]
            if count < len(piece):
                self._outgoing[0] = piece[count:]
                return
            count -= len(piece)
            self._outgoing.popleft()

    def detach(self) -> None:
        """Copy, once, what the socket has not accepted: nothing is sent from other buffers then."""
        if self._outgoing and self._detached is None:
            self._detached = self._pool.adopt(b"".join(self._outgoing))
            self._outgoing.clear()
            self._outgoing.append(self._detached.view)

    def _release_detached(self) -> None:
        if self._detached is not None:
            self._detached.release()
            self._detached = None

    def on_readable(self, on_response: Callable[[Any, Lease], None], *, now_s: float) -> None:
        """Call `on_response(context, lease)` for each whole response; the callee releases the lease.

        Raises ConnectionClosed, MalformedResponse.
        """
        try:
            for _ in range(READS_PER_TURN):
                if not self._read_some(on_response, now_s):
                    return
            while self._decrypted and self._read_some(on_response, now_s):
                pass
        except WOULD_BLOCK:
            return
        except OSError as error:
            raise ConnectionClosed(str(error)) from error

    @property
    def _decrypted(self) -> bool:
        """True for decrypted bytes, which the selector does not see."""
        return isinstance(self._connection, ssl.SSLSocket) and self._connection.pending() > 0

    def _read_some(self, on_response: Callable[[Any, Lease], None], now_s: float) -> bool:
        """One recv. False when the selector is to be waited for again."""
        if self._lease is None:
            return self._read_size(now_s)
        wanted = self._lease.view[self._filled :]
        count = self._connection.recv_into(wanted)
        if count == 0:
            raise ConnectionClosed("closed by the broker")
        self._moved_s = now_s
        self._filled += count
        if self._filled == len(self._lease.view):
            self._complete(on_response, now_s)
            return bool(self._requests)
        return True

    def _read_size(self, now_s: float) -> bool:
        count = self._connection.recv_into(memoryview(self._size)[self._size_filled :])
        if count == 0:
            raise ConnectionClosed("closed by the broker")
        self._moved_s = now_s
        self._size_filled += count
        if self._size_filled == 4:
            (size,) = _SIZE.unpack(self._size)
            if not (self._requests and _CORRELATION_ID.size <= size <= MAX_RESPONSE_BYTES):
                raise MalformedResponse(
                    f"a response of {size} bytes to {len(self._requests)} requests"
                )
            self.receive_rate.began(now_s)
            self._pool.unreserve(self._requests[0].reserved_bytes)
            self._lease = self._pool.lease(size)
            self._filled = self._size_filled = 0
        return True

    def _complete(self, on_response: Callable[[Any, Lease], None], now_s: float) -> None:
        lease, self._lease = self._lease, None
        assert lease is not None
        correlation_id, context, end, _reserved = self._requests[0]
        (response_id,) = _CORRELATION_ID.unpack_from(lease.view)
        if response_id != correlation_id:
            self._lease = lease
            raise MalformedResponse(f"response {response_id} where {correlation_id} was expected")
        self._requests.popleft()
        self.receive_rate.ended(len(lease.view), now_s)
        self.send_progress.on_response(end, max_bytes=MAX_UNDER_WAY_BYTES)
        on_response(context, lease)

    def close(self) -> list[Any]:
        """Contexts of the requests that get no response any more."""
        self._connection.close()
        reserved = sum(request.reserved_bytes for request in self._requests)
        if self._lease is not None:
            self._lease.release()
            self._lease = None
            reserved -= self._requests[0].reserved_bytes
        self._pool.unreserve(reserved)
        self._outgoing.clear()
        self._release_detached()
        lost = [request.context for request in self._requests]
        self._requests.clear()
        return lost


def _unacknowledged_bytes(connection: socket.socket) -> int:
    """Bytes that the socket has accepted and the peer's kernel has not acknowledged."""
    count = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
    return int.from_bytes(count, sys.byteorder, signed=True)
