"""The driver's end of the lifelines over real sockets."""

from __future__ import annotations

import errno
import faulthandler
import os
import queue
import socket
import threading
from collections.abc import Iterator
from typing import TypeVar

import pytest

from ureplicator_common.model import OwnerEpoch, Partition, Route
from ureplicator_testkit.copier import stub_copier
from ureplicator_testkit.servers.processes import eventually
from ureplicator_worker.lifeline import connection, handshake, messages, server
from ureplicator_worker.lifeline.client import open_lifeline
from ureplicator_worker.lifeline.codec import decode, encode
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


def hello(copier: CopierId = COPIER) -> messages.Hello:
    return messages.Hello(copier, "far", 42, "space", "nonce")


def admitted(driver: LifelineServer, copier: CopierId = COPIER) -> socket.socket:
    """A connection of a copier that has shown its token."""
    peer, response = challenged(driver, driver.admit(copier), copier)
    peer.sendall(encode(response))
    return peer


def challenged(
    driver: LifelineServer, token: str, copier: CopierId = COPIER
) -> tuple[socket.socket, messages.ChallengeResponse]:
    """A connection that has sent its Hello, and the response that would admit it."""
    peer = connect(driver, encode(hello(copier)))
    return peer, handshake.respond(token, hello(copier), read_challenge(peer))


def read_challenge(peer: socket.socket) -> messages.Challenge:
    received = b""
    while not received.endswith(b"\n"):
        received += peer.recv(1)
    challenge = decode(received)
    assert isinstance(challenge, messages.Challenge)
    return challenge


def is_closed(peer: socket.socket) -> bool:
    try:
        return peer.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_token_admits_one_connection(driver: LifelineServer, received: Received) -> None:
    token = driver.admit(COPIER)
    first, response = challenged(driver, token)
    second, other_response = challenged(driver, token)
    with first, second:
        first.sendall(encode(response))
        assert received.get(timeout=30) == (COPIER, hello())
        second.sendall(encode(other_response))
        assert is_closed(second)
    assert received.get(timeout=30) == (COPIER, Disconnected())
    with connect(driver, encode(hello())) as third:
        assert is_closed(third)


@pytest.mark.parametrize(
    "line",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"{}\n",
        b"[1]\n",
        b"\xff\xfe\n",
        encode(messages.Stop()),
        encode(messages.ChallengeResponse("")),
        encode(messages.Challenge("", "")),
        encode(hello(CopierId(0, 2))),
        encode(hello(CopierId(9, 1))),
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


@pytest.mark.parametrize(
    "line",
    [
        encode(messages.ChallengeResponse("")),
        encode(messages.ChallengeResponse("0" * 64)),
        encode(messages.ChallengeResponse("\udcff")),
        encode(hello()),
        encode(messages.Released((PARTITION,))),
        b"garbage\n",
    ],
)
def test_a_wrong_response_admits_nothing_and_does_not_use_the_token_up(
    driver: LifelineServer, received: Received, line: bytes
) -> None:
    token = driver.admit(COPIER)
    stranger, _ = challenged(driver, token)
    with stranger:
        stranger.sendall(line)
        assert is_closed(stranger)
    assert received.empty()
    peer, response = challenged(driver, token)
    with peer:
        peer.sendall(encode(response))
        assert received.get(timeout=30) == (COPIER, hello())


def test_the_driver_s_proof_is_no_response(driver: LifelineServer, received: Received) -> None:
    driver.admit(COPIER)
    with connect(driver, encode(hello())) as reflecting:
        proof = read_challenge(reflecting).proof
        reflecting.sendall(encode(messages.ChallengeResponse(proof)))
        assert is_closed(reflecting)
    assert received.empty()


def test_a_recorded_response_is_of_no_use(driver: LifelineServer, received: Received) -> None:
    """The driver may never have read it: its token is still good."""
    token = driver.admit(COPIER)
    recorded, response = challenged(driver, token)
    recorded.close()
    with connect(driver, encode(hello())) as replaying:
        read_challenge(replaying)
        replaying.sendall(encode(response))
        assert is_closed(replaying)
    assert received.empty()


def test_silent_connections_delay_no_copier_and_are_closed(
    driver: LifelineServer, received: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(driver) as silent, connect(driver, b'{"type":') as truncated:
        with admitted(driver):
            assert received.get(timeout=5) == (COPIER, hello())
        monkeypatch.setattr(server, "HANDSHAKE_TIMEOUT_S", 0.1)
        assert is_closed(silent)
        assert is_closed(truncated)


def test_a_connection_that_does_not_respond_is_closed(
    driver: LifelineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HANDSHAKE_TIMEOUT_S", 0.1)
    peer, _ = challenged(driver, driver.admit(COPIER))
    with peer:
        assert is_closed(peer)


def test_of_too_many_strangers_the_oldest_is_closed(
    driver: LifelineServer, received: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_UNADMITTED", 2)
    with connect(driver) as first, connect(driver) as second, connect(driver):
        assert is_closed(first)
        with admitted(driver):
            assert received.get(timeout=30) == (COPIER, hello())
            assert is_closed(second)


def test_a_revoked_token_admits_nothing_and_its_connection_is_closed(
    driver: LifelineServer, received: Received
) -> None:
    peer, response = challenged(driver, driver.admit(COPIER))
    driver.revoke(COPIER)
    with peer:
        peer.sendall(encode(response))
        assert is_closed(peer)
    with connect(driver, encode(hello())) as late:
        assert is_closed(late)
    with admitted(driver, CopierId(1, 1)) as early:
        assert received.get(timeout=30)[0] == CopierId(1, 1)
        driver.revoke(CopierId(1, 1))
        assert is_closed(early)


def test_a_lost_peer_is_noticed_within_15_s(driver: LifelineServer, received: Received) -> None:
    """The socket options of both ends; `tests/integration/lifeline/test_lost_host.py` cuts a line."""
    driver.admit(COPIER)
    with connect(driver):
        eventually(lambda: driver._unadmitted, 5, "the connection is accepted")
        (accepted,) = driver._unadmitted
        assert_noticed_within_15_s(accepted.peer)
    with open_lifeline(config_of(driver, CopierId(1, 1))) as copier:
        assert_noticed_within_15_s(copier)


def assert_noticed_within_15_s(end: socket.socket) -> None:
    tcp = socket.IPPROTO_TCP
    assert end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    unanswered_s = end.getsockopt(tcp, socket.TCP_USER_TIMEOUT) / 1_000
    between_s = end.getsockopt(tcp, socket.TCP_KEEPINTVL)
    assert 5 <= unanswered_s <= 15 - between_s
    assert end.getsockopt(tcp, socket.TCP_KEEPIDLE) <= unanswered_s - between_s


def test_lines_arrive_whole_in_order_however_they_are_cut(
    driver: LifelineServer, received: Received
) -> None:
    sent = [messages.Failed(PARTITION, f"reason {number}", True) for number in range(200)]
    token = driver.admit(COPIER)
    with connect(driver) as peer:
        send_in_pieces(peer, encode(hello()))
        response = handshake.respond(token, hello(), read_challenge(peer))
        send_in_pieces(peer, encode(response))
        send_in_pieces(peer, b"".join(map(encode, sent)))
        assert received.get(timeout=30)[1] == hello()
        assert [received.get(timeout=30)[1] for _ in sent] == sent


def send_in_pieces(peer: socket.socket, text: bytes) -> None:
    for begin in range(0, len(text), 7):
        peer.sendall(text[begin : begin + 7])


def test_garbage_after_the_hello_closes_the_connection(
    driver: LifelineServer, received: Received
) -> None:
    with admitted(driver) as peer:
        peer.sendall(b"garbage\n")
        assert isinstance(received.get(timeout=30)[1], messages.Hello)
        assert received.get(timeout=30) == (COPIER, Disconnected())
        assert is_closed(peer)


def test_the_stacks_of_a_stuck_copier_are_logged(
    driver: LifelineServer, received: Received, caplog: pytest.LogCaptureFixture
) -> None:
    with admitted(driver) as peer:
        faulthandler.dump_traceback(peer.fileno())
        peer.sendall(encode(messages.Released(())))
        assert isinstance(received.get(timeout=30)[1], messages.Hello)
        assert received.get(timeout=30) == (COPIER, messages.Released(()))
    lines = [record.getMessage() for record in caplog.records]
    here = "test_the_stacks_of_a_stuck_copier_are_logged"
    assert any(line.startswith("copier 0#1 is stuck:") and here in line for line in lines)


@pytest.mark.parametrize("cut", [b'  File "/a.py", line 3 in work\n  File "/b', b"Thread 0x00"])
def test_the_message_behind_a_stack_dump_that_was_cut_off_is_received(
    driver: LifelineServer, received: Received, cut: bytes
) -> None:
    """The copier's socket took no more for a moment, as its driver did not read."""
    with admitted(driver) as peer:
        peer.sendall(cut + encode(messages.StopRequest("x")))
        peer.sendall(encode(messages.Released(())))
        assert isinstance(received.get(timeout=30)[1], messages.Hello)
        assert received.get(timeout=30) == (COPIER, messages.StopRequest("x"))
        assert received.get(timeout=30) == (COPIER, messages.Released(()))


@pytest.mark.parametrize(
    ("limit", "most", "sent"),
    [
        pytest.param("MAX_STACK_LINES", 10, b"  File\n" * 11, id="stacks without end"),
        pytest.param("MAX_LINE_BYTES", 1000, b"x" * 2000, id="a line without end"),
    ],
)
def test_more_than_a_copier_sends_closes_the_connection(
    driver: LifelineServer,
    received: Received,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    most: int,
    sent: bytes,
) -> None:
    monkeypatch.setattr(connection, limit, most)
    with admitted(driver) as peer:
        peer.sendall(sent)
        assert isinstance(received.get(timeout=30)[1], messages.Hello)
        assert received.get(timeout=30) == (COPIER, Disconnected())


def test_a_stranger_s_stacks_are_not_logged(
    driver: LifelineServer, caplog: pytest.LogCaptureFixture
) -> None:
    with connect(driver, b"Thread 0x1 (most recent call first):\n") as peer:
        assert is_closed(peer)
    assert "is stuck" not in caplog.text


def test_a_large_message_reaches_a_slow_copier_and_the_caller_never_waits(
    driver: LifelineServer, received: Received
) -> None:
    many = {Partition(Route("a", "b"), "t" * 200, n): OwnerEpoch(n) for n in range(20_000)}
    with admitted(driver) as peer:
        received.get(timeout=30)
        sent = threading.Thread(target=driver.send, args=(COPIER, messages.Add(many)))
        sent.start()
        sent.join(30)
        assert not sent.is_alive()
        with peer.makefile("rb") as lines:
            assert decode(lines.readline()) == messages.Add(many)


def test_a_copier_that_does_not_listen_is_cut_off(
    driver: LifelineServer, received: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_BUFFER_BYTES", 1_000_000)
    many = messages.Remove(tuple(Partition(Route("a", "b"), "t" * 200, n) for n in range(2_000)))
    with admitted(driver):
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
    with admitted(driver) as peer, connect(driver) as stranger:
        received.get(timeout=30)
        driver.close()
        assert is_closed(peer)
        assert is_closed(stranger)


def test_a_whole_exchange_with_a_copier(driver: LifelineServer, received: Received) -> None:
    config = config_of(driver)
    copier = threading.Thread(target=stub_copier.copy, args=(config,), daemon=True)
    copier.start()
    assert next_of(received, messages.Hello).pid == os.getpid()
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


def config_of(driver: LifelineServer, copier: CopierId = COPIER) -> messages.CopierConfig:
    return messages.CopierConfig(
        fleet="f",
        worker="w",
        slot=copier.slot,
        run=copier.run,
        host=driver.address[0],
        port=driver.address[1],
        token=driver.admit(copier),
        clusters={},
        commit_interval_s=1.0,
        transaction_interval_s=0.1,
        buffer_bytes=1,
        silence_s=60.0,
    )


def next_of(received: Received, kind: type[T]) -> T:
    for _ in range(100):
        sent = received.get(timeout=30)[1]
        if isinstance(sent, kind):
            return sent
    raise AssertionError(f"no {kind.__name__}")


def test_a_server_without_descriptors_waits_for_some(
    driver: LifelineServer, received: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection that it cannot accept stays in the queue."""
    tried = threading.Event()

    def accept(_server: socket.socket) -> None:
        tried.set()
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(socket.socket, "accept", accept)
        token = driver.admit(COPIER)
        peer = connect(driver, encode(hello()))
        assert tried.wait(10)
    response = handshake.respond(token, hello(), read_challenge(peer))
    peer.sendall(encode(response))
    assert received.get(timeout=10)[0] == COPIER
    peer.close()
