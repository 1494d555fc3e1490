"""A broker that responds to fetches without batches, as one whose reads of tiered storage come too late.

    client --> [ relay ] --> the only broker of a cluster

Metadata name the relay in place of the broker, so all clients that begin at the relay stay with it. What else
a response to a Fetch holds, as the last stable offset, is the broker's.
"""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from typing import Any, Self

from kafka.protocol.consumer import FetchResponse
from kafka.protocol.metadata import MetadataResponse

FETCH, METADATA = 1, 3
_SIZE = struct.Struct(">i")
_HEADER = struct.Struct(">hhi")
"""Header of a request: API, version, correlation id."""


class EmptiedFetches:
    """`left`: so many responses to fetches lose their batches, those that have none not counted."""

    def __init__(self, broker_port: int, *, left: int) -> None:
        self.left = left
        self._broker_port = broker_port
        self._lock = threading.Lock()
        relay = self

        class Connection(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                relay.serve(self.request)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Connection)
        self._server.daemon_threads = False
        self._open: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        for connection in list(self._open):
            connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()

    def serve(self, client: socket.socket) -> None:
        """One request of a connection after the other."""
        with socket.create_connection(("127.0.0.1", self._broker_port)) as broker:
            self._open.add(client)
            try:
                while request := _message(client):
                    broker.sendall(_SIZE.pack(len(request)) + request)
                    response = self._changed(request, _message(broker))
                    client.sendall(_SIZE.pack(len(response)) + response)
            except OSError:
                return
            finally:
                self._open.discard(client)

    def _changed(self, request: bytes, response: bytes) -> bytes:
        api, version, correlation = _HEADER.unpack_from(request)
        if api == METADATA:
            return self._leading_here(response, version, correlation)
        if api == FETCH:
            return self._emptied(response, version, correlation)
        return response

    def _leading_here(self, raw: bytes, version: int, correlation: int) -> bytes:
        response: Any = MetadataResponse.decode(raw, version=version, header=True)
        for broker in response.brokers:
            broker.host, broker.port = "127.0.0.1", self.port
        return _encoded(response, correlation)

    def _emptied(self, raw: bytes, version: int, correlation: int) -> bytes:
        response: Any = FetchResponse.decode(raw, version=version, header=True)
        rows = [row for topic in response.responses for row in topic.partitions if row.records]
        with self._lock:
            if not rows or not self.left:
                return raw
            self.left -= 1
        for row in rows:
            row.records = b""
        return _encoded(response, correlation)


def _encoded(response: Any, correlation: int) -> bytes:
    response.with_header(correlation_id=correlation, client_id="")
    return bytes(response.encode(framed=False, header=True))


def _message(connection: socket.socket) -> bytes:
    """A message without its size; empty at the end of the connection."""
    head = _received(connection, _SIZE.size)
    return _received(connection, _SIZE.unpack(head)[0]) if head else b""


def _received(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        portion = connection.recv(size - len(data))
        if not portion:
            return b""
        data += portion
    return bytes(data)
