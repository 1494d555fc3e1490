"""Spark of an auditor, for as long as records are compared.

    ended --session()--> running --idle for `idle_s`--> ended

Behind a copy nearly all is compared by checksums, without Spark. A JVM that waits costs its memory and a
thirtieth of the copy's processor time, so it is ended when no records were compared for some minutes. The
next comparison starts another one, which takes some seconds.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from ureplicator_common.clock import Clock
from ureplicator_common.errors import PermanentError

logger = logging.getLogger(__name__)


class Session(Protocol):
    """One JVM, from its start to its end."""

    def start(self) -> Any:
        """A SparkSession. Raises PermanentError."""

    def close(self) -> None: ...


class SparkOnDemand:
    """Threads share the session that is running. `starts`: sessions so far."""

    def __init__(
        self,
        *,
        open: Callable[[], Session],
        idle_s: float,
        on_failed: Callable[[str], None],
        clock: Clock,
    ) -> None:
        """`idle_s`: 0: a session is never ended. `on_failed`: of a start."""
        self._open = open
        self._idle_s = idle_s
        self._on_failed = on_failed
        self._clock = clock
        self._lock = threading.Lock()
        self._running: tuple[Session, Any] | None = None
        self._users = 0
        self._used_s = 0.0
        self.starts = 0

    @property
    def is_running(self) -> bool:
        return self._running is not None

    @contextmanager
    def session(self) -> Iterator[Any]:
        """The SparkSession, which is not ended within the block. Raises PermanentError: it does not start."""
        with self._lock:
            spark = self._running[1] if self._running else self._start()
            self._users += 1
        try:
            yield spark
        finally:
            with self._lock:
                self._users -= 1
                self._used_s = self._clock.monotonic_s()

    def _start(self) -> Any:
        session = self._open()
        try:
            spark = session.start()
        except PermanentError as error:
            self._on_failed(str(error))
            raise
        self._running = session, spark
        self.starts += 1
        return spark

    def end_idle(self) -> None:
        """End the session if it was not used for `idle_s`."""
        with self._lock:
            idle_s = self._clock.monotonic_s() - self._used_s
            if not self._idle_s or self._users or idle_s < self._idle_s or self._running is None:
                return
            logger.info("Spark ends: no records were compared for %.0f s", idle_s)
            session, self._running = self._running[0], None
            session.close()

    def close(self) -> None:
        """End the session, also one that is used."""
        if self._running is not None:
            self._running[0].close()
