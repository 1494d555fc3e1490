"""The copier's end of the lifeline: whole messages, whatever pieces they come in."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from ureplicator_worker.lifeline import place
from ureplicator_worker.lifeline.client import (
    MAX_LINE_BYTES,
    LifelineClient,
    LifelineClosed,
    open_lifeline,
)
from ureplicator_worker.lifeline.codec import decode, encode
from ureplicator_worker.lifeline.handshake import Admissions
from ureplicator_worker.lifeline.messages import (
    Challenge,
    CopierConfig,
    CopierId,
    Hello,
    Remove,
    Stop,
)

HELLO = Hello(CopierId(0, 1), "far", 7, "space", "nonce")


@pytest.fixture
def ends() -> Iterator[tuple[LifelineClient, socket.socket]]:
    copier, driver = socket.socketpair()
    line = LifelineClient(copier)
    yield line, driver
    line.close()
    driver.close()


def read(line: LifelineClient) -> list[object]:
    """The next messages."""
    select.select([line], [], [], 5.0)
    return list(line.on_readable())


def test_messages_both_ways(ends: tuple[LifelineClient, socket.socket]) -> None:
    line, driver = ends
    line.send(HELLO)
    assert decode(driver.recv(1_000)) == HELLO
    driver.sendall(encode(Remove(())) + encode(Stop()))
    assert read(line) == [Remove(()), Stop()]


def test_a_message_in_pieces(ends: tuple[LifelineClient, socket.socket]) -> None:
    line, driver = ends
    raw = encode(Remove(())) + encode(Stop())
    received_messages: list[object] = []
    for at in range(0, len(raw), 7):
        driver.sendall(raw[at : at + 7])
        received_messages += read(line)
    assert received_messages == [Remove(()), Stop()]
    assert list(line.on_readable()) == []


def test_messages_that_a_driver_does_not_read_wait(
    ends: tuple[LifelineClient, socket.socket],
) -> None:
    line, driver = ends
    hello = Hello(CopierId(0, 1), "x" * 1_000_000, 7, "", "")
    while not line.wants_write:
        line.send(hello)
    driver.settimeout(5.0)
    received = bytearray()
    while line.wants_write or not received.endswith(b"\n"):
        received += driver.recv(1 << 20)
        line.on_writable()
    assert {decode(message) for message in received.splitlines()} == {hello}


def test_the_end_of_the_driver_raises(ends: tuple[LifelineClient, socket.socket]) -> None:
    line, driver = ends
    driver.close()
    with pytest.raises(LifelineClosed):
        read(line)


def test_a_line_without_end_is_no_driver(
    ends: tuple[LifelineClient, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ureplicator_worker.lifeline.client.MAX_LINE_BYTES", 10)
    assert MAX_LINE_BYTES > 1 << 20
    line, driver = ends
    driver.sendall(b"x" * 11)
    with pytest.raises(LifelineClosed, match="too long"):
        read(line)


def config(address: tuple[str, int]) -> CopierConfig:
    return CopierConfig(
        fleet="f",
        worker="w",
        slot=0,
        run=1,
        host=address[0],
        port=address[1],
        token="the token",  # noqa: S106
        clusters={},
        commit_interval_s=1.0,
        transaction_interval_s=0.1,
        buffer_bytes=1,
        silence_s=60.0,
    )


def test_no_driver_at_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
    with pytest.raises(LifelineClosed):
        open_lifeline(config(address))


class FalseDriver:
    """Listens where a driver was; `response` is sent for the Hello."""

    def __init__(self, respond: Callable[[Hello], bytes], *, closes: bool = True) -> None:
        self._respond, self._closes = respond, closes
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(30)
        self.config = config(self._server.getsockname())
        self.received = b""
        self._thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        peer, _ = self._server.accept()
        with peer:
            while not self.received.endswith(b"\n"):
                self.received += peer.recv(4096)
            hello = decode(self.received)
            assert isinstance(hello, Hello)
            with contextlib.suppress(OSError):  # at any time it leaves without reading everything
                peer.sendall(self._respond(hello))
                if self._closes:
                    peer.shutdown(socket.SHUT_WR)
                while data := peer.recv(4096):
                    self.received += data

    def __enter__(self) -> FalseDriver:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(30)
        self._server.close()


def other_token(hello: Hello) -> bytes:
    admissions = Admissions()
    admissions.issue(hello.copier)
    return encode(admissions.challenge(hello))


@pytest.mark.parametrize(
    ("respond", "reason"),
    [
        (other_token, "the driver does not have the token of this run"),
        (lambda hello: encode(Challenge("", "")), "does not have the token"),
        (lambda hello: encode(Stop()), "no challenge but Stop"),
        (lambda hello: other_token(hello)[:-20], "no challenge of a driver"),
        (lambda hello: b"HTTP/1.1 400 Bad Request\r\n", "Expecting value"),
        (lambda hello: b"x" * 10_000, "no challenge of a driver"),
        (lambda hello: other_token(hello) + encode(Stop()), "Extra data"),
        (lambda hello: b"", "no challenge of a driver"),
    ],
)
def test_a_driver_without_the_token_is_refused_and_never_sees_it(
    respond: Callable[[Hello], bytes], reason: str
) -> None:
    with FalseDriver(respond) as driver, pytest.raises(LifelineClosed, match=reason):
        open_lifeline(driver.config)
    assert driver.config.token.encode() not in driver.received
    assert isinstance(decode(driver.received), Hello), "nothing follows the Hello"


def test_a_driver_that_is_silent_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ureplicator_worker.lifeline.client.CONNECT_TIMEOUT_S", 0.1)
    silent = FalseDriver(lambda _: b"{", closes=False)
    with silent as driver, pytest.raises(LifelineClosed, match="timed out"):
        open_lifeline(driver.config)


def test_a_hello_names_host_and_process() -> None:
    with FalseDriver(other_token) as driver, pytest.raises(LifelineClosed):
        open_lifeline(driver.config)
    hello = decode(driver.received)
    assert isinstance(hello, Hello)
    assert (hello.host, hello.pid) == (socket.gethostname(), os.getpid())
    assert hello.pid_space == place.pid_space() != ""
