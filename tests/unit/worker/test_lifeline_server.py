"""The driver's end of the lifelines over real sockets."""

from __future__ import annotations

import errno
import queue
import socket
import threading
import time
from collections.abc import Iterator
from typing import TypeVar

import pytest

from ureplicator_common.model import OwnerEpoch, Partition, Route
from ureplicator_testkit.copier import stub_copier
from ureplicator_testkit.servers.processes import eventually
from ureplicator_worker.lifeline import connection, messages, server
from ureplicator_worker.lifeline.messages import CopierId
from ureplicator_worker.lifeline.server import Disconnected, LifelineServer

COPIER = CopierId(0, 1)
PARTITION = Partition(Route("a", "b"), "t", 0)

T = TypeVar("T")
Received = queue.SimpleQueue[tuple[CopierId, messages.Message | Disconnected]]


@pytest.fixture
def received() -> Received:
    return queue.SimpleQueue()


@pytest.fixture
def driver(received: Received) -> Iterator[LifelineServer]:
    driver = LifelineServer(host="127.0.0.1")
    driver.start(lambda copier, message: received.put((copier, message)))
    yield driver
    driver.close()


def connect(driver: LifelineServer, *lines: bytes) -> socket.socket:
    peer = socket.create_connection(driver.address, timeout=5)
    for line in lines:
        peer.sendall(line)
    return peer


def hello(token: str) -> bytes:
    return messages.encode(messages.Hello(token, 42))


def is_closed(peer: socket.socket) -> bool:
    try:
        return peer.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_valid_hello_is_admitted_once(driver: LifelineServer, received: Received) -> None:
    token = driver.admit(COPIER)
    with connect(driver, hello(token)), connect(driver) as second:
        assert received.get(timeout=30) == (COPIER, messages.Hello(token, 42))
        second.sendall(hello(token))
        assert is_closed(second)
    assert received.get(timeout=30) == (COPIER, Disconnected())


@pytest.mark.parametrize(
    "line",
    [
        hello("wrong"),
        hello(""),
        b"GET / HTTP/1.1\r\n\r\n",
        b"{}\n",
        b"[1]\n",
        b"\xff\xfe\n",
        messages.encode(messages.Stop()),
        b"x" * (connection.MAX_HELLO_BYTES + 2),
    ],
)
def test_anything_else_is_closed_without_a_response(
    driver: LifelineServer, received: Received, line: bytes
) -> None:
    driver.admit(COPIER)
    with connect(driver, line) as peer:
        assert is_closed(peer)
    assert received.empty()


def test_a_connection_without_a_hello_is_closed(
    driver: LifelineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HELLO_TIMEOUT_S", 0.1)
    with connect(driver) as peer:
        assert is_closed(peer)


def test_a_revoked_token_admits_nothing_and_its_connection_is_closed(
    driver: LifelineServer, received: Received
) -> None:
    late, early = driver.admit(COPIER), driver.admit(CopierId(1, 1))
    driver.revoke(COPIER)
    with connect(driver, hello(late)) as peer:
        assert is_closed(peer)
    with connect(driver, hello(early)) as peer:
        assert received.get(timeout=30)[0] == CopierId(1, 1)
        driver.revoke(CopierId(1, 1))
        assert is_closed(peer)


def test_lines_arrive_whole_in_order_however_they_are_cut(
    driver: LifelineServer, received: Received
) -> None:
    sent = [messages.Failed(PARTITION, f"reason {number}", True) for number in range(200)]
    text = hello(driver.admit(COPIER)) + b"".join(map(messages.encode, sent))
    with connect(driver) as peer:
        for begin in range(0, len(text), 7):
            peer.sendall(text[begin : begin + 7])
        assert received.get(timeout=30)[1] == messages.Hello(token_of(text), 42)
        assert [received.get(timeout=30)[1] for _ in sent] == sent


def token_of(text: bytes) -> str:
    first = messages.decode(text.split(b"\n")[0])
    assert isinstance(first, messages.Hello)
    return first.token


def test_garbage_after_the_hello_closes_the_connection(
    driver: LifelineServer, received: Received
) -> None:
    with connect(driver, hello(driver.admit(COPIER)), b"garbage\n") as peer:
        assert isinstance(received.get(timeout=30)[1], messages.Hello)
        assert received.get(timeout=30) == (COPIER, Disconnected())
        assert is_closed(peer)


def test_a_line_without_end_is_cut(
    driver: LifelineServer, received: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_LINE_BYTES", 1000)
    with connect(driver, hello(driver.admit(COPIER)), b"x" * 2000):
        assert isinstance(received.get(timeout=30)[1], messages.Hello)
        assert received.get(timeout=30) == (COPIER, Disconnected())


def test_a_large_message_reaches_a_slow_copier_and_the_caller_never_waits(
    driver: LifelineServer, received: Received
) -> None:
    many = {Partition(Route("a", "b"), "t" * 200, n): OwnerEpoch(n) for n in range(20_000)}
    with connect(driver, hello(driver.admit(COPIER))) as peer:
        received.get(timeout=30)
        sent = threading.Thread(target=driver.send, args=(COPIER, messages.Add(many)))
        sent.start()
        sent.join(30)
        assert not sent.is_alive()
        with peer.makefile("rb") as lines:
            assert messages.decode(lines.readline()) == messages.Add(many)


def test_a_copier_that_does_not_listen_is_cut_off(
    driver: LifelineServer, received: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_BUFFER_BYTES", 1_000_000)
    many = messages.Remove(tuple(Partition(Route("a", "b"), "t" * 200, n) for n in range(2_000)))
    with connect(driver, hello(driver.admit(COPIER))):
        received.get(timeout=30)
        for _ in range(50):
            driver.send(COPIER, many)
        assert received.get(timeout=30) == (COPIER, Disconnected())


def test_a_message_to_an_unknown_copier_is_dropped(
    driver: LifelineServer, received: Received
) -> None:
    driver.send(COPIER, messages.Stop())
    driver.revoke(COPIER)
    assert received.empty()


def test_close_ends_every_copier(received: Received) -> None:
    driver = LifelineServer(host="127.0.0.1")
    driver.start(lambda copier, message: received.put((copier, message)))
    with connect(driver, hello(driver.admit(COPIER))) as peer, connect(driver) as stranger:
        received.get(timeout=30)
        driver.close()
        assert is_closed(peer)
        assert is_closed(stranger)


def test_a_whole_exchange_with_a_copier(driver: LifelineServer, received: Received) -> None:
    config = messages.CopierConfig(
        fleet="f",
        worker="w",
        slot=0,
        host=driver.address[0],
        port=driver.address[1],
        token=driver.admit(COPIER),
        clusters={},
        commit_interval_s=1.0,
        transaction_interval_s=0.1,
        buffer_bytes=1,
    )
    copier = threading.Thread(target=stub_copier.copy, args=(config,), daemon=True)
    copier.start()
    assert next_of(received, messages.Hello).token == config.token
    driver.send(COPIER, messages.Add({PARTITION: OwnerEpoch(1)}))
    request = next_of(received, messages.ProofRequest)
    assert request.partitions == {PARTITION: OwnerEpoch(1)}
    grant = messages.Grant(OwnerEpoch(1), "t")
    driver.send(COPIER, messages.ProofResponse(request.request_id, {PARTITION: grant}, {}))
    eventually(
        lambda: PARTITION in next_of(received, messages.CopierReport).partitions, 5, "it copies"
    )
    driver.send(COPIER, messages.Stop())
    assert next_of(received, messages.Released).partitions == (PARTITION,)
    copier.join(30)
    assert not copier.is_alive()


def next_of(received: Received, kind: type[T]) -> T:
    for _ in range(100):
        sent = received.get(timeout=30)[1]
        if isinstance(sent, kind):
            return sent
    raise AssertionError(f"no {kind.__name__}")


def test_a_server_without_descriptors_waits_for_some(
    driver: LifelineServer, received: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection that it cannot accept stays in the queue, and would keep the thread busy."""
    tries: list[float] = []

    def accept(_server: socket.socket) -> None:
        tries.append(time.monotonic())
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(socket.socket, "accept", accept)
        peer = connect(driver, hello(driver.admit(COPIER)))
        eventually(lambda: tries, 5, "the server has tried")
        time.sleep(0.2)
        assert len(tries) == 1
    assert received.get(timeout=10)[0] == COPIER
    peer.close()
