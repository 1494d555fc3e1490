"""Sockets to brokers, and control requests: one request, one response, on a blocking socket.

The data requests (Fetch, Produce) are written by `ureplicator_worker.copier.raw`. They use `connect` of
this module too, so TLS and authentication are in one place: both happen on the blocking socket, before
it is handed over. kafka-python's message classes do the encoding; nothing of its network layer is used
(its connection reads 4 KiB at a time and allows no more than five requests in flight).

A `ClusterClient` belongs to one thread. Every network failure is ClusterUnavailable: the socket is closed,
so a late response can never be taken for the response to another request.
"""

from __future__ import annotations

import math
import socket
import ssl
import struct
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, Self

from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.errors import ErrorCode, error_name

CLIENT_ID = "ureplicator"
CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 10.0
MAX_RESPONSE_BYTES = 1 << 28
"""Far above the metadata of the largest cluster; a peer that announces more is no broker."""
API_VERSIONS_VERSION = 0
METADATA_VERSION = 10
FIND_COORDINATOR_VERSION = 3
GROUP_COORDINATOR = 0
TRANSACTION_COORDINATOR = 1
READ_UNCOMMITTED = 0
"""The end of a log is its high watermark: what all replicas in sync hold."""
READ_COMMITTED = 1
"""The end is the last stable offset: records behind it, in open transactions, are not to be copied yet."""
EARLIEST = -2
LATEST = -1


class Authenticator(Protocol):
    """Authenticates a fresh connection, before any other request (SASL)."""

    def __call__(self, connection: socket.socket) -> None: ...


@dataclass(frozen=True, slots=True)
class Security:
    """TLS context and authenticator of a connection; without them it is plaintext."""

    ssl_context: ssl.SSLContext | None = None
    authenticator: Authenticator | None = None


@dataclass(frozen=True, slots=True)
class Broker:
    node_id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Leader:
    """Leader of a partition; node -1 while it has none."""

    node_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One Metadata response. `missing`: requested topics that do not exist."""

    cluster_id: str
    brokers: Mapping[int, Broker]
    leaders: Mapping[tuple[str, int], Leader]
    topic_ids: Mapping[str, str]
    missing: frozenset[str] = frozenset()


def connect(
    broker: Broker, *, security: Security, timeout_s: float = CONNECT_TIMEOUT_S
) -> socket.socket:
    """An open, authenticated, blocking socket. Raises ClusterUnavailable."""
    try:
        connection = socket.create_connection((broker.host, broker.port), timeout=timeout_s)
    except OSError as error:
        raise ClusterUnavailable(f"{broker} unreachable: {error}") from error
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if security.ssl_context is not None:
            connection = security.ssl_context.wrap_socket(connection, server_hostname=broker.host)
        if security.authenticator is not None:
            security.authenticator(connection)
    except OSError as error:
        connection.close()
        raise ClusterUnavailable(f"{broker} refused the connection: {error}") from error
    return connection


def receive_exactly(connection: socket.socket, size: int) -> bytearray:
    """`size` bytes. Raises ConnectionError when the peer ends first, TimeoutError."""
    buffer = bytearray(size)
    view = memoryview(buffer)
    filled = 0
    while filled < size:
        count = connection.recv_into(view[filled:])
        if count == 0:
            raise ConnectionResetError("connection closed by the broker")
        filled += count
    return buffer


class Channel:
    """One blocking connection for control requests."""

    def __init__(self, broker: Broker, connection: socket.socket) -> None:
        self.broker = broker
        self._connection = connection
        self._correlation_id = 0

    @classmethod
    def open(cls, broker: Broker, *, security: Security, timeout_s: float) -> Self:
        """Raises ClusterUnavailable."""
        return cls(broker, connect(broker, security=security, timeout_s=timeout_s))

    def call(self, request: Any, response: Any, timeout_s: float) -> Any:
        """Send `request` (version set), decode its response with class `response`.

        Raises ClusterUnavailable; the channel is closed then.
        """
        self._connection.settimeout(timeout_s)
        self._correlation_id += 1
        request.with_header(correlation_id=self._correlation_id, client_id=CLIENT_ID)
        try:
            self._connection.sendall(request.encode(framed=True, header=True))
            received = self._receive()
        except OSError as error:
            self.close()
            raise ClusterUnavailable(f"{self.broker} did not respond: {error}") from error
        return response.decode(bytes(received), version=request.version, header=True)

    def _receive(self) -> bytearray:
        """The response to the last request. Raises ConnectionError for anything else."""
        (size,) = struct.unpack(">i", receive_exactly(self._connection, 4))
        if not 4 <= size <= MAX_RESPONSE_BYTES:
            raise ConnectionAbortedError(
                f"a response of {size} bytes: the peer is not a Kafka broker"
            )
        received = receive_exactly(self._connection, size)
        (correlation_id,) = struct.unpack_from(">i", received)
        if correlation_id != self._correlation_id:
            raise ConnectionAbortedError(f"response {correlation_id} to {self._correlation_id}")
        return received

    def close(self) -> None:
        self._connection.close()


def newest_versions(
    broker: Broker, connection: socket.socket, *, timeout_s: float
) -> Mapping[int, int]:
    """Highest version of each request that a broker accepts, by API key; for a fresh connection.

    Raises ClusterUnavailable; the connection is closed then.
    """
    request = ApiVersionsRequest(version=API_VERSIONS_VERSION)
    reply = Channel(broker, connection).call(request, ApiVersionsResponse, timeout_s)
    return {row.api_key: row.max_version for row in reply.api_keys}


class ClusterClient:
    """Control requests to one cluster: finds brokers and coordinators, keeps a channel to each."""

    def __init__(
        self,
        bootstrap: str,
        *,
        security: Security | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        self._seeds = parse_bootstrap(bootstrap)
        self._security = security or Security()
        self._timeout_s = timeout_s
        self._brokers: dict[int, Broker] = {}
        self._channels: dict[tuple[str, int], Channel] = {}
        self._coordinators: dict[tuple[int, str], Broker] = {}
        self._deadline_s = math.inf

    @contextmanager
    def within(self, timeout_s: float) -> Iterator[None]:
        """Limit the time of all requests inside together; after it they raise ClusterUnavailable."""
        outer_s = self._deadline_s
        self._deadline_s = min(outer_s, time.monotonic() + timeout_s)
        try:
            yield
        finally:
            self._deadline_s = outer_s

    def deadline_s(self, timeout_s: float) -> float:
        """Deadline for retries: after `timeout_s`, but not beyond `within`."""
        return min(self._deadline_s, time.monotonic() + timeout_s)

    def _time_left_s(self, limit_s: float) -> float:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise ClusterUnavailable("time limit exceeded")
        return min(limit_s, left_s)

    @property
    def security(self) -> Security:
        return self._security

    def call(self, broker: Broker, request: Any, response: Any) -> Any:
        """Request to one broker. Raises ClusterUnavailable."""
        address = (broker.host, broker.port)
        timeout_s = self._time_left_s(self._timeout_s)
        try:
            channel = self._channels.get(address)
            if channel is None:
                connect_s = min(timeout_s, CONNECT_TIMEOUT_S)
                channel = Channel.open(broker, security=self._security, timeout_s=connect_s)
                self._channels[address] = channel
            return channel.call(request, response, self._time_left_s(self._timeout_s))
        except ClusterUnavailable:
            self._channels.pop(address, None)
            self._coordinators = {
                key: known for key, known in self._coordinators.items() if known != broker
            }
            raise

    def call_any(self, request: Callable[[], Any], response: Any) -> Any:
        """Try brokers in turn until one responds; the request is recreated for each."""
        failures: list[str] = []
        for broker in (*self._brokers.values(), *self._seeds):
            try:
                return self.call(broker, request(), response)
            except ClusterUnavailable as error:
                if str(error) not in failures:
                    failures.append(str(error))
        raise ClusterUnavailable("; ".join(failures) or "no bootstrap servers")

    def view(self, topics: Sequence[str]) -> ClusterView:
        """Leaders, brokers and topic ids, for these topics only. Raises ClusterUnavailable."""
        reply = self.call_any(lambda: _metadata_request(topics), MetadataResponse)
        view = _view(reply)
        self._brokers = dict(view.brokers)
        return view

    def coordinator(self, key: str, kind: int) -> Broker:
        """Coordinator of a group or a transactional id, cached while it responds.

        `forget_coordinator` is for one that responds that it is not the coordinator any more.
        """
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        reply = self.call_any(lambda: _coordinator_request(key, kind), FindCoordinatorResponse)
        if reply.error_code:
            raise ClusterUnavailable(
                f"no coordinator for {key}: {error_name(reply.error_code)}", delay_s=0.2
            )
        broker = Broker(reply.node_id, reply.host, reply.port)
        self._coordinators[(kind, key)] = broker
        return broker

    def forget_coordinator(self, key: str, kind: int) -> None:
        self._coordinators.pop((kind, key), None)

    def reset(self) -> None:
        """Close every connection: responses to earlier requests can no longer arrive."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
        self._coordinators.clear()

    close = reset


def parse_bootstrap(bootstrap: str) -> tuple[Broker, ...]:
    """`host:port,host:port` -> brokers of unknown id. Raises ValueError."""
    seeds = []
    for text in bootstrap.split(","):
        host, colon, port = text.strip().rpartition(":")
        if not colon or not port.isdigit():
            raise ValueError(f"bootstrap server {text.strip()!r} is not host:port")
        seeds.append(Broker(-1, host.strip("[]"), int(port)))
    return tuple(seeds)


def _metadata_request(topics: Sequence[str]) -> MetadataRequest:
    return MetadataRequest(
        version=METADATA_VERSION,
        topics=[
            MetadataRequest.MetadataRequestTopic(name=topic, topic_id=uuid.UUID(int=0))
            for topic in topics
        ],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


def _view(reply: Any) -> ClusterView:
    known = [topic for topic in reply.topics if topic.error_code == ErrorCode.NONE]
    return ClusterView(
        cluster_id=reply.cluster_id or "",
        brokers={row.node_id: Broker(row.node_id, row.host, row.port) for row in reply.brokers},
        leaders={
            (topic.name, row.partition_index): Leader(row.leader_id, row.leader_epoch)
            for topic in known
            for row in topic.partitions
        },
        topic_ids={topic.name: str(topic.topic_id) for topic in known},
        missing=frozenset(
            topic.name
            for topic in reply.topics
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ),
    )


def _coordinator_request(key: str, kind: int) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(version=FIND_COORDINATOR_VERSION, key=key, key_type=kind)
