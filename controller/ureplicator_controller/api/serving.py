"""How the daemon starts its REST child, written once for both ends.

The daemon binds the port itself, so that a taken one is its own clear error, and hands the
listening socket to gunicorn by exec; nothing is forked with ZooKeeper's connection open. The child
holds the read end of a pipe whose write end only the daemon has: when the daemon is gone, however
it died, the pipe closes and the child ends. Otherwise a killed daemon would leave its port taken.

    environment | {ENVIRONMENT: WsgiConfig(...).to_json()}
    command(listen_fd=socket.fileno()), pass_fds=(listen_fd, pipe_fd)
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass

ENVIRONMENT = "UREPLICATOR_WSGI_CONFIG"
THREADS = 8
"""Requests at one time: each waits for ZooKeeper or a broker, hardly any for the processor."""


@dataclass(frozen=True, slots=True)
class WsgiConfig:
    """What the child must know. `pipe_fd`: its end of the daemon's pipe, -1 for none (tests)."""

    config: str
    overrides: tuple[str, ...] = ()
    id: str = ""
    pipe_fd: int = -1
    log_json: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> WsgiConfig:
        raw = json.loads(text)
        return cls(**{**raw, "overrides": tuple(raw.get("overrides", ()))})


def command(*, listen_fd: int) -> list[str]:
    """Argument vector of gunicorn: one process (one ZooKeeper session, one set of counters)."""
    return [
        sys.executable,
        "-m",
        "gunicorn",
        f"--bind=fd://{listen_fd}",
        "--workers=1",
        "--worker-class=gthread",
        f"--threads={THREADS}",
        "--graceful-timeout=5",
        "--keep-alive=5",
        "--log-level=warning",
        "--no-control-socket",
        "ureplicator_controller.wsgi:application()",
    ]
