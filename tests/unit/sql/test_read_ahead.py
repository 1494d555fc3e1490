"""Frames that are read while a round is evaluated."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from ureplicator_testkit.servers.processes import eventually
from ureplicator_worker.copier.record.channel import CopierGone, Inbox
from ureplicator_worker.copier.record.frames import MalformedFrame, encode
from ureplicator_worker.sql.read_ahead import ReadAhead

LARGE = bytes(1 << 20)
"""More than a socket holds."""


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, ReadAhead]]:
    copier, process = socket.socketpair()
    with copier, process:
        yield copier, ReadAhead(process)


def send(copier: socket.socket, number: int, payload: bytes = b"") -> None:
    copier.sendall(b"".join(encode({"number": number}, [payload])))


def test_a_copier_is_never_held_up_by_a_process_that_computes(
    pair: tuple[socket.socket, ReadAhead],
) -> None:
    """Nothing is received meanwhile, and all of it is there afterwards."""
    copier, channel = pair
    copier.settimeout(10)
    for number in range(8):
        send(copier, number, LARGE)
    copier.close()
    inbox = Inbox(channel)
    eventually(lambda: inbox.peek() is not None, 10, "a frame")
    assert [inbox.next()[0]["number"] for _ in range(8)] == [*range(8)]


def test_the_end_comes_behind_what_was_sent_and_stays(
    pair: tuple[socket.socket, ReadAhead],
) -> None:
    copier, channel = pair
    send(copier, 1)
    copier.close()
    assert channel.receive()[0] == {"number": 1}
    for _ in range(2):
        with pytest.raises(CopierGone):
            channel.receive()
        assert channel.readable


def test_bytes_that_are_no_frame_are_an_error(pair: tuple[socket.socket, ReadAhead]) -> None:
    copier, channel = pair
    copier.sendall(b"\xff" * 8)
    with pytest.raises(MalformedFrame):
        channel.receive()
