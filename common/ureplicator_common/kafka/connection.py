"""Sockets to brokers, and connections that carry control requests: many requests, then their responses."""

from __future__ import annotations

import math
import select
import socket
import ssl
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, Self

from ureplicator_common.kafka import ClusterUnavailable, UntrustedConnection
from ureplicator_common.kafka.broker_order import Address
from ureplicator_common.kafka.cluster_view import Broker
from ureplicator_common.kafka.security.channel import Opened, Security
from ureplicator_common.kafka.security.login import Login
from ureplicator_common.kafka.security.tls import tls_reason
from ureplicator_common.kafka.wire.sockets import Incoming

CLIENT_ID = "ureplicator"
CONNECT_TIMEOUT_S = 1.0
MAX_RESPONSE_BYTES = 1 << 28
"""Bytes far above the metadata of the largest cluster; a peer that announces more is no broker."""


def connect(
    broker: Broker,
    *,
    security: Security,
    timeout_s: float = CONNECT_TIMEOUT_S,
    client_id: str = CLIENT_ID,
) -> Opened:
    """An open, authenticated, blocking socket. Raises ClusterUnavailable."""
    security.check(broker)
    try:
        connection = socket.create_connection((broker.host, broker.port), timeout=timeout_s)
    except OSError as error:
        raise ClusterUnavailable(f"{broker} unreachable: {error}") from error
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return security.open(connection, broker, timeout_s=timeout_s, client_id=client_id)
    except OSError as error:
        connection.close()
        raise ClusterUnavailable(f"{broker} refused the connection: {error}") from error
    except ClusterUnavailable:
        connection.close()
        raise


class BlockingConnection:
    """One blocking connection for control requests."""

    def __init__(
        self,
        broker: Broker,
        connection: socket.socket,
        *,
        client_id: str = CLIENT_ID,
        login: Login | None = None,
        where: str = "",
    ) -> None:
        """`where`: cluster and broker, for error texts."""
        self.broker = broker
        self._where = where or str(broker)
        self._client_id = client_id
        self._connection = connection
        self._incoming = Incoming(connection)
        self._login = login
        self._correlation_id = 0

    @classmethod
    def open(
        cls, broker: Broker, *, security: Security, timeout_s: float, client_id: str = CLIENT_ID
    ) -> Self:
        """Connect and log in. Raises ClusterUnavailable."""
        connection, login = connect(
            broker, security=security, timeout_s=timeout_s, client_id=client_id
        )
        where = security.where(broker)
        return cls(broker, connection, client_id=client_id, login=login, where=where)

    @property
    def is_open(self) -> bool:
        """False if the broker has closed it: brokers close what is idle (`connections.max.idle.ms`).

        Between requests there is nothing to read but the end, and with TLS what is TLS's own. A connection
        whose login is to be repeated is replaced instead.
        """
        if self._login is not None and self._login.is_due(time.monotonic()):
            return False
        if self._incoming:
            return False
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        return not poll.poll(0) or self._has_tls_only()

    def _has_tls_only(self) -> bool:
        """True if what there is to read is of TLS itself, such as a session ticket."""
        if not isinstance(self._connection, ssl.SSLSocket):
            return False
        self._connection.settimeout(0)
        try:
            self._connection.recv(1)
        except ssl.SSLWantReadError:
            return True
        except OSError:
            return False
        return False

    def call(self, request: Any, response: Any, silence_s: float) -> Any:
        """`call_all` of one request."""
        (decoded,) = self.call_all([request], response, silence_s=silence_s)
        return decoded

    def call_all(
        self,
        requests: Sequence[Any],
        response: Any,
        *,
        silence_s: float,
        deadline_s: float = math.inf,
    ) -> list[Any]:
        """Send the requests (versions set) at once, decode their responses with class `response`.

        Raises ClusterUnavailable after `silence_s` without a byte, and at the deadline; the channel is
        closed then.
        """
        first = self.send(requests, silence_s=silence_s)
        return self.receive(requests, response, first, silence_s=silence_s, deadline_s=deadline_s)

    def send(self, requests: Sequence[Any], *, silence_s: float) -> int:
        """Send the requests; the correlation id of the first one. Raises ClusterUnavailable, as `receive`
        does."""
        first = self._correlation_id + 1
        with self._closed_by_failures():
            self._connection.settimeout(silence_s)
            self._connection.sendall(b"".join(map(self._encoded, requests)))
        return first

    def receive(
        self,
        requests: Sequence[Any],
        response: Any,
        first: int,
        *,
        silence_s: float,
        deadline_s: float = math.inf,
    ) -> list[Any]:
        """Responses to requests that were sent. Each is decoded while the broker prepares the next one."""
        decoded = []
        with self._closed_by_failures():
            for number, request in enumerate(requests, first):
                raw = self._receive(number, silence_s, deadline_s)
                decoded.append(response.decode(raw, version=request.version, header=True))
        return decoded

    @contextmanager
    def _closed_by_failures(self) -> Iterator[None]:
        try:
            yield
        except ssl.SSLError as error:
            self.close()
            raise UntrustedConnection(f"{self._where}: TLS: {tls_reason(error)}") from None
        except OSError as error:
            self.close()
            raise ClusterUnavailable(f"{self.broker} did not respond: {error}") from error
        except BaseException:  # responses are left that nobody will read
            self.close()
            raise

    def _encoded(self, request: Any) -> bytes:
        self._correlation_id += 1
        request.with_header(correlation_id=self._correlation_id, client_id=self._client_id)
        return bytes(request.encode(framed=True, header=True))

    def _receive(self, correlation_id: int, silence_s: float, deadline_s: float) -> bytes:
        """The next response. Raises ConnectionError for anything else, TimeoutError."""
        limits = {"silence_s": silence_s, "deadline_s": deadline_s}
        (size,) = struct.unpack(">i", self._incoming.take(4, **limits))
        if not 4 <= size <= MAX_RESPONSE_BYTES:
            raise ConnectionAbortedError(
                f"a response of {size} bytes: the peer is not a Kafka broker"
            )
        received = self._incoming.take(size, **limits)
        (answered,) = struct.unpack_from(">i", received)
        if answered != correlation_id:
            raise ConnectionAbortedError(f"response {answered} to {correlation_id}")
        return received

    def close(self) -> None:
        self._connection.close()


NEW_CHANNELS = 48
"""A broker that is busy accepts 50 new connections at once (`socket.listen.backlog.size`)."""


class OpenChannel(Protocol):
    """Connects to a broker. Raises ClusterUnavailable."""

    def __call__(
        self, broker: Broker, *, security: Security, timeout_s: float
    ) -> BlockingConnection: ...


class Channels:
    """Open channels of a client to brokers; usually one to each."""

    def __init__(self, open_channel: OpenChannel, security: Security) -> None:
        self._open_channel = open_channel
        self._security = security
        self._open: dict[tuple[Address, int], BlockingConnection] = {}

    def exchange(
        self,
        broker: Broker,
        requests: Sequence[Any],
        response: Any,
        *,
        count: int,
        silence_s: float,
        deadline_s: float,
    ) -> list[Any]:
        """Send the requests over up to `count` channels, and read the responses. No more than NEW_CHANNELS
        are opened for it. Raises ClusterUnavailable: then all channels to the broker are to be closed."""
        if count == 1:
            channel = self._channel(broker, 0, silence_s)
            return channel.call_all(requests, response, silence_s=silence_s, deadline_s=deadline_s)
        count = min(count, self._count_to(broker) + NEW_CHANNELS)
        shares = [share for number in range(count) if (share := requests[number::count])]
        used = [self._channel(broker, number, silence_s) for number in range(len(shares))]
        firsts = [
            channel.send(share, silence_s=silence_s)
            for channel, share in zip(used, shares, strict=True)
        ]
        replies: list[Any] = [None] * len(requests)
        for number, share in enumerate(shares):
            replies[number::count] = used[number].receive(
                share, response, firsts[number], silence_s=silence_s, deadline_s=deadline_s
            )
        return replies

    def _count_to(self, broker: Broker) -> int:
        return sum(address == (broker.host, broker.port) for address, _ in self._open)

    def close(self, address: Address) -> None:
        for key in [key for key in self._open if key[0] == address]:
            self._open.pop(key).close()

    def close_all(self) -> None:
        for channel in self._open.values():
            channel.close()
        self._open.clear()

    def _channel(self, broker: Broker, number: int, silence_s: float) -> BlockingConnection:
        """An open channel to a broker, of so many. Raises ClusterUnavailable."""
        key = (broker.host, broker.port), number
        channel = _if_open(self._open.get(key))
        if channel is None:
            connect_s = min(silence_s, CONNECT_TIMEOUT_S)
            channel = self._open_channel(broker, security=self._security, timeout_s=connect_s)
            self._open[key] = channel
        return channel


def _if_open(channel: BlockingConnection | None) -> BlockingConnection | None:
    """The channel, unless its broker has closed it, which is no failure of an idle one."""
    if channel is None or channel.is_open:
        return channel
    channel.close()
    return None
