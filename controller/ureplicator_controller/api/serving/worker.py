"""gunicorn's threaded worker, with requests read by its event loop instead of its threads.

gunicorn's own reads a request in a thread, without a deadline: as many connections as there are
threads, each with one byte, hold it for as long as they like. It also waits in its event loop, up to
2 s each, for clients to close their connections. Here the loop does all waiting:

    accept -> gather bytes -> whole request -> thread: parse, respond -> gather the next one
                  |                                       |
                  +- deadline, refusal -> linger <--------+- the connection is not kept
                                                          +- events -> stream, until its deadline

With TLS the loop shakes hands first, within the same deadline. A connection gets a thread when its
request is complete (`request_end`), so what a thread reads is always there. With all connections taken,
the one that has been gathering longest makes room. In `linger` the response is sent and input is
discarded: a socket closed with unread input is reset, and the reset may overtake the response. A
`stream` gets server-sent events (`streams`).

Methods that are overridden belong to gunicorn's internals: its version is pinned in pyproject.toml.
"""

from __future__ import annotations

import json
import selectors
import socket
import ssl
import time
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any

from gunicorn.arbiter import Arbiter
from gunicorn.http import get_parser, wsgi
from gunicorn.workers.gthread import TConn, ThreadWorker

from ureplicator_common.config.access import TlsSettings
from ureplicator_common.errors import ConfigurationError
from ureplicator_common.pages.certificates import ServerContexts
from ureplicator_controller.api.serving import streams
from ureplicator_controller.api.serving.request_end import (
    Complete,
    Refused,
    path_in,
    request_end,
)
from ureplicator_controller.engines.periodic_thread import PeriodicThread

REQUEST_S = 5.0
"""Seconds for a whole request, from its first byte or the end of the one before."""
LINGER_S = 1.0
WRITE_S = 10.0
"""Seconds for a response: a client that does not read holds a thread no longer."""
_CHUNK_BYTES = 64 * 1024
_SLOW = Refused(HTTPStatus.REQUEST_TIMEOUT, f"no whole request within {REQUEST_S:g} s")


class Connection(TConn):
    """A connection with the bytes that it has brought. `until_s`: deadline of its present state."""

    def __init__(self, cfg: Any, sock: socket.socket, client: Any, server: Any) -> None:
        super().__init__(cfg, sock, client, server)
        self.data_ready = True  # a thread never waits for the first byte
        self.received = bytearray()
        self.request = b""
        self.until_s = 0.0
        self.lingers = False
        self.streams = False
        self.continued = False
        self._handshake = sock if isinstance(sock, ssl.SSLSocket) else None

    def init(self) -> None:
        """Give the parser the request; the thread calls this.

        gunicorn's own would make a TLS connection here, in the thread.
        """
        if self.parser is None:
            self.parser = get_parser(self.cfg, self.sock, self.client)
        self.initialized = True
        self.sock.settimeout(WRITE_S)
        self.parser.unreader.unread(self.request)
        self.request = b""

    def shake_hands(self) -> None:
        """Go on with the handshake of TLS, if it is not done. Raises OSError."""
        if self._handshake is not None:
            self._handshake.do_handshake()
            self._handshake = None

    def take(self, length_bytes: int) -> None:
        """Make the first bytes received the request."""
        self.request = bytes(self.received[:length_bytes])
        del self.received[:length_bytes]
        self.continued = False


class GatheringWorker(ThreadWorker):
    """The worker class that `rest_process.command` names."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._waiting: dict[Connection, None] = {}
        """Connections without a thread; the one that waits longest is first."""
        self._streams: set[Connection] = set()
        """Connections of `_waiting` that get events."""
        self._feed_thread = PeriodicThread(self._poll_feed, name="events", first_after_s=0.0)
        self._is_fed = False
        self._contexts: ServerContexts | None = None

    def init_process(self) -> None:
        if self.cfg.is_ssl:
            try:
                self._contexts = ServerContexts(_tls(self.cfg))
            except ConfigurationError as error:
                self.log.error("REST cannot start: %s", error)
                raise SystemExit(Arbiter.APP_LOAD_ERROR) from error
        super().init_process()

    def accept(self, listener: socket.socket) -> None:
        try:
            sock, client = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        if self._contexts is not None:
            try:
                sock = _secured(sock, self._contexts)
            except OSError:  # the client has gone
                sock.close()
                return
        self.nr_conns += 1
        if self.nr_conns >= self.worker_connections and self._waiting:
            self._drop(next(iter(self._waiting)))
        self._gather(Connection(self.cfg, sock, client, listener.getsockname()))

    def handle_request(self, req: Any, conn: Connection) -> bool:
        """Handle a request in a thread; True if the connection is kept. Raises OSError."""
        if not streams.wants_stream(req.method, req.path, req.headers):
            return super().handle_request(req, conn)
        if len(self._streams) >= streams.MAX_STREAMS:
            conn.sock.sendall(_response(streams.TOO_MANY, streams.EVENTS))
            return False
        _, environ = wsgi.create(req, conn.sock, conn.client, conn.server, self.cfg)
        conn.streams = streams.respond(self.wsgi, environ, conn.sock)
        return conn.streams

    def finish_request(self, conn: Connection, fs: Future[Any]) -> None:
        """Finish a request that a thread is done with; the event loop calls this."""
        kept = not fs.cancelled() and fs.exception() is None and fs.result() is True
        if kept and conn.streams and self.alive:
            self._stream(conn)
        elif kept and self.alive:
            self._gather(conn)
        else:
            self._wait(conn, LINGER_S)
            self._linger(conn)

    def murder_pending(self) -> None:
        """End what is over its deadline, after each round of events."""
        now_s = time.monotonic()
        for conn in tuple(self._waiting):
            idle = not (conn.received or conn.lingers)
            if conn.until_s <= now_s and (idle or conn.lingers):
                self._drop(conn)
            elif conn.until_s <= now_s:
                self._refuse(conn, _SLOW)
            elif idle and not self.alive:
                self._drop(conn)

    def _gather(self, conn: Connection) -> None:
        self._wait(conn, REQUEST_S)
        if conn.received:
            self._advance(conn)

    def _stream(self, conn: Connection) -> None:
        conn.received.clear()  # a stream is the last response of its connection
        self._wait(conn, streams.STREAM_S)
        self._streams.add(conn)
        if not self._is_fed:
            self._is_fed = True
            self._feed_thread.start()

    def _poll_feed(self) -> float:
        """Poll the feed, in the feed's thread."""
        if not self._streams:
            return streams.POLL_S
        event, wait_s = streams.polled(self.wsgi.extensions[streams.FEED])
        if event:
            self.method_queue.defer(self._publish, event)
        return wait_s

    def _publish(self, event: bytes) -> None:
        for conn in tuple(self._streams):
            if not streams.sent(conn.sock, event):
                self._drop(conn)

    def _wait(self, conn: Connection, for_s: float) -> None:
        conn.sock.setblocking(False)
        conn.until_s = time.monotonic() + for_s
        self._waiting[conn] = None
        self.poller.register(conn.sock, selectors.EVENT_READ, partial(self._readable, conn))

    def _readable(self, conn: Connection, _: Any) -> None:
        if conn not in self._waiting:  # dropped for another event of the same round
            return
        try:
            conn.shake_hands()
            data = conn.sock.recv(_CHUNK_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except OSError:
            data = b""
        if not data:
            self._drop(conn)
        elif not (conn.lingers or conn.streams):
            conn.received += data
            self._advance(conn)

    def _advance(self, conn: Connection) -> None:
        verdict = request_end(conn.received)
        if isinstance(verdict, Refused):
            self._refuse(conn, verdict)
        elif isinstance(verdict, Complete):
            self._forget(conn)
            conn.take(verdict.length_bytes)
            self.enqueue_req(conn)
        elif verdict.continue_expected and not conn.continued:
            conn.continued = True
            _send(conn, b"HTTP/1.1 100 Continue\r\n\r\n")

    def _refuse(self, conn: Connection, refused: Refused) -> None:
        _send(conn, _response(refused, path_in(conn.received)))
        conn.until_s = time.monotonic() + LINGER_S
        self._linger(conn)

    def _linger(self, conn: Connection) -> None:
        conn.lingers = True
        if isinstance(conn.sock, ssl.SSLSocket):
            with suppress(OSError, ValueError):
                conn.sock.unwrap()  # tells the client that the response is whole
        with suppress(OSError):
            conn.sock.shutdown(socket.SHUT_WR)

    def _forget(self, conn: Connection) -> None:
        del self._waiting[conn]
        self._streams.discard(conn)
        self.poller.unregister(conn.sock)

    def _drop(self, conn: Connection) -> None:
        self._forget(conn)
        self.nr_conns -= 1
        conn.close()


def _tls(cfg: Any) -> TlsSettings:
    return TlsSettings(
        certificate_file=cfg.certfile, key_file=cfg.keyfile, client_ca_file=cfg.ca_certs or ""
    )


def _secured(sock: socket.socket, contexts: ServerContexts) -> socket.socket:
    """The connection with TLS, whose handshake is yet to come."""
    sock.setblocking(False)
    context = contexts.current(now_s=time.monotonic())
    return context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)


def _send(conn: Connection, data: bytes) -> None:
    """Send what fits: a client that does not read gets no more."""
    with suppress(OSError):
        conn.sock.send(data)


def _response(refused: Refused, path: str) -> bytes:
    body = json.dumps(
        {
            "type": "about:blank",
            "title": refused.status.phrase,
            "status": refused.status.value,
            "detail": refused.detail,
            "instance": path,
        }
    ).encode()
    head = (
        f"HTTP/1.1 {refused.status.value} {refused.status.phrase}\r\n"
        "Content-Type: application/problem+json\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
