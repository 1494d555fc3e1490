"""REST process: gunicorn, started by exec on a socket that the daemon has bound.

The daemon binds the port itself, so that a port that is taken is one clear error and not a child that
exits again and again. It passes the listening socket to gunicorn by exec; nothing is forked while the
connection to ZooKeeper is open. The daemon keeps the socket: a child that exited is restarted on the
same address, and connections made in between wait in the socket's backlog instead of being refused.

The child holds the read end of a pipe whose write end only the daemon has: when the daemon ends, in
whatever way, the pipe closes and the child ends. Otherwise a killed daemon would leave its port taken.

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
from ureplicator_common.config.access import TlsSettings
from ureplicator_common.errors import PermanentError

log = logging.getLogger(__name__)

BACKLOG = 128
STOP_TIMEOUT_S = 8.0
"""gunicorn lets its requests finish within 5 s (see `command`)."""
RESTART_DELAYS_S = (0.0, 1.0, 2.0, 5.0, 10.0)
STEADY_S = 60.0
"""A child that ran so long did not fail at its start: the next restart is immediate again."""


ENVIRONMENT = "UREPLICATOR_WSGI_CONFIG"
THREADS = 40
"""Concurrent requests: each waits for ZooKeeper or a broker, hardly any for the processor. There are
more than `http.load` lets in, so that `/health` always has one."""
CONNECTIONS = 512
WORKER_CLASS = "ureplicator_controller.api.serving.worker.GatheringWorker"


@dataclass(frozen=True, slots=True)
class WsgiConfig:
    """Configuration of the child. `pipe_fd`: its end of the daemon's pipe, -1 for none (tests)."""

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


_NO_TLS = TlsSettings()


def command(*, listen_fd: int, tls: TlsSettings = _NO_TLS) -> list[str]:
    """Command line of gunicorn: one process (one ZooKeeper session, one set of counters)."""
    options = ("certfile", "keyfile", "ca-certs")
    return [
        *_gunicorn(listen_fd),
        *(f"--{name}={path}" for name, path in zip(options, tls.files, strict=True) if path),
        "ureplicator_controller.wsgi:application()",
    ]


def _gunicorn(listen_fd: int) -> list[str]:
    return [
        sys.executable,
        "-P",
        "-m",
        "ureplicator_controller.api.serving",
        "--config=python:ureplicator_controller.api.serving",
        f"--bind=fd://{listen_fd}",
        "--workers=1",
        f"--worker-class={WORKER_CLASS}",
        f"--threads={THREADS}",
        f"--worker-connections={CONNECTIONS}",
        "--graceful-timeout=5",
        "--limit-request-line=0",
        "--keep-alive=5",
        "--log-level=warning",
        "--no-control-socket",
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
class _RunningProcess:
    """A running child process."""

    process: subprocess.Popen[bytes]
    pipe_fd: int
    started_at_s: float


class RestProcess:
    """Starts the child, and restarts it when it exits. `watch` is called periodically."""

    def __init__(
        self,
        *,
        listener: socket.socket,
        config: WsgiConfig,
        environment: Mapping[str, str],
        clock: Clock,
        tls: TlsSettings = _NO_TLS,
        arguments: Sequence[str] | None = None,
    ) -> None:
        self._listener = listener
        self._config = config
        self._environment = environment
        self._clock = clock
        self._arguments = arguments or command(listen_fd=listener.fileno(), tls=tls)
        self._running: _RunningProcess | None = None
        self._backoff = Backoff(RESTART_DELAYS_S)
        self._next_start_s = clock.monotonic_s()

    def watch(self) -> None:
        """Start the child if it does not run and its restart delay has passed."""
        now_s = self._clock.monotonic_s()
        if self._running is not None:
            code = self._running.process.poll()
            if code is None:
                return
            self._exited(self._running, code, now_s)
        if now_s >= self._next_start_s:
            self._running = self._start(now_s)

    def _start(self, now_s: float) -> _RunningProcess:
        """Start the child with the read end of a pipe; only this process keeps the write end."""
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
        return _RunningProcess(process, write_fd, now_s)

    def _exited(self, running: _RunningProcess, code: int, now_s: float) -> None:
        os.close(running.pipe_fd)
        self._running = None
        ran_s = now_s - running.started_at_s
        self._backoff = self._backoff.recovered(ran_s=ran_s, steady_s=STEADY_S).failed()
        wait_s = self._backoff.delay_s
        self._next_start_s = now_s + wait_s
        log.warning("REST process exited with code %d; restarting it in %g s", code, wait_s)

    def close(self) -> None:
        """Stop the child: SIGTERM first, SIGKILL after a timeout."""
        if self._running is None:
            return
        running, self._running = self._running, None
        os.close(running.pipe_fd)
        with suppress(ProcessLookupError):
            running.process.terminate()
        try:
            running.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            running.process.kill()
            running.process.wait()
