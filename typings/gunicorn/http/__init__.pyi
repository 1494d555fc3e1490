import socket
from typing import Any

def get_parser(cfg: Any, sock: socket.socket, client: Any) -> Any: ...
