"""A blocking connection to brokers in memory."""

from __future__ import annotations

import socket

from ureplicator_testkit.kafka.memory_kafka import MemoryKafka


class PumpedSocket:
    """A blocking socket whose broker works when it is used. What never comes is a time-out."""

    def __init__(self, kafka: MemoryKafka, connection: socket.socket) -> None:
        self._kafka, self._connection = kafka, connection
        connection.settimeout(0)

    def sendall(self, data: bytes) -> None:
        self._connection.sendall(data)
        self._kafka.pump()

    def recv_into(self, view: memoryview) -> int:
        self._kafka.pump()
        try:
            return self._connection.recv_into(view)
        except BlockingIOError as error:
            raise TimeoutError("timed out") from error

    def close(self) -> None:
        self._connection.close()
