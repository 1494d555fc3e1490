"""Server-sent events on the event loop: a page that is open costs a connection and no thread.

    thread:  request -> application: head, first event ----+
    loop:                                                  +-> stream -> events -> closed after STREAM_S
    feed's thread: poll the feed -> event, deferred to the loop --^

An event is some hundred bytes. A client whose buffers do not take one is not reading: its connection is
closed, and it may connect again. So nothing waits for a client, and nothing is kept for it. A stream ends
after `STREAM_S`, so that what gave a browser the right to read is judged again.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Protocol

from werkzeug.wrappers import Response

from ureplicator_controller.api.serving.request_end import Refused

EVENTS = "/events"
EVENT_STREAM = "text/event-stream"
FEED = "feed"
"""Key of the feed in `Flask.extensions`."""
MAX_STREAMS = 200
"""Streams at most, of 512 connections. Pages beyond them ask each second instead."""
STREAM_S = 300.0
POLL_S = 0.2
"""Time between two looks at the feed while there are streams."""
FAILED_S = 5.0
"""Time after a defect of the feed."""
TOO_MANY = Refused(
    HTTPStatus.SERVICE_UNAVAILABLE, f"there are {MAX_STREAMS} streams of events already"
)

log = logging.getLogger(__name__)


class Feed(Protocol):
    """Source of events. `poll` returns the encoded event that is due, or nothing."""

    def poll(self) -> bytes: ...


def wants_stream(method: str, path: str, headers: Iterable[tuple[str, str]]) -> bool:
    """True for a request for events by a client that can follow a stream."""
    return (method, path) == ("GET", EVENTS) and any(
        name.lower() == "accept" and EVENT_STREAM in value.lower() for name, value in headers
    )


def respond(app: Any, environ: dict[str, Any], sock: socket.socket) -> bool:
    """Send the application's response; True if it begins a stream. Raises OSError.

    A stream has no length and ends with the connection, and so does another response here.
    """
    response = Response.from_app(app, environ, buffered=True)
    is_stream = response.mimetype == EVENT_STREAM
    if is_stream:
        del response.headers["Content-Length"]
    response.headers["Connection"] = "close"
    lines = [
        f"HTTP/1.1 {response.status}",
        *(f"{name}: {value}" for name, value in response.headers),
    ]
    sock.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + response.get_data())
    return is_stream


def sent(sock: socket.socket, event: bytes) -> bool:
    """Send an event on a socket that does not block; False if the client does not take it."""
    try:
        return sock.send(event) == len(event)
    except OSError:
        return False


def polled(feed: Feed) -> tuple[bytes, float]:
    """The event that is due, and the seconds until the next look. A defect is logged, and ends no stream."""
    try:
        return feed.poll(), POLL_S
    except Exception:
        log.exception("no events for pages")
        return b"", FAILED_S
