"""The driver's end of the lifelines: one TCP server, one connection per copier run.

Admission is by a proof of the token in both directions (`handshake`). Each run of a copier has a random
token that admits one connection, once: Spark may run a task again after an executor is lost, and there
must never be two copiers of one run. A connection that is not admitted within `HANDSHAKE_TIMEOUT_S` is
closed, and so is the oldest one of more than `MAX_UNADMITTED`: strangers cannot take all descriptors.

One thread serves all connections through a selector. Sending never blocks the caller: bytes wait in a
buffer per connection. A copier with more than `MAX_BUFFER_BYTES` unread is disconnected, since it would
not receive a Remove either.

Messages of copiers go to the receiver as they come, from this thread; it must return at once.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from ureplicator_common.errors import PermanentError
from ureplicator_worker.lifeline.codec import decode, encode
from ureplicator_worker.lifeline.connection import LifelineConnection
from ureplicator_worker.lifeline.handshake import Admissions
from ureplicator_worker.lifeline.listener import Listener
from ureplicator_worker.lifeline.messages import CopierId, Message
from ureplicator_worker.lifeline.tcp import notice_lost_peer

logger = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_S = 10.0
MAX_UNADMITTED = 256
MAX_BUFFER_BYTES = 64 * 1024 * 1024
REVOKE_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection is closed, by either end."""


Receiver = Callable[[CopierId, Message | Disconnected], None]


def _ignore(copier: CopierId, message: Message | Disconnected) -> None:
    """Receiver before `start`: there is no connection yet."""


class LifelineServer:
    """Listens on `address`; nothing is served before `start`."""

    def __init__(self, *, host: str, port: int = 0) -> None:
        """Raises PermanentError if the address cannot be bound."""
        self._receive: Receiver = _ignore
        try:
            self._server = socket.create_server((host, port))
        except OSError as error:
            raise PermanentError(
                f"cannot listen on {host}:{port}: {error.strerror}; set worker.lifeline_port (0: any)"
            ) from error
        self._server.setblocking(False)
        name = self._server.getsockname()
        self.address: tuple[str, int] = (name[0], name[1])
        self._admissions = Admissions()
        self._connections: dict[CopierId, LifelineConnection] = {}
        self._unadmitted: dict[LifelineConnection, None] = {}
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._listener = Listener(self._server, self._selector)
        self._selector.register(self._wake_in, selectors.EVENT_READ)
        self._stopping = False
        self._thread = threading.Thread(target=self._serve, name="worker lifeline", daemon=True)

    def start(self, receive: Receiver) -> None:
        """Serve, and pass the messages of copiers to `receive`."""
        self._receive = receive
        self._thread.start()

    def close(self) -> None:
        """Close every connection: all copiers drain, commit and end."""
        self._stopping = True
        self._wake()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        else:
            self._close_all()

    def admit(self, copier: CopierId) -> str:
        """A token that admits one connection of this run."""
        return self._admissions.issue(copier)

    def revoke(self, copier: CopierId) -> None:
        """The run is over: withdraw its token and close its connection.

        Afterwards a Hello of it, if there was one, has been received.
        """
        done = threading.Event()
        self._admissions.withdraw(copier)
        self._do(lambda: self._drop(self._connections.get(copier)))
        self._do(done.set)
        if self._thread.is_alive():
            done.wait(REVOKE_TIMEOUT_S)

    def send(self, copier: CopierId, message: Message) -> None:
        """Send without blocking; without effect if the copier is not connected."""
        line = encode(message)
        self._do(lambda: self._enqueue(copier, line))

    def send_all(self, message: Message) -> None:
        """Send to every copier that is connected."""
        for copier in tuple(self._connections):
            self.send(copier, message)

    # The serving thread.

    def _do(self, command: Callable[[], None]) -> None:
        self._commands.put(command)
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            self._wake_out.send(b"x")

    def _serve(self) -> None:
        try:
            while not self._stopping:
                for key, _ in self._selector.select(timeout=1.0):
                    self._ready(key)
                self._run_commands()
                self._close_late_handshakes()
                self._listener.resume(time.monotonic())
        finally:
            self._close_all()

    def _ready(self, key: selectors.SelectorKey) -> None:
        if key.fileobj is self._server:
            self._accept()
        elif key.fileobj is self._wake_in:
            with contextlib.suppress(BlockingIOError):
                self._wake_in.recv(4096)
        else:
            connection: LifelineConnection = key.data
            self._flush(connection)
            self._read(connection)

    def _run_commands(self) -> None:
        while True:
            try:
                command = self._commands.get_nowait()
            except queue.Empty:
                return
            command()

    def _accept(self) -> None:
        peer = self._listener.accept(time.monotonic())
        if peer is None:
            return
        peer.setblocking(False)
        notice_lost_peer(peer)
        connection = LifelineConnection(peer, time.monotonic())
        self._unadmitted[connection] = None
        self._selector.register(peer, selectors.EVENT_READ, connection)
        if len(self._unadmitted) > MAX_UNADMITTED:
            self._drop(next(iter(self._unadmitted)))

    def _close_late_handshakes(self) -> None:
        oldest_s = time.monotonic() - HANDSHAKE_TIMEOUT_S
        for connection in [c for c in self._unadmitted if c.opened_s < oldest_s]:
            self._drop(connection)

    def _read(self, connection: LifelineConnection) -> None:
        if connection.closing:
            return
        data = connection.read()
        if data is None:
            return
        if not data:
            self._drop(connection)
            return
        try:
            for line in connection.lines(data):
                stack = connection.stack_line(line)
                if stack is None:
                    self._dispatch(connection, decode(line))
                elif stack:
                    logger.warning("copier %s is stuck: %s", connection.copier, stack)
        except ValueError as error:
            logger.warning("lifeline of copier %s closed: %s", connection.copier, error)
            self._drop(connection)

    def _dispatch(self, connection: LifelineConnection, message: Message) -> None:
        """Raises ValueError for a message that the handshake does not admit."""
        if connection.copier is not None:
            self._receive(connection.copier, message)
            return
        hello = connection.shake_hands(message, self._admissions)
        if hello is None:
            self._flush(connection)
            return
        connection.copier = hello.copier
        self._unadmitted.pop(connection, None)
        self._connections[hello.copier] = connection
        self._receive(hello.copier, hello)

    def _enqueue(self, copier: CopierId, line: bytes) -> None:
        connection = self._connections.get(copier)
        if connection is None:
            return
        if len(connection.outbox) + len(line) > MAX_BUFFER_BYTES:
            logger.warning("lifeline of copier %s closed: it does not read", copier)
            self._drop(connection)
            return
        connection.outbox += line
        self._flush(connection)

    def _flush(self, connection: LifelineConnection) -> None:
        if connection.closing:
            return
        try:
            connection.flush()
        except OSError:
            self._drop(connection)
            return
        mask = selectors.EVENT_READ
        if connection.outbox:
            mask |= selectors.EVENT_WRITE
        self._selector.modify(connection.peer, mask, connection)

    def _drop(self, connection: LifelineConnection | None) -> None:
        if connection is None or connection.closing:
            return
        connection.closing = True
        self._selector.unregister(connection.peer)
        connection.peer.close()
        self._unadmitted.pop(connection, None)
        copier = connection.copier
        if copier is not None:
            self._connections.pop(copier, None)
            self._receive(copier, Disconnected())

    def _close_all(self) -> None:
        for connection in [*self._unadmitted, *self._connections.values()]:
            self._drop(connection)
        for sock in (self._server, self._wake_in, self._wake_out):
            sock.close()
        self._selector.close()
