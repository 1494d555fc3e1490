"""Free ports, without a race between two test runs or with the kernel's own choice.

Port 0 gives a port of the ephemeral range, which any outgoing connection of the machine may take
between the moment it is closed here and the moment a JVM has started. So ports come from below that
range, and a claim holds an abstract Unix socket named after the port: only one process of the
machine can have it, no file is left, and it vanishes with its holder.
"""

import random
import socket
from pathlib import Path

LOWEST = 10_000


class PortTakenError(Exception):
    """A port requested by number is in use."""


class PortClaim:
    """A port reserved among all test runs of this machine until `release`."""

    def __init__(self, port: int, holder: socket.socket) -> None:
        self.port = port
        self._holder = holder

    def release(self) -> None:
        self._holder.close()


def claim_port() -> PortClaim:
    highest = _first_ephemeral_port()
    for port in random.sample(range(LOWEST, highest), k=500):
        claim = _try_claim(port)
        if claim is not None:
            return claim
    raise PortTakenError(f"no free port between {LOWEST} and {highest}")


def port_is_free(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _try_claim(port: int) -> PortClaim | None:
    holder = socket.socket(socket.AF_UNIX)
    try:
        holder.bind(f"\0ureplicator-port-{port}")
    except OSError:
        holder.close()
        return None
    if port_is_free(port):
        return PortClaim(port, holder)
    holder.close()
    return None


def _first_ephemeral_port() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        return 32_768
