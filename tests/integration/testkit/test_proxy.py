"""The proxy: each of its faults has the described effect, and ends when it is healed."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from ureplicator_testkit.servers.ports import claim_port
from ureplicator_testkit.servers.processes import eventually
from ureplicator_testkit.servers.proxy import Proxy, ProxyThread, Way

SILENCE_S = 0.3
RESPONSE_S = 5.0


class Echo:
    """Echoes every byte; records what arrived, and how each connection ended."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.came = b""
        self.ends: list[str] = []
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._open.append(connection)
                thread = threading.Thread(target=self._serve, args=(connection,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            while data := connection.recv(65536):
                self.came += data
                connection.sendall(data)
            self.ends.append("end")
        except ConnectionResetError:
            self.ends.append("reset")
        except OSError:
            self.ends.append("closed")
        connection.close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()


@pytest.fixture
def proxies() -> Iterator[ProxyThread]:
    with ProxyThread() as proxies:
        yield proxies


@pytest.fixture
def echo() -> Iterator[Echo]:
    echo = Echo()
    yield echo
    echo.close()


@pytest.fixture
def proxy(proxies: ProxyThread, echo: Echo) -> Proxy:
    return proxies.proxy(echo.port)


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    with connected(proxy) as client:
        assert echoed(client, b"hello") == b"hello"
        yield client


def connected(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=RESPONSE_S)


def echoed(client: socket.socket, request: bytes) -> bytes:
    client.sendall(request)
    return received(client, len(request))


def received(client: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count and (data := client.recv(count - len(got))):
        got += data
    return got


def is_silent(client: socket.socket) -> bool:
    client.settimeout(SILENCE_S)
    try:
        client.recv(1)
    except TimeoutError:
        return True
    finally:
        client.settimeout(RESPONSE_S)
    return False


def test_bytes_and_ends_pass_both_ways(client: socket.socket, proxy: Proxy, echo: Echo) -> None:
    much = bytes(range(256)) * 8_000
    sender = threading.Thread(target=client.sendall, args=(much,))
    sender.start()
    assert received(client, len(much)) == much
    sender.join()
    assert proxy.carried_bytes(Way.UP) == proxy.carried_bytes(Way.DOWN) == len(much) + 5
    client.shutdown(socket.SHUT_WR)
    assert client.recv(1) == b""
    eventually(lambda: echo.ends == ["end"], RESPONSE_S, "the server sees the end")
    eventually(lambda: proxy.connections == 0, RESPONSE_S, "the proxy forgets the connection")


def test_a_reset_of_the_client_is_a_reset_at_the_server(client: socket.socket, echo: Echo) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()
    eventually(lambda: echo.ends == ["reset"], RESPONSE_S, "the server sees the reset")


def test_slow_delays_every_byte_but_not_one_after_the_other(
    client: socket.socket, proxy: Proxy
) -> None:
    proxy.slow(delay_s=0.1)
    began_s = time.monotonic()
    for _ in range(20):
        client.sendall(b"x" * 1000)
    received(client, 20_000)
    took_s = time.monotonic() - began_s
    assert 0.2 <= took_s < 1.0
    proxy.heal()
    began_s = time.monotonic()
    echoed(client, b"x")
    assert time.monotonic() - began_s < 0.1


def test_a_rate_is_kept(client: socket.socket, proxy: Proxy) -> None:
    proxy.slow(Way.DOWN, rate_bytes_per_s=200_000)
    began_s = time.monotonic()
    echoed(client, b"x" * 100_000)
    assert 0.4 <= time.monotonic() - began_s < 1.5


def test_all_connections_share_a_line(proxy: Proxy) -> None:
    proxy.slow(Way.DOWN, rate_bytes_per_s=200_000)
    with connected(proxy) as one, connected(proxy) as other:
        began_s = time.monotonic()
        one.sendall(b"x" * 40_000)
        other.sendall(b"y" * 40_000)
        assert received(one, 40_000) + received(other, 40_000) == b"x" * 40_000 + b"y" * 40_000
        assert 0.35 <= time.monotonic() - began_s < 1.5


def test_a_slow_line_holds_the_sender_up(client: socket.socket, proxy: Proxy, echo: Echo) -> None:
    """It does not take megabytes at once that arrive much later."""
    proxy.slow(Way.UP, rate_bytes_per_s=500_000)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
    sent, until_s = 0, time.monotonic() + 1.0
    while time.monotonic() < until_s:
        sent += client.send(b"x" * 10_000)
        assert sent - len(echo.came) < 1 << 19


def test_stalled_bytes_arrive_when_it_is_healed(
    client: socket.socket, proxy: Proxy, echo: Echo
) -> None:
    proxy.stall()
    client.sendall(b"late")
    assert is_silent(client)
    assert echo.came == b"hello"
    assert echo.ends == []
    proxy.heal()
    assert received(client, 4) == b"late"


def test_the_end_of_a_connection_is_stalled_too(
    client: socket.socket, proxy: Proxy, echo: Echo
) -> None:
    proxy.stall()
    client.close()
    time.sleep(SILENCE_S)
    assert echo.ends == []
    proxy.heal()
    eventually(lambda: echo.ends, RESPONSE_S, "the server sees the end")


@pytest.mark.parametrize("way", list(Way))
def test_half_open_stalls_one_way_only(
    client: socket.socket, proxy: Proxy, echo: Echo, way: Way
) -> None:
    proxy.stall(way)
    client.sendall(b"late")
    assert is_silent(client)
    assert (echo.came == b"hellolate") == (way is Way.DOWN)
    proxy.heal()
    assert received(client, 4) == b"late"


def test_reset_ends_open_connections_and_accepts_new_ones(
    client: socket.socket, proxy: Proxy, echo: Echo
) -> None:
    proxy.reset()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    eventually(lambda: echo.ends == ["reset"], RESPONSE_S, "the server sees the reset")
    with connected(proxy) as another:
        assert echoed(another, b"again") == b"again"


def test_reset_ends_stalled_connections(client: socket.socket, proxy: Proxy) -> None:
    proxy.stall()
    client.sendall(b"late")
    proxy.reset()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    eventually(lambda: proxy.connections == 0, RESPONSE_S, "nothing is held back")


def test_refuse_rejects_connections_until_healed(client: socket.socket, proxy: Proxy) -> None:
    proxy.refuse()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    with pytest.raises(ConnectionRefusedError):
        connected(proxy)
    proxy.heal()
    with connected(proxy) as another:
        assert echoed(another, b"again") == b"again"


@pytest.mark.parametrize("way", list(Way))
def test_cut_after_so_many_bytes_and_once(
    client: socket.socket, proxy: Proxy, echo: Echo, way: Way
) -> None:
    proxy.cut_after(7, way)
    client.sendall(b"123")
    assert received(client, 3) == b"123"
    client.sendall(b"4567890")
    if way is Way.DOWN:  # a reset may overtake what the client has not read yet
        eventually(lambda: proxy.connections == 0, RESPONSE_S, "the connection is cut")
        assert proxy.carried_bytes(Way.DOWN) == len(b"hello1234567")
    else:
        eventually(lambda: echo.ends == ["reset"], RESPONSE_S, "the server sees the reset")
        assert echo.came in (b"hello1234567", b"hello123")
        assert proxy.carried_bytes(Way.UP) == len(b"hello1234567")
    with connected(proxy) as another:
        assert echoed(another, b"a longer text than that") == b"a longer text than that"


def test_an_unreachable_server_is_a_reset(proxies: ProxyThread) -> None:
    claim = claim_port()
    proxy = proxies.proxy(claim.port)
    try:
        with pytest.raises(ConnectionResetError), connected(proxy) as client:
            client.recv(1)
    finally:
        claim.release()


def request(api_key: int, body: bytes) -> bytes:
    """A request as Kafka's clients send it."""
    return struct.pack(">ih", 2 + len(body), api_key) + body


def test_a_held_request_arrives_late_and_others_pass(
    client: socket.socket, proxy: Proxy, echo: Echo
) -> None:
    kept, other, behind = request(26, b"kept"), request(22, b"x" * 40_000), request(3, b"behind")
    with connected(proxy) as sender:
        held = proxy.hold(26)
        assert echoed(sender, other) == other
        assert echoed(sender, kept[:3]) == kept[:3]
        sender.sendall(kept[3:] + behind)
        eventually(lambda: held.taken, RESPONSE_S, "it is held")
        assert is_silent(sender)
        assert echoed(client, request(26, b"a later one")) == request(26, b"a later one")
    assert b"kept" not in echo.came
    held.release()
    eventually(
        lambda: echo.came.endswith(b"behind"), RESPONSE_S, "it arrives after its sender left"
    )
    eventually(lambda: held.response.endswith(b"behind"), RESPONSE_S, "its response is kept")


def test_the_end_of_a_sender_waits_for_the_response_to_what_was_held(
    proxy: Proxy, echo: Echo
) -> None:
    """A broker responds to nobody whose end it has seen. The request comes in several portions."""
    kept = request(26, b"k" * 100_000 + b"end")
    with connected(proxy) as sender:
        held = proxy.hold(26)
        sender.sendall(kept)
        eventually(lambda: held.taken, RESPONSE_S, "it is held")
    proxy.stall(Way.DOWN)
    held.release()
    eventually(lambda: echo.came.endswith(b"end"), RESPONSE_S / 2, "it arrives at once")
    time.sleep(SILENCE_S)
    assert echo.ends == []
    proxy.heal()
    eventually(lambda: held.response, RESPONSE_S, "its response is kept")
    eventually(lambda: echo.ends, RESPONSE_S, "then its sender's end arrives")
