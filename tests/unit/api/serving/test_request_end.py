"""Ends of requests, and requests that never get a thread."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ureplicator_controller.api.serving.request_end import (
    MAX_BODY_BYTES,
    MAX_HEAD_BYTES,
    Complete,
    Incomplete,
    Refused,
    path_in,
    request_end,
)

GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /topics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"


@pytest.mark.parametrize("request_bytes", [GET, POST])
def test_a_request_is_complete_with_its_last_byte(request_bytes: bytes) -> None:
    for length in range(len(request_bytes)):
        assert request_end(request_bytes[:length]) == Incomplete()
    assert request_end(request_bytes) == Complete(len(request_bytes))
    assert request_end(request_bytes + GET) == Complete(len(request_bytes))


def test_a_client_that_expects_continue_is_told_until_the_body_is_there() -> None:
    head = b"POST / HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-Continue\r\n\r\n"
    assert request_end(head) == Incomplete(continue_expected=True)
    assert request_end(head + b"{}") == Complete(len(head) + 2)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"Content-Length: 5\r\nContent-Length: 5", 400),
        (b"Content-Length: 5, 5", 400),
        (b"Content-Length: +5", 400),
        (b"Content-Length: 0x5", 400),
        (b"Content-Length: ", 400),
        (b"Content-Length : 5", 400),
        (b"Content-Length: 5\n", 400),
        (b"X: a\rb", 400),
        (b"X: a\r\n folded", 400),
        (b"X: a\0", 400),
        (b"no colon", 400),
        (b"Transfer-Encoding: chunked", 411),
        (b"Transfer-Encoding: identity", 411),
        (b"transfer-encoding:\tchunked\r\nContent-Length: 5", 411),
        (b"Content-Length: %d" % (MAX_BODY_BYTES + 1), 413),
    ],
)
def test_a_request_whose_end_is_in_doubt_is_refused(head: bytes, status: int) -> None:
    verdict = request_end(b"POST /topics HTTP/1.1\r\n" + head + b"\r\n\r\n")
    assert isinstance(verdict, Refused)
    assert verdict.status == status


def test_headers_without_an_end_are_refused() -> None:
    verdict = request_end(b"GET / HTTP/1.1\r\nX: " + b"x" * MAX_HEAD_BYTES)
    assert isinstance(verdict, Refused)
    assert verdict.status == 431


@pytest.mark.parametrize(
    ("received", "path"),
    [
        (b"POST /topics?src=a HTTP/1.1\r\n", "/topics"),
        (b"GET /topics/a%20b HTTP/1.1\r\n", "/topics/a%20b"),
        (b"GET http://x/topics HTTP/1.1\r\n", "/"),
        (b"\x16\x03\x01", "/"),
        (b"", "/"),
    ],
)
def test_the_path_of_a_refused_request_is_named(received: bytes, path: str) -> None:
    assert path_in(received) == path


@given(st.binary(max_size=300), st.integers(0, 300))
def test_any_bytes_get_a_verdict_that_more_bytes_do_not_revoke(data: bytes, cut: int) -> None:
    before, after = request_end(data[:cut]), request_end(data)
    if not isinstance(before, Incomplete):
        assert after == before
