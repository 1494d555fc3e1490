"""Connections to brokers: requests sent at once, and their responses in any pieces."""

import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import BlockingConnection, Broker, Security
from ureplicator_common.kafka.connection import NEW_CHANNELS, Channels


class CountedSocket(socket.socket):
    """A socket that counts how often it is read. `most`: bytes that it gives at once."""

    reads = 0
    most = 1 << 20

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        self.reads += 1
        return super().recv(min(bufsize, self.most), flags)


def responses(*numbers: int) -> bytes:
    found = b""
    for number in numbers:
        reply = ApiVersionsResponse(version=0, error_code=number, api_keys=[])
        reply.with_header(correlation_id=number, client_id="")
        found += reply.encode(framed=True, header=True)
    return found


@pytest.fixture
def pair() -> Iterator[tuple[CountedSocket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with CountedSocket(fileno=ours.detach()) as counted, theirs:
        yield counted, theirs


def test_responses_that_have_arrived_together_are_read_at_once(
    pair: tuple[CountedSocket, socket.socket],
) -> None:
    ours, theirs = pair
    channel = BlockingConnection(Broker(1, "h", 1), ours)
    requests = [ApiVersionsRequest(version=0) for _ in range(3)]
    theirs.sendall(responses(1, 2, 3))
    found = channel.call_all(requests, ApiVersionsResponse, silence_s=5.0)
    assert [response.error_code for response in found] == [1, 2, 3]
    assert ours.reads == 1
    assert channel.is_open


def test_a_response_in_pieces_is_put_together(
    pair: tuple[CountedSocket, socket.socket],
) -> None:
    ours, theirs = pair
    channel = BlockingConnection(Broker(1, "h", 1), ours)
    ours.most = 3
    theirs.sendall(responses(1, 2))
    requests = [ApiVersionsRequest(version=0) for _ in range(2)]
    found = channel.call_all(requests, ApiVersionsResponse, silence_s=5.0)
    assert [response.error_code for response in found] == [1, 2]


def test_a_connection_with_a_response_that_nobody_waits_for_is_replaced(
    pair: tuple[CountedSocket, socket.socket],
) -> None:
    ours, theirs = pair
    channel = BlockingConnection(Broker(1, "h", 1), ours)
    theirs.sendall(responses(1, 2))
    channel.call(ApiVersionsRequest(version=0), ApiVersionsResponse, 5.0)
    assert not channel.is_open


def test_a_response_that_is_cut_off_is_a_failure(
    pair: tuple[CountedSocket, socket.socket],
) -> None:
    ours, theirs = pair
    channel = BlockingConnection(Broker(1, "h", 1), ours)
    theirs.sendall(responses(1)[:-1])
    theirs.shutdown(socket.SHUT_WR)
    with pytest.raises(ClusterUnavailable, match="closed by the broker"):
        channel.call(ApiVersionsRequest(version=0), ApiVersionsResponse, 5.0)


class Decoder:
    """A decoder that tells what it is given, before it decodes it."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        self._tell = tell

    def decode(self, raw: bytes, *, version: int, header: bool) -> int:
        (number,) = struct.unpack_from(">i", raw)
        self._tell(number)
        return int(number)


def test_a_response_is_decoded_while_the_next_one_is_awaited(
    pair: tuple[CountedSocket, socket.socket],
) -> None:
    ours, theirs = pair
    channel = BlockingConnection(Broker(1, "h", 1), ours)
    theirs.sendall(responses(1))
    requests = [ApiVersionsRequest(version=0) for _ in range(3)]
    decoder = Decoder(lambda number: theirs.sendall(responses(number + 1)) if number < 3 else None)
    assert channel.call_all(requests, decoder, silence_s=5.0) == [1, 2, 3]


@pytest.mark.parametrize("error", [ClusterUnavailable("not understood"), ValueError("a bug")])
def test_a_channel_is_closed_where_a_response_is_not_understood(
    pair: tuple[CountedSocket, socket.socket], error: Exception
) -> None:
    """The responses behind it are not read by anybody."""
    ours, theirs = pair
    channel = BlockingConnection(Broker(1, "h", 1), ours)
    theirs.sendall(responses(1, 2))

    def refuse(number: int) -> None:
        raise error

    with pytest.raises(type(error)):
        channel.call_all(
            [ApiVersionsRequest(version=0) for _ in range(2)], Decoder(refuse), silence_s=5.0
        )
    assert ours.fileno() == -1


class Echo(BlockingConnection):
    """A channel that responds to each request with the request."""

    is_open = True

    def send(self, requests: Sequence[Any], *, silence_s: float) -> int:
        return 1

    def receive(
        self,
        requests: Sequence[Any],
        response: Any,
        first: int,
        *,
        silence_s: float,
        deadline_s: float = 0.0,
    ) -> list[Any]:
        return list(requests)


def test_channels_are_opened_by_and_by() -> None:
    """A busy broker accepts no more at once."""
    opened: list[Broker] = []
    unused = socket.socket()

    def open_channel(broker: Broker, *, security: Security, timeout_s: float) -> BlockingConnection:
        opened.append(broker)
        return Echo(broker, unused)

    channels = Channels(open_channel, Security())
    requests = list(range(3 * NEW_CHANNELS))
    counts = []
    for broker in (Broker(1, "h", 1), Broker(1, "h", 1), Broker(1, "h", 1), Broker(2, "h", 2)):
        found = channels.exchange(
            broker, requests, None, count=2 * NEW_CHANNELS + 1, silence_s=1.0, deadline_s=1.0
        )
        assert found == requests
        counts.append(len(opened))
    channels.close_all()
    assert counts == [NEW_CHANNELS, 2 * NEW_CHANNELS, 2 * NEW_CHANNELS + 1, 3 * NEW_CHANNELS + 1]
