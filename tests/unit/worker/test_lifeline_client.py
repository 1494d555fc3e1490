"""The copier's end of the lifeline: whole messages, whatever pieces they come in."""

import select
import socket
from collections.abc import Iterator

import pytest

from ureplicator_worker.lifeline.client import MAX_LINE_BYTES, LifelineClient, LifelineClosed
from ureplicator_worker.lifeline.messages import Hello, Remove, Stop, decode, encode


@pytest.fixture
def ends() -> Iterator[tuple[LifelineClient, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        line = LifelineClient(*server.getsockname())
        driver, _ = server.accept()
    yield line, driver
    line.close()
    driver.close()


def read(line: LifelineClient) -> list[object]:
    """The next messages."""
    select.select([line], [], [], 5.0)
    return list(line.on_readable())


def test_messages_both_ways(ends: tuple[LifelineClient, socket.socket]) -> None:
    line, driver = ends
    line.send(Hello("token", 7))
    assert decode(driver.recv(1_000)) == Hello("token", 7)
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
    hello = Hello("x" * 1_000_000, 7)
    while not line.wants_write:
        line.send(hello)
    driver.settimeout(5.0)
    received = bytearray()
    while line.wants_write or not received.endswith(b"\n"):
        received += driver.recv(1 << 20)
        line.on_writable()
    assert {decode(each) for each in received.splitlines()} == {hello}


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


def test_no_driver_at_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
    with pytest.raises(LifelineClosed):
        LifelineClient(*address)
