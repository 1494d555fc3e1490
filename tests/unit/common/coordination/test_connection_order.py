"""Order in which ZooKeeper servers are tried, on real sockets that accept connections and say nothing."""

import socket
from collections.abc import Iterator

import pytest

from ureplicator_common.coordination.connection import _Handler


@pytest.fixture
def servers() -> Iterator[list[tuple[str, int]]]:
    with (
        socket.create_server(("127.0.0.1", 0)) as first,
        socket.create_server(("127.0.0.1", 0)) as second,
    ):
        yield [first.getsockname(), second.getsockname()]


@pytest.fixture
def handler() -> _Handler:
    return _Handler(connect_timeout_s=10, tls=None)


def connect(handler: _Handler, address: tuple[str, int]) -> None:
    handler.create_connection(address=address, hostname=address[0], timeout=10).close()


def test_a_server_whose_connection_was_lost_is_tried_after_another_one(
    handler: _Handler, servers: list[tuple[str, int]]
) -> None:
    lost, other = servers
    connect(handler, lost)
    handler.session_established()
    with pytest.raises(ConnectionAbortedError, match="others first"):
        connect(handler, lost)
    connect(handler, other)
    connect(handler, lost)


def test_the_only_server_is_passed_over_once(
    handler: _Handler, servers: list[tuple[str, int]]
) -> None:
    only = servers[0]
    connect(handler, only)
    handler.session_established()
    with pytest.raises(ConnectionAbortedError):
        connect(handler, only)
    connect(handler, only)


def test_a_server_that_gave_no_session_is_tried_in_its_turn(
    handler: _Handler, servers: list[tuple[str, int]]
) -> None:
    silent, other = servers
    connect(handler, silent)
    connect(handler, silent)
    connect(handler, other)
    handler.session_established()
    connect(handler, silent)
