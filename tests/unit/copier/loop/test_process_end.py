"""SIGTERM, and the stacks of a loop that is stuck."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator

import pytest

from ureplicator_worker.copier.loop.process_end import StackDump, on_sigterm


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a lifeline."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        copier = socket.create_connection(listener.getsockname())
        driver, _ = listener.accept()
    copier.setblocking(False)
    driver.settimeout(30)
    yield copier, driver
    copier.close()
    driver.close()


def test_sigterm_is_a_call_while_the_copier_runs() -> None:
    calls: list[str] = []
    before = signal.getsignal(signal.SIGTERM)
    with on_sigterm(lambda: calls.append("terminated")):
        os.kill(os.getpid(), signal.SIGTERM)
        assert calls == ["terminated"]
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_thread_that_is_not_the_main_one_has_no_handler() -> None:
    before = signal.getsignal(signal.SIGTERM)
    inside: list[object] = []

    def run() -> None:
        with on_sigterm(lambda: None):
            inside.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert inside == [before]


def test_a_loop_without_a_turn_has_its_stacks_written(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    copier, driver = ends
    stacks = StackDump(copier.fileno(), silence_s=0.1)
    stacks.turn(0.0)
    text = b""
    while b"test_a_loop_without_a_turn_has_its_stacks_written" not in text:
        text += driver.recv(65536)
    assert text.startswith(b"Timeout (")
    stacks.close()


def test_a_loop_that_turns_writes_nothing(ends: tuple[socket.socket, socket.socket]) -> None:
    copier, driver = ends
    stacks = StackDump(copier.fileno(), silence_s=3600.0)
    for now_s in range(10):
        stacks.turn(float(now_s))
    stacks.close()
    stacks.turn(100.0)
    stacks.close()
    copier.shutdown(socket.SHUT_RDWR)
    assert driver.recv(1) == b""


def test_a_descriptor_that_is_used_again_gets_nothing(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    """The lifeline is closed, and its number is that of another connection now."""
    copier, driver = ends
    stacks = StackDump(copier.fileno(), silence_s=0.1)
    number = copier.fileno()
    copier.close()
    broker, other_end = socket.socketpair()
    with broker, other_end:
        assert broker.fileno() == number
        stacks.turn(0.0)
        assert driver.recv(65536).startswith(b"Timeout (")
        other_end.setblocking(False)
        with pytest.raises(BlockingIOError):
            other_end.recv(1)
    stacks.close()
