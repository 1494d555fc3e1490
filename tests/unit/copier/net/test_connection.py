"""One connection: requests are sent whole, responses arrive whole, or it is closed."""

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from ureplicator_worker.copier.net.buffers import BufferPool, Lease
from ureplicator_worker.copier.net.connection import (
    HEAD_BYTES,
    BrokerConnection,
    ConnectionClosed,
)
from ureplicator_worker.copier.net.round_trip import FAR_S, FEW_BYTES, RoundTrip
from ureplicator_worker.wire.varint import MalformedResponse


class CountingSocket(socket.socket):
    calls = 0

    def recv_into(self, *args: Any, **options: Any) -> int:
        self.calls += 1
        return super().recv_into(*args, **options)

    def sendmsg(self, *args: Any, **options: Any) -> int:
        self.calls += 1
        return super().sendmsg(*args, **options)


@dataclass
class Wire:
    pool: BufferPool = field(default_factory=lambda: BufferPool(limit_bytes=1 << 20))
    responses: list[tuple[Any, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        ours, self.peer = socket.socketpair()
        self.socket = CountingSocket(fileno=ours.detach())
        self.connection = BrokerConnection(self.socket, pool=self.pool, newest={})

    def request(self, *pieces: bytes, now_s: float = 0.0, response_bytes: int = 0) -> int:
        number = self.connection.next_correlation_id()
        self.connection.send(
            pieces,
            correlation_id=number,
            context=f"request {number}",
            now_s=now_s,
            response_bytes=response_bytes,
        )
        return number

    def take(self, context: Any, lease: Lease) -> None:
        self.responses.append((context, bytes(lease.view[4:])))
        lease.release()

    def read(self, *, now_s: float = 0.0) -> None:
        self.connection.on_readable(self.take, now_s=now_s)


def response(number: int, body: bytes = b"") -> bytes:
    return struct.pack(">ii", 4 + len(body), number) + body


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.connection.close()
    wire.peer.close()
    assert wire.pool.used_bytes == wire.pool.reserved_bytes == 0


def test_a_request_and_its_response(wire: Wire) -> None:
    number = wire.request(b"one", b"", b"two")
    assert wire.peer.recv(100) == b"onetwo"
    assert (wire.connection.in_flight, wire.connection.wants_write) == (1, False)
    wire.peer.sendall(response(number, b"body"))
    wire.read()
    assert wire.responses == [("request 1", b"body")]
    assert wire.connection.in_flight == 0


def test_several_responses_in_one_read(wire: Wire) -> None:
    numbers = [wire.request(b"x") for _ in range(5)]
    wire.peer.sendall(b"".join(response(number, b"%d" % number) for number in numbers))
    for _ in range(3):
        wire.read()
    assert wire.responses == [(f"request {number}", b"%d" % number) for number in numbers]


@pytest.mark.parametrize("size", [1, 3, 5, 7])
def test_responses_in_small_pieces(wire: Wire, size: int) -> None:
    numbers = [wire.request(b"x"), wire.request(b"y")]
    raw = response(numbers[0], b"first body") + response(numbers[1])
    for at in range(0, len(raw), size):
        wire.peer.sendall(raw[at : at + size])
        wire.read()
    wire.read()
    assert wire.responses == [("request 1", b"first body"), ("request 2", b"")]


def test_acknowledgements_that_are_there_are_received_by_one_call(wire: Wire) -> None:
    """No other call follows, which would find nothing."""
    numbers = [wire.request(b"x") for _ in range(5)]
    wire.peer.sendall(b"".join(response(number, b"ok") for number in numbers[:4]))
    wire.socket.calls = 0
    wire.read()
    assert [body for _, body in wire.responses] == [b"ok"] * 4
    assert wire.socket.calls == 1


@pytest.mark.parametrize("size", range(HEAD_BYTES - 10, HEAD_BYTES + 3))
def test_responses_around_the_size_that_is_received_first(wire: Wire, size: int) -> None:
    bodies = [bytes([number]) * size for number in range(4)]
    numbers = [wire.request(b"x") for _ in bodies]
    wire.peer.sendall(b"".join(map(response, numbers, bodies)))
    wire.read()
    assert [body for _, body in wire.responses] == bodies


def test_a_socket_that_took_less_is_not_called_again(wire: Wire) -> None:
    wire.socket.calls = 0
    wire.request(bytes(8 << 20))
    assert wire.connection.wants_write
    assert wire.socket.calls == 1


def test_nothing_to_read_is_no_trouble(wire: Wire) -> None:
    wire.request(b"x")
    wire.read()
    assert wire.responses == []


def test_a_request_larger_than_the_socket_takes_goes_out_in_order(wire: Wire) -> None:
    pieces = [bytes([number % 251]) * (1 + 977 * number % 60_000) for number in range(1_500)]
    wire.request(*pieces)
    assert wire.connection.wants_write
    received = bytearray()
    while len(received) < sum(map(len, pieces)):
        received += wire.peer.recv(1 << 20)
        wire.connection.on_writable()
    assert received == b"".join(pieces)
    assert not wire.connection.wants_write


def test_a_wrong_correlation_id_closes(wire: Wire) -> None:
    number = wire.request(b"x")
    wire.peer.sendall(response(number + 1))
    with pytest.raises(MalformedResponse, match="where 1 was expected"):
        wire.read()
    assert wire.connection.close() == ["request 1"]


@pytest.mark.parametrize("size", [-1, 0, 3, 2**31 - 1])
def test_an_impossible_response_size_closes(wire: Wire, size: int) -> None:
    wire.request(b"x")
    wire.peer.sendall(struct.pack(">i", size))
    with pytest.raises(MalformedResponse, match="a response of"):
        wire.read()


def test_a_response_without_a_request_closes(wire: Wire) -> None:
    wire.peer.sendall(response(1))
    with pytest.raises(MalformedResponse):
        wire.read()


@pytest.mark.parametrize("sent", [0, 2, 6])
def test_a_connection_closed_by_the_peer_is_reported(wire: Wire, sent: int) -> None:
    number = wire.request(b"x")
    wire.peer.sendall(response(number, b"body")[:sent])
    wire.peer.close()
    if sent:
        wire.read()
    with pytest.raises(ConnectionClosed, match=r"closed by the broker|reset"):
        wire.read()
    assert wire.connection.close() == ["request 1"]


def test_sending_to_a_closed_peer_is_reported_and_the_request_is_lost_on_close(wire: Wire) -> None:
    wire.peer.close()
    with pytest.raises(ConnectionClosed):
        wire.request(b"x")
    assert wire.connection.close() == ["request 1"]


def test_close_returns_the_requests_without_a_response(wire: Wire) -> None:
    for _ in range(3):
        wire.request(b"x")
    wire.peer.sendall(response(1) + response(2, b"body")[:6])
    wire.read()
    wire.read()
    assert wire.connection.close() == ["request 2", "request 3"]
    assert (wire.connection.in_flight, wire.connection.wants_write) == (0, False)
    assert wire.pool.used_bytes == 0


def test_a_response_is_counted_before_it_comes(wire: Wire) -> None:
    number = wire.request(b"x", response_bytes=5_000)
    wire.request(b"x", response_bytes=700)
    assert (wire.pool.reserved_bytes, wire.pool.used_bytes) == (5_700, 0)
    raw = response(number, b"body")
    wire.peer.sendall(raw[:6])
    wire.read()
    wire.read()
    assert (wire.pool.reserved_bytes, wire.pool.used_bytes) == (700, len(raw) - 4)
    wire.connection.close()
    assert (wire.pool.reserved_bytes, wire.pool.used_bytes) == (0, 0)


def test_what_the_socket_has_not_taken_is_copied_once(wire: Wire) -> None:
    """The buffers that it came from may be used again then."""
    data = bytearray(b"y" * (1 << 20))
    wire.request(memoryview(data))  # type: ignore[arg-type]
    taken = bytearray(wire.peer.recv(1 << 20))
    wire.connection.detach()
    detached = wire.pool.used_bytes
    assert 0 < detached < len(data)
    wire.connection.detach()
    assert wire.pool.used_bytes == detached
    data[:] = b"n" * len(data)
    while len(taken) < len(data):
        wire.connection.on_writable()
        taken += wire.peer.recv(1 << 20)
    assert bytes(taken) == b"y" * len(data)
    assert wire.pool.used_bytes == 0


def test_silence_is_the_time_since_the_last_byte(wire: Wire) -> None:
    assert wire.connection.silence_s(50.0) == 0.0
    number = wire.request(b"x", now_s=60.0)
    assert wire.peer.recv(100) == b"x"
    assert wire.connection.silence_s(60.0) == 0.0
    assert wire.connection.silence_s(63.0) == 3.0
    raw = response(number, b"body")
    for at in range(len(raw) - 1):
        wire.peer.sendall(raw[at : at + 1])
        wire.read(now_s=70.0 + at)
        assert wire.connection.silence_s(70.5 + at) == 0.5
    wire.peer.sendall(raw[-1:])
    wire.read(now_s=90.0)
    assert wire.connection.silence_s(99.0) == 0.0


def test_a_request_that_the_peer_takes_slowly_is_not_silence(wire: Wire) -> None:
    wire.request(bytes(1 << 20), now_s=10.0)
    for turn in range(4):
        wire.peer.recv(100_000)
        assert wire.connection.silence_s(20.0 + turn) == 0.0
        wire.connection.on_writable()
    assert wire.connection.silence_s(33.0) == 10.0


def test_later_requests_do_not_end_a_silence(wire: Wire) -> None:
    """The kernel of a frozen broker takes them."""
    wire.request(b"x", now_s=10.0)
    wire.peer.recv(100)
    wire.connection.silence_s(10.5)
    wire.request(b"y", now_s=12.0)
    wire.peer.recv(100)
    assert wire.connection.silence_s(15.0) == 4.5


def test_the_kernel_may_fit_its_buffers_to_the_line(wire: Wire) -> None:
    """A size that was set is not adapted any more."""
    with socket.socket() as fresh:
        usual = fresh.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        connection = BrokerConnection(fresh, pool=wire.pool, newest={})
        assert fresh.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == usual
        connection.close()


def test_a_callee_may_close_the_channel(wire: Wire) -> None:
    numbers = [wire.request(b"x"), wire.request(b"x")]
    wire.peer.sendall(response(numbers[0]) + response(numbers[1]))

    def take(context: Any, lease: Lease) -> None:
        wire.take(context, lease)
        wire.connection.close()

    wire.connection.on_readable(take, now_s=0.0)
    assert wire.responses == [("request 1", b"")]


@pytest.mark.parametrize(("before_bytes", "far"), [(1, True), (FEW_BYTES, False)])
def test_the_round_trip_is_that_of_requests_with_little_before_them(
    wire: Wire, before_bytes: int, far: bool
) -> None:
    first = wire.request(b"x" * before_bytes, now_s=1.0)
    second = wire.request(b"y" * 100, now_s=1.0)
    wire.peer.sendall(response(first))
    wire.read(now_s=1.0)
    wire.connection.round_trip = RoundTrip()
    wire.peer.sendall(response(second))
    wire.read(now_s=1.0 + 2 * FAR_S)
    assert wire.connection.round_trip.is_far is far
