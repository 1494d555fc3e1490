"""Requests for a stream, its first bytes, and clients that do not read."""

from __future__ import annotations

import socket

import pytest
from flask import Flask, Response
from werkzeug.test import create_environ

from ureplicator_controller.api.serving.streams import (
    FAILED_S,
    POLL_S,
    polled,
    respond,
    sent,
    wants_stream,
)

ACCEPTS = [("ACCEPT", "text/event-stream")]


@pytest.mark.parametrize(
    ("method", "path", "headers", "wanted"),
    [
        ("GET", "/events", ACCEPTS, True),
        ("GET", "/events", [("Accept", "text/html, Text/Event-Stream;q=0.9")], True),
        ("HEAD", "/events", ACCEPTS, False),
        ("GET", "/events", [("ACCEPT", "*/*")], False),
        ("GET", "/events", [], False),
        ("GET", "/overview", ACCEPTS, False),
    ],
)
def test_streams_are_for_clients_that_accept_them(
    method: str, path: str, headers: list[tuple[str, str]], wanted: bool
) -> None:
    assert wants_stream(method, path, headers) is wanted


@pytest.mark.parametrize(
    ("mimetype", "is_stream"), [("text/event-stream", True), ("application/problem+json", False)]
)
def test_only_events_begin_a_stream(mimetype: str, is_stream: bool) -> None:
    app = Flask("test")
    app.add_url_rule("/events", view_func=lambda: Response(b"data: 1\n\n", mimetype=mimetype))
    server, client = socket.socketpair()
    with server, client:
        assert respond(app, create_environ("/events"), server) is is_stream
        head, _, body = client.recv(65_536).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Connection: close" in head
    assert (b"Content-Length: 9" in head) is not is_stream
    assert body == b"data: 1\n\n"


def test_a_client_that_does_not_read_takes_no_event() -> None:
    server, client = socket.socketpair()
    with server, client:
        server.setblocking(False)
        assert sent(server, b"data: 1\n\n")
        while sent(server, b"x" * 4_096):
            pass
        assert not sent(server, b"data: 1\n\n")


def test_a_client_that_has_gone_takes_no_event() -> None:
    server, client = socket.socketpair()
    client.close()
    with server:
        assert not sent(server, b"data: 1\n\n")


class Broken:
    def poll(self) -> bytes:
        raise ZeroDivisionError


class Quiet:
    def poll(self) -> bytes:
        return b""


def test_a_defect_of_the_feed_is_logged_and_slows_it(caplog: pytest.LogCaptureFixture) -> None:
    assert polled(Broken()) == (b"", FAILED_S)
    assert "no events for pages" in caplog.text
    assert polled(Quiet()) == (b"", POLL_S)
