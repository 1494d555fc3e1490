"""Clients that are slow, silent, oversize or ambiguous, against the server as it is started."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack

import pytest

from ureplicator_controller.api.http.models.responses import ProblemResponse
from ureplicator_controller.api.rest_process import CONNECTIONS
from ureplicator_controller.api.serving.worker import REQUEST_S
from ureplicator_testkit.fleet.rest_server import Rest

pytestmark = pytest.mark.integration

GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def connect(rest: Rest) -> socket.socket:
    return socket.create_connection(("127.0.0.1", rest.port), timeout=4 * REQUEST_S)


def answer(rest: Rest, request: bytes) -> bytes:
    """All that the server sends until it closes the connection."""
    with connect(rest) as client:
        client.sendall(request)
        return all_of(client)


def all_of(client: socket.socket) -> bytes:
    received = b""
    while data := client.recv(65_536):
        received += data
    return received


def status_of(response: bytes) -> int:
    return int(response.split(b" ", 2)[1])


@pytest.mark.parametrize(
    "start", [b"", b"G", GET[:-2], b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n{"]
)
@pytest.mark.parametrize("connections", [8, 80, CONNECTIONS + 100])
def test_connections_that_stop_halfway_hold_nothing(
    rest: Rest, connections: int, start: bytes
) -> None:
    with ExitStack() as open_ones:
        for _ in range(connections):
            open_ones.enter_context(connect(rest)).sendall(start)
        began_s = time.monotonic()
        assert rest.status("/health") == 200
        assert time.monotonic() - began_s < REQUEST_S / 2


def test_a_request_that_comes_byte_by_byte_ends_at_its_deadline(rest: Rest) -> None:
    with connect(rest) as client:
        client.settimeout(0.1)
        received, deadline_s = b"", time.monotonic() + 4 * REQUEST_S
        while not received and time.monotonic() < deadline_s:
            client.sendall(b"G")
            try:
                received = client.recv(65_536)
            except TimeoutError:
                continue
    assert status_of(received) == 408


def test_a_client_that_does_not_close_its_connection_delays_no_other(rest: Rest) -> None:
    with ExitStack() as open_ones:
        for _ in range(20):
            client = open_ones.enter_context(connect(rest))
            client.sendall(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        began_s = time.monotonic()
        assert rest.status("/health") == 200
        assert time.monotonic() - began_s < REQUEST_S / 2


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", 431),
        (b"POST /topics HTTP/1.1\r\nContent-Length: 70000\r\n\r\n" + b"x" * 70_000, 413),
        (b"POST /topics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (
            b"POST /topics HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"0\r\n\r\n" + GET,
            411,
        ),
        (b"POST /topics HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 9\r\n\r\n" + GET, 400),
        (b"POST /topics HTTP/1.1\r\nContent-Length : 9\r\n\r\n" + GET, 400),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
        (b"GET /health HTTP/9\r\nHost: localhost\r\n\r\n", 400),
    ],
)
def test_what_is_oversize_or_ambiguous_is_refused_once(
    rest: Rest, request_bytes: bytes, status: int
) -> None:
    response = answer(rest, request_bytes)
    assert status_of(response) == status
    assert response.count(b"HTTP/1.1 ") == 1
    if b"application/problem+json" in response:
        problem = ProblemResponse.model_validate_json(response.partition(b"\r\n\r\n")[2])
        assert problem.instance in ("/", "/topics")


def test_requests_in_one_packet_get_their_responses_in_order(rest: Rest) -> None:
    last = GET.replace(b"/health", b"/nowhere").replace(
        b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"
    )
    response = answer(rest, GET + GET + last)
    assert response.count(b"HTTP/1.1 200 OK") == 2
    assert response.count(b"HTTP/1.1 404 ") == 1


def test_a_body_may_come_later_than_its_headers(rest: Rest) -> None:
    body = b'{"topic": 1}'
    with connect(rest) as client:
        client.sendall(
            b"POST /topics HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
            b"Content-Type: application/json\r\nConnection: close\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body)
        )
        assert client.recv(65_536).startswith(b"HTTP/1.1 100 ")
        client.sendall(body)
        assert b"application/problem+json" in all_of(client)
