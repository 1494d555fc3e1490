"""Connection to ZooKeeper and its session, through kazoo.

kazoo's own recipes and its retry helper are not used: `Lock.is_acquired` stays true after the session
is lost, and `retry` waits for the next connection and then writes under the *new* session. What is used
is a connection that reconnects by itself. These are its traps (2.11) and the countermeasures:

* **A request made while reconnecting is queued** and sent later, under the session of that time.
  `_Client` refuses it: state and queue are checked under the lock under which the connection thread
  changes the state, so a request is sent on the connection it was made on, or never.
* **The delay between two connection attempts grows up to an hour.** Here: `RECONNECT_DELAY_S`.
* **One silent host uses up the whole session timeout**, and so does a host that accepts the connection
  but not yet the session (as a starting server may). `_Handler` gives each host a share.
* **Hosts are tried in random order**, so the one that has just fallen silent may be the next one, too, and
  take its share once more. `_Handler` passes it over once.
* **The connection thread dies of an unexpected error** (a response out of order). It is restarted, with
  a new session.
* **Only a server reports LOST.** While none responds, kazoo reports SUSPENDED, and so does this class.
* **Listeners run in the connection thread**: here they only put into a queue, `_notify_loop` calls them.
* **`stop()` waits for the response of a dead server**: after `CLOSE_GRACE_S` the connection is cut.
* **Every request writes a byte into a socket pair and blocks when it is full**, at 278 bytes by Linux's
  default. The buffer is enlarged, and bulk reads stay well below (`zookeeper.PIPELINE`).
* **Its TLS trusts the system's authorities besides, leaves sockets of failed handshakes open, and overlooks
  responses that are decrypted already**: `select` sees none, so they wait for the next heartbeat. `_Handler`
  encrypts the connections that kazoo takes for plaintext (`tls`).
* **Each wait makes and closes a selector, and a response takes three of them**: half of the processor time of
  its thread. Sockets here read what has arrived at once, and are waited for by `poll` (`buffered_sockets`).

Threads: kazoo's connection, watch and completion threads, and one that calls listeners. A connection must
not be carried through a fork.
"""

from __future__ import annotations

import errno
import logging
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import AsyncResult, SequentialThreadingHandler
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL

from ureplicator_common.config.clusters import ZookeeperTlsSettings
from ureplicator_common.coordination import SessionState, Unavailable
from ureplicator_common.coordination.buffered_sockets import buffered, select_buffered
from ureplicator_common.coordination.tls import TlsContexts, explained
from ureplicator_common.errors import ConfigurationError
from ureplicator_common.model import SessionId

log = logging.getLogger(__name__)

Listener = Callable[[SessionState], None]
_Change = tuple[SessionState, tuple[Listener, ...]]

RECONNECT_DELAY_S = 1.0
CLOSE_GRACE_S = 2.0
MIN_CONNECT_TIMEOUT_S = 1.0
"""Least time for the connection, and again for the session. A third of the session timeout, shared by all
hosts, leaves time to try each of them before the session ends (silence was noticed after two thirds)."""
MAX_PATIENCE = 4
"""Factor of that time with TLS, doubled with each handshake that takes too long: many clients that come back
at once keep servers busy with handshakes, and giving up early makes more of them."""


class NotSent(KazooException):
    """There is no connection: the request was not even queued."""


class _Handler(SequentialThreadingHandler):
    """Handler of kazoo's threads and sockets; connects within bounds, and can cut a connection."""

    def __init__(self, *, connect_timeout_s: float, tls: TlsContexts | None) -> None:
        super().__init__()
        self._connect_timeout_s = connect_timeout_s
        self._tls = tls
        self._socket: socket.socket | None = None
        self._server = ""
        self._address: tuple[str, int] | None = None
        """Address of the last attempt to connect."""
        self._has_session = False
        self._is_refused = False
        self._patience = 1
        self.closing = False
        self.last_error = "no address found"

    def create_connection(self, *args: Any, **kwargs: Any) -> socket.socket:
        if self.closing:
            raise ConnectionAbortedError(errno.ECONNABORTED, "closing")
        former, self._address = self._address, kwargs["address"]
        was_lost = self._has_session and former == self._address
        self._has_session = False
        if was_lost:
            raise ConnectionAbortedError(
                errno.ECONNABORTED, "its connection was lost: others first"
            )
        timeout_s = min(kwargs["timeout"], self._connect_timeout_s * self._patience)
        deadline_s = time.monotonic() + timeout_s
        try:
            self._socket = super().create_connection(*args, **{**kwargs, "timeout": timeout_s})
        except OSError as error:
            self.last_error = str(error)
            raise
        if self._tls is None:
            self._socket = buffered(self._socket)
        else:
            self._server = f"{kwargs['hostname']}:{kwargs['address'][1]}"
            self._socket = self._encrypted(self._socket, kwargs["hostname"], deadline_s)
        if not self._is_refused:
            self.last_error = "connected, but no response"
        return self._socket

    def _encrypted(self, plain: socket.socket, host: str, deadline_s: float) -> socket.socket:
        """Raises ConnectionAbortedError with a text for operators."""
        assert self._tls is not None
        try:
            secured = self._tls.current().wrap_socket(
                plain, server_hostname=host, do_handshake_on_connect=False
            )
        except (OSError, ValueError) as error:  # ValueError: the host is no name for certificates
            plain.close()
            raise self._refused(OSError(str(error))) from None
        self._socket = secured  # so that it can be cut
        try:
            secured.settimeout(max(deadline_s - time.monotonic(), 0.001))
            secured.do_handshake()
        except OSError as error:
            secured.close()
            if isinstance(error, TimeoutError):
                self._patience = min(2 * self._patience, MAX_PATIENCE)
            raise self._refused(error) from None
        return secured

    def _refused(self, error: OSError) -> ConnectionAbortedError:
        self._is_refused = True
        self.last_error = explained(error, server=self._server)
        return ConnectionAbortedError(errno.ECONNABORTED, self.last_error)

    def session_established(self) -> None:
        """Note the session: from here on kazoo's own timeouts are right."""
        self._has_session = True
        self._is_refused = False
        self._patience = 1
        self.last_error = "the connection was lost"

    def select(
        self,
        rlist: Sequence[Any],
        wlist: Sequence[Any],
        xlist: Sequence[Any],
        timeout: float | None = None,
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """kazoo passes nothing in `xlist`."""
        if not self._has_session and timeout is not None:
            timeout = min(timeout, self._connect_timeout_s * self._patience)
        try:
            return *select_buffered(rlist, wlist, timeout), []
        except ssl.SSLError as error:
            raise self._refused(error) from None

    def create_socket_pair(self) -> tuple[socket.socket, socket.socket]:
        pair = super().create_socket_pair()
        for end in pair:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1024 * 1024)
        return pair

    def cut(self) -> None:
        """End the connection as if the server had done it.

        Not by TLS, which would take what is left to read for plaintext.
        """
        if self._socket is not None:
            with suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


class _Client(KazooClient):
    """Client that queues no request while it reconnects, and calls `died` when its thread ends."""

    def __init__(
        self,
        *,
        hosts: str,
        timeout: float,
        handler: _Handler,
        died: Callable[[], None],
        digest: str,
    ) -> None:
        self._gate = threading.RLock()
        self._connector = handler
        self._died = died
        retry = KazooRetry(
            max_tries=-1,
            delay=0.1,
            max_delay=RECONNECT_DELAY_S,
            sleep_func=handler.sleep_func,
        )
        super().__init__(
            hosts=hosts,
            timeout=timeout,
            handler=handler,
            connection_retry=retry,
            auth_data=[("digest", digest)] if digest else None,
            default_acl=CREATOR_ALL_ACL if digest else None,
        )

    def _call(self, request: object, async_object: AsyncResult[object]) -> bool | None:
        with self._gate:
            if self._state != KeeperState.CONNECTED:
                async_object.set_exception(NotSent(f"not connected: {self._connector.last_error}"))
                return False
            return super()._call(request, async_object)

    def _session_callback(self, state: str) -> None:
        if state == KeeperState.CONNECTED:
            self._connector.session_established()
        with self._gate:
            super()._session_callback(state)
        if state == KeeperState.CLOSED and not self._stopped.is_set():
            self._died()


class ZooKeeperConnection:
    """One kazoo client, its session and the listeners of it. `connect` first, `close` last.

    `on_change` is called in kazoo's connection thread at each change, True with a new connection, before any
    listener; it must return at once. `tls`: without, or not enabled, connections are plaintext.
    """

    def __init__(
        self,
        *,
        hosts: str,
        session_timeout_s: float,
        on_change: Callable[[bool], None],
        digest: str = "",
        tls: ZookeeperTlsSettings | None = None,
    ) -> None:
        """Raises ConfigurationError."""
        self._hosts = hosts
        self._on_change = on_change
        share_s = session_timeout_s / (hosts.count(",") + 1) / 3
        self._handler = _Handler(
            connect_timeout_s=max(share_s, MIN_CONNECT_TIMEOUT_S),
            tls=TlsContexts(tls) if tls is not None and tls.enabled else None,
        )
        self._listeners: tuple[Listener, ...] = ()
        self._changes: queue.SimpleQueue[_Change | None] = queue.SimpleQueue()
        self._lifecycle = threading.RLock()
        self._connected: threading.Event | None = None
        self._revivals: list[threading.Thread] = []
        self._closing = threading.Event()
        self._notifier = threading.Thread(
            target=self._notify_loop, name="zookeeper listeners", daemon=True
        )
        try:
            self.client: KazooClient = _Client(
                hosts=hosts,
                timeout=session_timeout_s,
                handler=self._handler,
                died=self._died,
                digest=digest,
            )
        except ValueError as error:
            raise ConfigurationError(f"zookeeper.hosts {hosts!r}: {error}") from error
        self.client.add_listener(self._state_changed)

    def connect(self, timeout_s: float) -> None:
        """Start connecting and wait for a session. Raises Unavailable.

        Attempts continue in the background, also after Unavailable: call it again, or `close`.
        """
        with self._lifecycle:
            if self._closing.is_set():
                raise Unavailable(f"ZooKeeper at {self._hosts}: closed")
            if self._connected is None:
                self._notifier.start()
                self._connected = self.client.start_async()
        if not self._connected.wait(timeout_s):
            raise Unavailable(
                f"no session with ZooKeeper at {self._hosts} within {timeout_s:g} s: "
                f"{self._handler.last_error}"
            )

    def session(self) -> SessionId | None:
        held = self.client.client_id
        return SessionId(held[0]) if held and held[0] else None

    def state(self) -> SessionState:
        if self.client.connected:
            return SessionState.CONNECTED
        if self.client.state == KazooState.LOST:
            return SessionState.LOST
        return SessionState.SUSPENDED

    def on_session(self, listener: Listener) -> None:
        self._listeners += (listener,)

    def stop(self) -> bool:
        """End the session. Returns within about `CLOSE_GRACE_S` and `RECONNECT_DELAY_S`; False if it
        was stopped before."""
        with self._lifecycle:
            if self._closing.is_set():
                return False
            self._closing.set()
            self._stop_client()
            return True

    def join(self) -> None:
        """Wait for the threads, after `stop`. May be called from a listener."""
        self._changes.put(None)
        if self._connected is not None and self._notifier is not threading.current_thread():
            self._notifier.join()
        for revival in self._revivals:
            revival.join()

    def _stop_client(self) -> None:
        self._handler.closing = True
        if not self.client.connected:
            self._handler.cut()
        cutter = threading.Timer(CLOSE_GRACE_S, self._handler.cut)
        cutter.start()
        try:
            self.client.stop()
            self.client.close()
        finally:
            cutter.cancel()
            cutter.join()

    def _state_changed(self, state: str) -> None:
        """Pass on kazoo's new state. It runs in kazoo's connection thread."""
        self._on_change(state == KazooState.CONNECTED)
        self._changes.put((SessionState(state.lower()), self._listeners))

    def _notify_loop(self) -> None:
        for state, listeners in iter(self._changes.get, None):
            log.info("ZooKeeper at %s: %s", self._hosts, state.value)
            for listener in listeners:
                try:
                    listener(state)
                except Exception:
                    log.exception("session listener failed at %s", state)

    def _died(self) -> None:
        """Start another connection thread. It runs in kazoo's, as that ends."""
        log.error("the ZooKeeper connection thread died; starting another")
        revival = threading.Thread(target=self._revive, name="zookeeper revival", daemon=True)
        self._revivals = [thread for thread in self._revivals if thread.is_alive()] + [revival]
        revival.start()

    def _revive(self) -> None:
        if self._closing.wait(RECONNECT_DELAY_S):
            return
        with self._lifecycle:
            if not self._closing.is_set():
                self.client.start_async()
