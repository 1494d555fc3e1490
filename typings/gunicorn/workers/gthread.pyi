import selectors
import socket
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

class TConn:
    cfg: Any
    client: Any
    server: Any
    initialized: bool
    sock: socket.socket
    parser: Any
    data_ready: bool
    def __init__(self, cfg: Any, sock: socket.socket, client: Any, server: Any) -> None: ...
    def init(self) -> None: ...
    def close(self, graceful: bool = ...) -> None: ...

class PollableMethodQueue:
    def defer(self, callback: Callable[..., object], *args: Any) -> None: ...

class ThreadWorker:
    cfg: Any
    log: Any
    alive: bool
    nr_conns: int
    worker_connections: int
    poller: selectors.BaseSelector
    method_queue: PollableMethodQueue
    wsgi: Any
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
    def init_process(self) -> None: ...
    def accept(self, listener: socket.socket) -> None: ...
    def enqueue_req(self, conn: Any) -> None: ...
    def handle_request(self, req: Any, conn: Any) -> bool: ...
    def finish_request(self, conn: Any, fs: Future[Any]) -> None: ...
    def murder_pending(self) -> None: ...
