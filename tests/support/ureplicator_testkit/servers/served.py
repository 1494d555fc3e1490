"""Servers of Python's own library for tests, each in a thread of its own."""

from __future__ import annotations

import socketserver
import threading
from typing import Self

POLL_S = 0.05


class Served:
    """A server that responds from the begin of a `with` block to its end."""

    def __init__(self, server: socketserver.TCPServer) -> None:
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, args=(POLL_S,))

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
