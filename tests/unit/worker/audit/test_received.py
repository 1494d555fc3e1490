"""Bytes of responses over a socket: each is read, passed over or summed up once, in order."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator

import pytest
from crc32c import crc32c

from ureplicator_worker.audit.received import BUFFER_BYTES, Received

Pair = tuple[socket.socket, Received]


@pytest.fixture(params=[True, False], ids=["discards", "decrypts"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """`decrypts`: as with TLS, where all must be read."""
    listener = socket.create_server(("127.0.0.1", 0))
    ours = socket.create_connection(listener.getsockname())
    theirs, _ = listener.accept()
    received = Received(ours)
    received._discards = request.param
    yield theirs, received
    for opened in (listener, ours, theirs):
        opened.close()


def send(peer: socket.socket, data: bytes) -> None:
    peer.sendall(struct.pack(">i", len(data)) + data)


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_reading(pair: Pair, seed: int) -> None:
    peer, received = pair
    dice = random.Random(seed)  # noqa: S311
    for _ in range(5):
        data = dice.randbytes(dice.choice([10, 5_000, 200_000]))
        send(peer, data)
        received.begin()
        at = 0
        while at < len(data):
            assert received.left == len(data) - at
            count = min(len(data) - at, dice.choice([1, 61, 5_000, 40_000, 150_000]))
            part = data[at : at + count]
            step = dice.randrange(3)
            if step == 0 and count <= BUFFER_BYTES:
                assert bytes(received.take(count)) == part
            elif step == 1:
                assert received.checksum(count, 5) == crc32c(part, 5)
            else:
                received.skip(count)
            at += count


def test_more_than_a_response_has_is_refused(pair: Pair) -> None:
    peer, received = pair
    send(peer, b"12345")
    received.begin()
    with pytest.raises(ValueError, match="6 bytes of a response that has 5"):
        received.take(6)
    with pytest.raises(ValueError, match="6 bytes"):
        received.skip(6)
    assert bytes(received.take(5)) == b"12345"


def test_a_peer_that_ends_is_noticed(pair: Pair) -> None:
    peer, received = pair
    peer.sendall(struct.pack(">i", 100) + b"12")
    received.begin()
    peer.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionResetError):
        received.take(3)
