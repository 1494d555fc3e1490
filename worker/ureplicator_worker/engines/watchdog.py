"""End of a worker process that cannot recover: a dead JVM, a loop that does not step, a taken id.

The process ends with one line, after its copiers are gone: a supervisor restarts it, and ZooKeeper
notifies the others.
"""

from __future__ import annotations

import logging
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

from ureplicator_common.clock import Clock, SilenceTimer
from ureplicator_common.coordination import Coordination
from ureplicator_worker.engines.event_loop import EventLoop
from ureplicator_worker.engines.spark import SparkEngine

logger = logging.getLogger(__name__)

CHECK_EVERY_S = 0.1
COPIERS_TIMEOUT_S = 3.0
CLOSE_TIMEOUT_S = 3.0


class ProcessAbort:
    """Ends the process now: no copier may outlive it. Callable once, from any thread."""

    def __init__(
        self,
        *,
        name: str,
        spark: SparkEngine,
        coordination: Coordination,
        exit_process: Callable[[int], Any],
    ) -> None:
        self._name = name
        self._spark = spark
        self._coordination = coordination
        self._exit_process = exit_process
        self._aborting = threading.Lock()

    def __call__(self, reason: str) -> None:
        if not self._aborting.acquire(blocking=False):
            return
        print_error(f"{self._name}: {reason}")
        self._spark.abandon(COPIERS_TIMEOUT_S)
        closing = threading.Thread(target=self._coordination.close, daemon=True)
        closing.start()
        closing.join(CLOSE_TIMEOUT_S)
        self._exit_process(1)


class Watchdog:
    """Aborts at the first entry of `failures`, and when the loop takes no step for `limit_s`."""

    def __init__(
        self,
        *,
        failures: queue.SimpleQueue[str],
        loop: EventLoop,
        limit_s: float,
        clock: Clock,
        abort: ProcessAbort,
    ) -> None:
        self._failures = failures
        self._loop = loop
        self._limit_s = limit_s
        self._clock = clock
        self._abort = abort

    def start(self) -> None:
        threading.Thread(target=self._watch, name="worker watchdog", daemon=True).start()

    @property
    def idle_s(self) -> float:
        """Time since the loop's last step."""
        return self._clock.monotonic_s() - self._loop.stepped_s

    @property
    def healthy(self) -> bool:
        """False well before the process is ended for it."""
        return self.idle_s < max(self._limit_s / 2, 1.0)

    def thread_failed(self, failed: threading.ExceptHookArgs) -> None:
        """Exception hook of threads: without one of its own, a worker only looks alive."""
        name = failed.thread.name if failed.thread else ""
        logger.error("thread %s failed: %r", name, failed.exc_value, exc_info=failed.exc_value)
        if name.startswith("worker ") and self._loop.exit is None:
            self._abort(f"thread {name!r} failed: {type(failed.exc_value).__name__}")

    def _watch(self) -> None:
        silence = SilenceTimer()
        while self._loop.exit is None:
            try:
                self._abort(self._failures.get(timeout=CHECK_EVERY_S))
            except queue.Empty:
                idle_s = silence.observe(self._loop.stepped_s, self._clock.monotonic_s())
                if idle_s > self._limit_s:
                    self._abort(f"no step for {idle_s:.0f} s")


def print_error(line: str) -> None:
    """One line on standard error, whatever the logging configuration."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
