"""One blocking connection to the leader of a partition, for Fetch requests of that partition alone.

The buffer of the responses is used again, so a view of one ends with the next. Requests have no fetch
session: brokers keep a limited number of these, and the copier needs them.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from typing import Protocol

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import (
    CONNECT_TIMEOUT_S,
    READ_COMMITTED,
    Broker,
    Security,
    connect,
)
from ureplicator_common.kafka.features import newest_versions
from ureplicator_worker.wire.fetch_api import (
    API_KEY,
    NAMES,
    SESSIONLESS_EPOCH,
    FetchResult,
    FetchSession,
    Wanted,
    parse,
    version_for,
)
from ureplicator_worker.wire.topic_keys import TopicKeys
from ureplicator_worker.wire.varint import MalformedResponse

CLIENT_ID = "ureplicator-records"
SILENCE_TIMEOUT_S = 10.0
MAX_WAIT_MS = 500
FIRST_BUFFER_BYTES = 1 << 20
MAX_RESPONSE_BYTES = 1 << 30

_INT32 = struct.Struct(">i")


class OpenConnection(Protocol):
    """An open connection and the newest versions of its broker. Raises ClusterUnavailable."""

    def __call__(self, broker: Broker) -> tuple[socket.socket, Mapping[int, int]]: ...


def opener(security: Security) -> OpenConnection:
    """An opener for a cluster with this security."""

    def open_connection(broker: Broker) -> tuple[socket.socket, Mapping[int, int]]:
        connection, _ = connect(broker, security=security, client_id=CLIENT_ID)
        newest = newest_versions(
            broker,
            connection,
            security=security,
            timeout_s=CONNECT_TIMEOUT_S,
            client_id=CLIENT_ID,
        )
        connection.settimeout(SILENCE_TIMEOUT_S)
        return connection, newest

    return open_connection


class FetchConnection:
    """Every call raises ClusterUnavailable; the connection is of no use then."""

    def __init__(
        self,
        broker: Broker,
        keys: TopicKeys,
        *,
        open_connection: OpenConnection,
    ) -> None:
        self.broker = broker
        self._connection, newest = open_connection(broker)
        version = version_for(newest.get(API_KEY, NAMES), has_ids=keys.has_id)
        self._session = FetchSession(version, client_id=CLIENT_ID, first_epoch=SESSIONLESS_EPOCH)
        self._key = keys.key(ids=version > NAMES)
        self._buffer = memoryview(bytearray(FIRST_BUFFER_BYTES))
        self._correlation_id = 0

    def send(
        self, wanted: Wanted, *, max_wait_ms: int = MAX_WAIT_MS, isolation: int = READ_COMMITTED
    ) -> None:
        """Ask the broker to respond within `max_wait_ms`, which is shorter than SILENCE_TIMEOUT_S."""
        self._correlation_id += 1
        request = self._session.request(
            {self._key: wanted},
            correlation_id=self._correlation_id,
            max_wait_ms=max_wait_ms,
            max_bytes=wanted.max_bytes,
            isolation=isolation,
        )
        try:
            self._connection.sendall(request)
        except OSError as error:
            raise ClusterUnavailable(f"{self.broker}: {error}") from error

    def receive(self) -> tuple[memoryview, FetchResult]:
        """The response to the oldest request; the view is valid until the next one is received."""
        try:
            view = self._read()
            (found,) = _INT32.unpack_from(view)
            if found != self._correlation_id:
                raise MalformedResponse(f"response {found} to {self._correlation_id}")
            return view, parse(view, self._session.version)
        except (OSError, MalformedResponse) as error:
            raise ClusterUnavailable(f"{self.broker}: {error}") from error

    def _read(self) -> memoryview:
        size_bytes = bytearray(_INT32.size)
        self._fill(memoryview(size_bytes))
        (size,) = _INT32.unpack(size_bytes)
        if not _INT32.size <= size <= MAX_RESPONSE_BYTES:
            raise MalformedResponse(f"a response of {size} bytes")
        if size > len(self._buffer):
            self._buffer = memoryview(bytearray(size))
        view = self._buffer[:size]
        self._fill(view)
        return view

    def _fill(self, view: memoryview) -> None:
        filled = 0
        while filled < len(view):
            count = self._connection.recv_into(view[filled:])
            if not count:
                raise ConnectionResetError("connection closed by the broker")
            filled += count

    def close(self) -> None:
        self._connection.close()
