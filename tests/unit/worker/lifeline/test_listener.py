"""Accepting connections pauses while the process has no descriptor left."""

import errno
import selectors
import socket
from collections.abc import Iterator

import pytest

from ureplicator_worker.lifeline.listener import ACCEPT_PAUSE_S, Listener

NOW_S = 100.0


class FailingServer(socket.socket):
    """`accept` fails with `error`."""

    error = 0

    def accept(self) -> tuple[socket.socket, object]:
        raise OSError(self.error, "")


@pytest.fixture
def server() -> Iterator[FailingServer]:
    with FailingServer() as server:
        yield server


@pytest.fixture
def selector() -> Iterator[selectors.BaseSelector]:
    with selectors.DefaultSelector() as selector:
        yield selector


def test_what_waits_in_the_queue_wakes_nobody_until_the_pause_is_over(
    server: FailingServer, selector: selectors.BaseSelector
) -> None:
    listener = Listener(server, selector)
    server.error = errno.EMFILE
    assert listener.accept(NOW_S) is None
    listener.resume(NOW_S + ACCEPT_PAUSE_S - 0.1)
    assert server not in selector.get_map()
    listener.resume(NOW_S + ACCEPT_PAUSE_S)
    assert server in selector.get_map()


def test_a_connection_that_was_given_up_in_the_queue_delays_no_other(
    server: FailingServer, selector: selectors.BaseSelector
) -> None:
    listener = Listener(server, selector)
    server.error = errno.ECONNABORTED
    assert listener.accept(NOW_S) is None
    assert server in selector.get_map()
