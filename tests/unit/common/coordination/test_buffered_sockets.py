"""Reads of what has arrived, and waits that know what is there already. TLS is tested against a server."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress

import pytest

from ureplicator_common.coordination.buffered_sockets import (
    CHUNK_BYTES,
    BufferedSocket,
    buffered,
    select_buffered,
)

WAIT_S = 10.0


@pytest.fixture
def ends() -> Iterator[tuple[BufferedSocket, socket.socket]]:
    """Two ends of a connection; the first is read."""
    plain, other = socket.socketpair()
    own = buffered(plain)
    own.setblocking(False)
    with own, other:
        yield own, other


Ends = tuple[BufferedSocket, socket.socket]


def readable(own: BufferedSocket, *, wait_s: float = WAIT_S) -> bool:
    return select_buffered([own], [], wait_s) == ([own], [])


def test_what_has_arrived_is_read_in_parts(ends: Ends) -> None:
    own, other = ends
    other.sendall(b"one-two-")
    assert readable(own)
    assert own.pending() == 8
    assert own.recv(4) == b"one-"
    other.sendall(b"three-")
    assert readable(own, wait_s=0.0), "the rest of what was read before"
    assert own.recv(100) == b"two-"
    assert readable(own)
    assert own.recv(100) == b"three-"


def test_nothing_is_no_end(ends: Ends) -> None:
    own, _ = ends
    assert not readable(own, wait_s=0.01)
    with pytest.raises(ssl.SSLWantReadError):
        own.recv(4)
    assert not own.has_data


def test_the_end_of_the_stream_comes_after_what_was_sent(ends: Ends) -> None:
    own, other = ends
    other.sendall(b"last")
    other.close()
    assert readable(own)
    assert own.recv(4) == b"last"
    for _ in range(3):
        assert readable(own)
        assert own.recv(4) == b""


def test_more_than_a_chunk_arrives_whole(ends: Ends) -> None:
    own, other = ends
    sent = bytes(range(256)) * (3 * CHUNK_BYTES // 256)
    other.sendall(sent)
    received = b""
    while len(received) < len(sent):
        assert readable(own)
        received += own.recv(1_000)
    assert received == sent


def test_other_sockets_are_seen_beside_data_that_was_read(ends: Ends) -> None:
    own, other = ends
    waker, woken = socket.socketpair()
    with waker, woken:
        other.sendall(b"one-two-")
        assert readable(own)
        assert own.recv(4) == b"one-"
        assert select_buffered([own, woken], [], WAIT_S) == ([own], [])
        waker.sendall(b"\0")
        assert select_buffered([own, woken], [], WAIT_S) == ([own, woken], [])
        assert own.recv(4) == b"two-"
        assert select_buffered([own, woken], [], WAIT_S) == ([woken], [])


def test_a_socket_takes_data_until_its_buffer_is_full(ends: Ends) -> None:
    own, _ = ends
    assert select_buffered([], [own], WAIT_S) == ([], [own])
    with suppress(BlockingIOError):
        for _ in range(100):
            own.send(bytes(65_536))
    assert select_buffered([], [own], 0.01) == ([], [])
