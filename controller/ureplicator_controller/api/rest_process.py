"""The REST process: gunicorn by exec on a socket that the daemon bound, and how the two find each other.

The daemon binds the port itself, so that a port that is taken is one clear line and not a child that
dies again and again. It hands the listening socket to gunicorn by exec; nothing is forked with
ZooKeeper's connection open. It keeps the socket: a child that died is started again on the same
address, and whoever connects in between waits in the socket's queue instead of being refused.

The child holds the read end of a pipe whose write end only the daemon has: when the daemon is gone,
however it died, the pipe closes and the child ends. Otherwise a killed daemon would leave its port
taken.

    environment | {ENVIRONMENT: WsgiConfig(...).to_json()}
    command(listen_fd=socket.fileno()), pass_fds=(listen_fd, pipe_fd)
"""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from ureplicator_common.backoff import Backoff
from ureplicator_common.clock import Clock
from ureplicator_common.errors import PermanentError

log = logging.getLogger(__name__)

BACKLOG = 128
STOP_S = 8.0
"""gunicorn grants its requests 5 s (see `command`)."""
RESTART_DELAYS_S = (0.0, 1.0, 2.0, 5.0, 10.0)
STEADY_S = 60.0
"""A child that ran so long did not fail at its start: the next restart is immediate again."""


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


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises PermanentError with one line if the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise PermanentError(f"REST cannot listen on {host}:{port}: {error.strerror}") from error
    return listener


@dataclass(slots=True)
class _Life:
    """The running child and its past."""

    process: subprocess.Popen[bytes]
    pipe_fd: int
    started_at_s: float


class RestProcess:
    """Starts the child, and again when it dies. `watch` is called from time to time."""

    def __init__(
        self,
        *,
        listener: socket.socket,
        config: WsgiConfig,
        environment: Mapping[str, str],
        clock: Clock,
        arguments: Sequence[str] | None = None,
    ) -> None:
        self._listener = listener
        self._config = config
        self._environment = environment
        self._clock = clock
        self._arguments = arguments or command(listen_fd=listener.fileno())
        self._life: _Life | None = None
        self._backoff = Backoff(RESTART_DELAYS_S)
        self._next_start_s = clock.monotonic_s()

    def watch(self) -> None:
        """Start the child if there is none and its time has come."""
        now_s = self._clock.monotonic_s()
        if self._life is not None:
            code = self._life.process.poll()
            if code is None:
                return
            self._bury(self._life, code, now_s)
        if now_s >= self._next_start_s:
            self._life = self._start(now_s)

    def _start(self, now_s: float) -> _Life:
        """The write end of the pipe is the daemon's alone; only the read end is inherited."""
        read_fd, write_fd = os.pipe()
        try:
            config = replace(self._config, pipe_fd=read_fd)
            process = subprocess.Popen(  # noqa: S603  # our own interpreter
                self._arguments,
                env={**self._environment, ENVIRONMENT: config.to_json()},
                pass_fds=(self._listener.fileno(), read_fd),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            os.close(write_fd)
            raise
        finally:
            os.close(read_fd)
        return _Life(process, write_fd, now_s)

    def _bury(self, life: _Life, code: int, now_s: float) -> None:
        os.close(life.pipe_fd)
        self._life = None
        ran_s = now_s - life.started_at_s
        self._backoff = self._backoff.recovered(ran_s=ran_s, steady_s=STEADY_S).failed()
        wait_s = self._backoff.delay_s
        self._next_start_s = now_s + wait_s
        log.warning("REST ended with code %d; starting it again in %g s", code, wait_s)

    def close(self) -> None:
        """End the child: first politely."""
        if self._life is None:
            return
        life, self._life = self._life, None
        os.close(life.pipe_fd)
        with suppress(ProcessLookupError):
            life.process.terminate()
        try:
            life.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            life.process.kill()
            life.process.wait()
