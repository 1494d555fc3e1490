"""A login is repeated on the connection that is in use: no request is lost, none is sent meanwhile."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from ureplicator_common.kafka.security.login import AUTHENTICATE, HANDSHAKE, Login, LoginRun
from ureplicator_common.kafka.security.mechanisms import PlainExchange
from ureplicator_common.kafka.wire.sockets import receive_exactly
from ureplicator_worker.copier.net.buffers import BufferPool, Lease
from ureplicator_worker.copier.net.connection import BrokerConnection, ConnectionClosed

OURS = 1
LIFE_S = 100.0


@dataclass
class Wire:
    """`pool` counts what is held; the broker's end is read request by request."""

    pool: BufferPool = field(default_factory=lambda: BufferPool(limit_bytes=1 << 20))
    responses: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        ours, self.peer = socket.socketpair()
        self.peer.settimeout(5.0)
        login = Login(new_run=new_run, prepare=lambda: None, failed=lambda text: f"c: {text}")
        run = new_run()
        run.lifetime_s = LIFE_S
        login.completed(run, 0.0)
        self.connection = BrokerConnection(ours, pool=self.pool, newest={}, login=login)

    def send(self, now_s: float, body: bytes = b"x", *, response_bytes: int = 0) -> int:
        number = self.connection.next_correlation_id()
        frame = struct.pack(">ihhi", 8 + len(body), OURS, 0, number) + body
        self.connection.send(
            (frame,),
            correlation_id=number,
            context=number,
            now_s=now_s,
            response_bytes=response_bytes,
        )
        return number

    def received(self) -> tuple[int, int, bytes]:
        """API key, correlation id and the rest of the next request at the broker."""
        (size,) = struct.unpack(">i", receive_exactly(self.peer, 4))
        frame = bytes(receive_exactly(self.peer, size))
        key, _, number = struct.unpack_from(">hhi", frame)
        return key, number, frame[8:]

    def nothing_more(self) -> bool:
        self.peer.setblocking(False)
        try:
            self.peer.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        finally:
            self.peer.settimeout(5.0)
        return False

    def respond(self, number: int, body: bytes = b"", *, now_s: float = 0.0) -> None:
        self.peer.sendall(struct.pack(">ii", 4 + len(body), number) + body)
        self.connection.on_readable(self.take, now_s=now_s)

    def take(self, context: Any, lease: Lease) -> None:
        self.responses.append(context)
        lease.release()

    def log_in(self, *, now_s: float, code: int = 0) -> None:
        """The broker's part of a login."""
        key, number, _ = self.received()
        assert key == HANDSHAKE
        assert self.nothing_more()
        self.respond(number, struct.pack(">hi", 0, 0), now_s=now_s)
        key, number, _ = self.received()
        assert key == AUTHENTICATE
        assert self.nothing_more()
        self.respond(number, struct.pack(">hhiq", code, -1, 0, int(LIFE_S * 1_000)), now_s=now_s)


def new_run() -> LoginRun:
    return LoginRun("PLAIN", PlainExchange("me", "hunter2"), client_id="us")


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.connection.close()
    wire.peer.close()


def test_requests_wait_for_the_login_and_none_is_lost(wire: Wire) -> None:
    first = wire.send(79.0)
    second, third = wire.send(81.0, b"second"), wire.send(81.0, b"third")
    assert wire.received() == (OURS, first, b"x")
    wire.respond(first)
    wire.log_in(now_s=82.0)
    assert wire.received() == (OURS, second, b"second")
    assert wire.received() == (OURS, third, b"third")
    for number in (second, third):
        wire.respond(number)
    assert wire.responses == [first, second, third]
    assert wire.connection.in_flight == 0
    assert wire.connection.send_progress.under_way_bytes == 0


def test_the_login_is_repeated_each_time(wire: Wire) -> None:
    for now_s in (81.0, 162.0, 243.0):
        number = wire.send(now_s)
        wire.log_in(now_s=now_s)
        assert wire.received()[1] == number
        wire.respond(number)
        again = wire.send(now_s + 1)
        assert wire.received()[:2] == (OURS, again)
        wire.respond(again)


def test_a_refused_login_ends_the_connection_with_its_reason(wire: Wire) -> None:
    waiting = wire.send(81.0, response_bytes=100)
    with pytest.raises(ConnectionClosed, match="c: SASL_AUTHENTICATION_FAILED"):
        wire.log_in(now_s=81.0, code=58)
    assert wire.connection.close() == [waiting]
    assert wire.pool.free_bytes == 1 << 20


def test_what_waits_can_be_detached_from_its_buffers(wire: Wire) -> None:
    buffer = bytearray(b"held")
    number = wire.send(81.0, b"")
    more = wire.connection.next_correlation_id()
    head = struct.pack(">ihhi", 8 + len(buffer), OURS, 0, more)
    wire.connection.send((head, buffer), correlation_id=more, context=more, now_s=81.0)
    wire.connection.detach()
    buffer[:] = b"gone"
    wire.log_in(now_s=81.0)
    assert wire.received() == (OURS, number, b"")
    assert wire.received() == (OURS, more, b"held")
    assert wire.pool.free_bytes == 1 << 20
