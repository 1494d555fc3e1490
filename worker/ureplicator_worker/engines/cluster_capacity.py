"""Lack of capacity of a Spark cluster to run a copier in every slot, as its driver can see it.

    master is away         no address of `spark.master` accepts a connection
    executors are refused  executors start and end again, as Spark's own log has it
    no free cores          otherwise: Spark waits for cores or memory, and does not say which

Spark retries by itself in all cases. The cause is observed from outside, since a driver that has lost its
master shows nothing of it but a line in its log. `since` is when the cause began, on the wall clock: it
is for operators only.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

CONNECT_TIMEOUT_S = 1.0
LOG_TAIL_BYTES = 64 * 1024
REFUSED_WITHIN_S = 60.0
REFUSALS = 2
"""One executor that ended was lost; another one that took its place and ended, too, was refused."""
HTTPS = 443

_ENDED = re.compile(
    r"^(\S+) INFO \S+: Executor updated: (\S+) is now (?:EXITED|FAILED)(?: \((.*)\))?$",
    re.MULTILINE,
)

Address = tuple[str, int]
Connect = Callable[[Address], str]
"""Connects to an address and closes at once; "", or why that failed."""


class CapacityProbe:
    """`log` is where Spark's own log is written (`jvm`). Used by one thread."""

    def __init__(
        self,
        *,
        master: str,
        slots: int,
        log: Path,
        wall_s: Callable[[], float],
        connect: Connect | None = None,
    ) -> None:
        self._addresses = addresses(master)
        self._slots = slots
        self._log = log
        self._wall_s = wall_s
        self._connect = connect or try_connect
        self._kind = ""
        self._since_s = 0.0

    def missing(self, cores: int) -> str:
        """Name what is missing, and since when; "" if the cores of all executors suffice."""
        kind, details = ("", "") if cores >= self._slots else self._cause(cores)
        if kind != self._kind:
            self._kind, self._since_s = kind, self._wall_s()
        return f"{kind} since {_shown(self._since_s)}: {details}" if kind else ""

    def _cause(self, cores: int) -> tuple[str, str]:
        """Kind of the cause, and what is known of it."""
        failures = [self._connect(address) for address in self._addresses]
        if failures and all(failures):
            names = ", ".join(f"{host}:{port}" for host, port in self._addresses)
            return f"Spark master {names} is away", failures[0]
        refused = self._last_refusal()
        if refused:
            return "executors are refused", refused
        return "no free cores", f"{cores} of {self._slots} executors"

    def _last_refusal(self) -> str:
        """Reason of the last executor's end, if several ended lately; else ""."""
        after_s = self._wall_s() - REFUSED_WITHIN_S
        ended = {
            executor: reason or "no reason is known"
            for time, executor, reason in _ENDED.findall(_tail(self._log))
            if _seconds(time) >= after_s
        }
        return list(ended.values())[-1] if len(ended) >= REFUSALS * self._slots else ""


def addresses(master: str) -> Sequence[Address]:
    """Addresses of a master: `spark://h1:p1,h2:p2` or `k8s://https://h:p`; none if it is of another kind."""
    if master.startswith("spark://"):
        pairs = (address.rpartition(":") for address in master.removeprefix("spark://").split(","))
        return [(host.strip("[]"), int(port)) for host, _, port in pairs]
    if master.startswith("k8s://"):
        url = master.removeprefix("k8s://")
        parts = urlsplit(url if "://" in url else f"https://{url}")
        return [(parts.hostname, parts.port or HTTPS)] if parts.hostname else []
    return []


def try_connect(address: Address) -> str:
    """Connect and close at once."""
    try:
        socket.create_connection(address, CONNECT_TIMEOUT_S).close()
    except OSError as error:
        return error.strerror or type(error).__name__
    return ""


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - LOG_TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _seconds(text: str) -> float:
    """Seconds since the epoch of a time in the log, which is local; 0 for anything else."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def _shown(wall_s: float) -> str:
    return datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
