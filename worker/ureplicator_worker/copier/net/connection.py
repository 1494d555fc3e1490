"""One non-blocking connection to a broker, for Fetch and Produce.

Responses come in the order of the requests (brokers process a connection one by one), so a queue of
requests is all the bookkeeping. The socket is connected, encrypted and authenticated elsewhere,
blocking (`ureplicator_common.kafka.client.connect`), and handed over ready. The sizes of its buffers are
left to the kernel, which fits them to the line; an option would switch that off.

A login that is limited in time is repeated here, with the first request that is sent when it is due: its
requests follow those in flight, and what is sent meanwhile is held (`outgoing`).

Acknowledgements are small, and each would cost a call for its size, one for the rest and one to learn that
nothing follows. So the beginning of a response is received together with its size, with what follows it if
that is there. A plain socket that gave less than was asked for, or took less, is not called again: the
selector tells when it is ready.

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

from ureplicator_common.kafka.security.login import Login, LoginRun
from ureplicator_common.kafka.security.mechanisms import SaslError
from ureplicator_common.kafka.security.tls import tls_reason
from ureplicator_worker.copier.net.buffers import BufferPool, Lease
from ureplicator_worker.copier.net.line_rate import ReceiveRate, SendProgress
from ureplicator_worker.copier.net.outgoing import Outgoing, send_some
from ureplicator_worker.copier.net.round_trip import RoundTrip
from ureplicator_worker.wire.produce_api import Piece
from ureplicator_worker.wire.varint import MalformedResponse

MAX_UNDER_WAY_BYTES = 20 << 20
READS_PER_TURN = 16
"""Reads after which other connections are read."""
HEAD_BYTES = 512
"""Bytes that are received at once where a response begins: most acknowledgements are smaller. Bytes of
larger responses that come with it are moved in memory."""
MAX_RESPONSE_BYTES = 1 << 30
"""A size above the largest batch that a broker can be configured to accept; more is no broker's
response."""

_SIZE = struct.Struct(">i")
_CORRELATION_ID = struct.Struct(">i")

_LOGIN = object()
"""Context of the requests of a login."""

WOULD_BLOCK = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class _Request(NamedTuple):
    """`end`: its place in the stream of all requests; `reserved_bytes`: memory for its response.
    `under_way_bytes`: of it and those before it, when it was sent."""

    correlation_id: int
    context: Any
    end: int
    reserved_bytes: int
    sent_s: float = 0.0
    under_way_bytes: int = 0


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
        login: Login | None = None,
        serial: int = 0,
    ) -> None:
        """`newest`: the highest version that the broker supports, by API key; `login`: the one that the
        connection was opened with; `serial`: number of connections of its owner, up to this one."""
        connection.setblocking(False)
        self.urgent = urgent
        self.newest = newest
        self.serial = serial
        self._connection = connection
        self._encrypted = isinstance(connection, ssl.SSLSocket)
        self._pool = pool
        self._outgoing = Outgoing(pool)
        self._login = login
        self._login_run: LoginRun | None = None
        self._requests: deque[_Request] = deque()
        self.receive_rate = ReceiveRate()
        self.send_progress = SendProgress()
        self.round_trip = RoundTrip()
        self._moved_s = 0.0
        self._correlation_id = 0
        self._head = bytearray(HEAD_BYTES)
        self._head_filled = 0
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
        self._renew_login(now_s)
        self.send_progress.queued += self._outgoing.add(pieces)
        self._pool.reserve(response_bytes)
        progress = self.send_progress
        self._requests.append(
            _Request(
                correlation_id,
                context,
                progress.queued,
                response_bytes,
                sent_s=now_s,
                under_way_bytes=progress.under_way_bytes,
            )
        )
        self.on_writable()

    def on_writable(self) -> None:
        """Raises ConnectionClosed."""
        try:
            while self._outgoing:
                count = send_some(self._connection, self._outgoing)
                self.send_progress.accepted += count
                if self._outgoing.sent(count) and not self._encrypted:
                    return
        except WOULD_BLOCK:
            return
        except OSError as error:
            raise ConnectionClosed(_reason(error)) from error

    def detach(self) -> None:
        """Copy, once, what the socket has not accepted: nothing is sent from other buffers then."""
        self._outgoing.detach()

    def _renew_login(self, now_s: float) -> None:
        """Begin the next login, if it is due: it follows the requests in flight."""
        if self._login is None or self._login_run is not None:
            return
        self._login_run = self._login.renewal(now_s)
        if self._login_run is not None:
            self._outgoing.hold()
            self._requests.append(self._login_request(self._login_run))

    def _login_request(self, run: LoginRun) -> _Request:
        """Put its next request before all that is held."""
        correlation_id = self.next_correlation_id()
        frame = run.request(correlation_id)
        self._outgoing.insert(frame)
        self.send_progress.queued += len(frame)
        end = self.send_progress.queued - self._outgoing.held_bytes
        return _Request(correlation_id, _LOGIN, end, 0)

    def _on_login(self, lease: Lease, now_s: float) -> None:
        """Go on with the login, and after it with what was held. Raises ConnectionClosed."""
        login, run = self._login, self._login_run
        assert login is not None
        assert run is not None
        body = bytes(lease.view[_CORRELATION_ID.size :])
        lease.release()
        try:
            more = run.on_response(body)
        except SaslError as error:
            raise ConnectionClosed(login.failed(str(error))) from None
        if more:
            former_bytes = self.send_progress.queued
            request = self._login_request(run)
            size = self.send_progress.queued - former_bytes
            later = (waiting._replace(end=waiting.end + size) for waiting in self._requests)
            self._requests = deque((request, *later))
        else:
            login.completed(run, now_s)
            self._login_run = None
            self._outgoing.let_go()
        self.on_writable()

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
            raise ConnectionClosed(_reason(error)) from error

    @property
    def _decrypted(self) -> bool:
        """True for decrypted bytes, which the selector does not see."""
        return self._encrypted and self._connection.pending() > 0  # type: ignore[attr-defined]

    def _read_some(self, on_response: Callable[[Any, Lease], None], now_s: float) -> bool:
        """One recv. False when the selector is to be waited for again."""
        lease = self._lease
        wanted = (
            lease.view[self._filled :] if lease else memoryview(self._head)[self._head_filled :]
        )
        count = self._connection.recv_into(wanted)
        if count == 0:
            raise ConnectionClosed("closed by the broker")
        self._moved_s = now_s
        if lease is None:
            self._head_filled += count
            self._take_head(on_response, now_s)
        else:
            self._filled += count
            if count == len(wanted):
                self._complete(on_response, now_s)
        return bool(self._requests) and (count == len(wanted) or self._encrypted)

    def _take_head(self, on_response: Callable[[Any, Lease], None], now_s: float) -> None:
        """Take the responses that begin in what was received, until one goes on behind it."""
        head, at = memoryview(self._head)[: self._head_filled], 0
        while self._lease is None and len(head) - at >= _SIZE.size and self.fileno() >= 0:
            (size,) = _SIZE.unpack_from(head, at)
            lease = self._begin(size, now_s)
            part = head[at + _SIZE.size : at + _SIZE.size + size]
            lease.view[: len(part)] = part
            self._filled = len(part)
            at += _SIZE.size + len(part)
            if len(part) == size:
                self._complete(on_response, now_s)
        self._head_filled = len(head) - at
        self._head[: self._head_filled] = bytes(head[at:])

    def _begin(self, size: int, now_s: float) -> Lease:
        """A response of so many bytes begins. Raises MalformedResponse."""
        if not (self._requests and _CORRELATION_ID.size <= size <= MAX_RESPONSE_BYTES):
            raise MalformedResponse(f"a response of {size} bytes to {len(self._requests)} requests")
        request = self._requests[0]
        if request.context is not _LOGIN:
            took_s = now_s - request.sent_s
            self.round_trip.began(took_s, under_way_bytes=request.under_way_bytes)
        self.receive_rate.began(now_s)
        self._pool.unreserve(request.reserved_bytes)
        self._lease = self._pool.lease(size)
        return self._lease

    def _complete(self, on_response: Callable[[Any, Lease], None], now_s: float) -> None:
        lease, self._lease = self._lease, None
        assert lease is not None
        request = self._requests[0]
        (response_id,) = _CORRELATION_ID.unpack_from(lease.view)
        if response_id != request.correlation_id:
            self._lease = lease
            expected = request.correlation_id
            raise MalformedResponse(f"response {response_id} where {expected} was expected")
        self._requests.popleft()
        self.receive_rate.ended(len(lease.view), now_s)
        self.send_progress.on_response(request.end, max_bytes=MAX_UNDER_WAY_BYTES)
        if request.context is _LOGIN:
            self._on_login(lease, now_s)
        else:
            on_response(request.context, lease)

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
        lost = [request.context for request in self._requests if request.context is not _LOGIN]
        self._requests.clear()
        return lost


def _reason(error: OSError) -> str:
    return f"TLS: {tls_reason(error)}" if isinstance(error, ssl.SSLError) else str(error)


def _unacknowledged_bytes(connection: socket.socket) -> int:
    """Bytes that the socket has accepted and the peer's kernel has not acknowledged."""
    count = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, b"\0\0\0\0")
    return int.from_bytes(count, sys.byteorder, signed=True)
