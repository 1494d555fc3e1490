"""Thread that runs one round of an engine again and again, and waits as long as the round returns."""

from __future__ import annotations

import threading
from collections.abc import Callable


class PeriodicThread:
    """`run_once` returns the seconds until the next round, and handles its own errors."""

    def __init__(self, run_once: Callable[[], float], *, name: str, first_after_s: float) -> None:
        self._run_once = run_once
        self._first_after_s = first_after_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Stop after the present round; returns whether the thread has ended."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        wait_s = self._first_after_s
        while not self._stopping.wait(wait_s):
            wait_s = self._run_once()
