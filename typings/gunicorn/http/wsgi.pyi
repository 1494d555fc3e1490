import socket
from typing import Any

def create(
    req: Any, sock: socket.socket, client: Any, server: Any, cfg: Any
) -> tuple[Any, dict[str, Any]]: ...
