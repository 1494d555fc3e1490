"""Streams of events, against the server as it is started: many, and until it ends. Over TLS they are in
`test_tls.py`.

Without ZooKeeper each event is a problem.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from ureplicator_controller.api.rest_process import THREADS
from ureplicator_controller.api.services.event_feed import ALIVE_S
from ureplicator_controller.api.serving.streams import EVENT_STREAM, MAX_STREAMS
from ureplicator_testkit.fleet.rest_server import NOWHERE, Rest
from ureplicator_testkit.servers.processes import eventually

pytestmark = pytest.mark.integration

WITHIN_S = 20 * ALIVE_S
OPEN = f"GET /events HTTP/1.1\r\nHost: localhost\r\nAccept: {EVENT_STREAM}\r\n".encode()


def opened(rest: Rest) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", rest.port), timeout=WITHIN_S)
    client.sendall(OPEN + b"\r\n")
    return client


def received(client: socket.socket, events: int) -> bytes:
    """All until so many events have come. Raises TimeoutError after silence."""
    data = b""
    while data.count(b"event: ") < events or not data.endswith(b"\n\n"):
        more = client.recv(65_536)
        if not more:
            return data
        data += more
    return data


def test_streams_hold_no_thread(rest: Rest) -> None:
    assert MAX_STREAMS > THREADS
    with ExitStack() as open_ones:
        clients = [open_ones.enter_context(opened(rest)) for _ in range(MAX_STREAMS)]
        for client in clients:
            assert b"event: problem" in received(client, 3)
        assert [rest.status(path) for path in ("/health", "/topics", "/overview")] == [
            200,
            503,
            503,
        ]
        with opened(rest) as another:
            assert received(another, 1).startswith(b"HTTP/1.1 503 ")
        assert b"event: problem" in received(clients[0], 1)
    eventually(lambda: is_accepted(rest), WITHIN_S, "closed streams have made room")


def is_accepted(rest: Rest) -> bool:
    with opened(rest) as client:
        return received(client, 1).startswith(b"HTTP/1.1 200 ")


def test_what_comes_after_the_request_for_a_stream_is_no_request(rest: Rest) -> None:
    request = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection(("127.0.0.1", rest.port), timeout=WITHIN_S) as client:
        client.sendall(OPEN + b"\r\n" + request)
        assert received(client, 2).count(b"HTTP/1.1 ") == 1
        client.sendall(request)
        assert received(client, 3).count(b"HTTP/1.1 ") == 0


def test_a_plain_client_gets_one_event(rest: Rest) -> None:
    response = rest.request("GET", "/events")
    assert response.status_code == 200
    assert response.content.count(b"event: ") == 1


def test_streams_end_with_the_controller(tmp_path: Path) -> None:
    own = Rest(NOWHERE, tmp_path)
    try:
        eventually(lambda: own.status("/health") == 200, 20, "REST responds")
        with opened(own) as client:
            received(client, 2)
            own.parent.terminate()
            eventually(lambda: client.recv(65_536) == b"", WITHIN_S, "the stream ends")
    finally:
        own.parent.kill_tree()
