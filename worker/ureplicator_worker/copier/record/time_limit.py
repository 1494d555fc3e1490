"""Time limit for each call of a handler, by a timer signal in the handler's process.

A call that takes too long gets HandlerTimeout raised in it, so one record is at fault, not the process. A
timer for each call would cost more than most calls take: one timer ticks all the time, and compares the
call under way with that of former ticks. What never returns to the interpreter (a loop in C) is not
reached; then the copier ends the process (`process`).
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

TICKS_PER_LIMIT = 8


class HandlerTimeout(BaseException):
    """No Exception: a handler that catches those must not catch this."""


class TimeLimit:
    """`slow`: a call was under way at a tick, so the clock is read after each."""

    def __init__(self, limit_s: float, *, outputs: Callable[[Any], Sequence[Any]]) -> None:
        self._limit_s = limit_s
        self._outputs = outputs
        self._call = 0
        self._calling = False
        self._seen = (0, 0.0)
        self.slow = False

    def begin(self) -> None:
        self.slow = False
        tick_s = self._limit_s / TICKS_PER_LIMIT
        signal.signal(signal.SIGALRM, self._tick)
        signal.setitimer(signal.ITIMER_REAL, tick_s, tick_s)

    def end(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.0)

    def call(self, handle: Callable[[Any], Any], record: Any) -> Sequence[Any]:
        """Raises whatever the handler raises, and HandlerTimeout."""
        self._call += 1
        self._calling = True
        try:
            result = handle(record)
            kind = type(result)
            return result if kind is tuple or kind is list else self._outputs(result)
        finally:
            self._calling = False

    def _tick(self, signal_number: int, frame: FrameType | None) -> None:
        if not self._calling:
            return
        now_s = time.monotonic()
        call, since_s = self._seen
        if call != self._call:
            self._seen = (self._call, now_s)
            self.slow = True
        elif now_s - since_s >= self._limit_s - self._limit_s / TICKS_PER_LIMIT:
            self._seen = (call, now_s)
            raise HandlerTimeout(f"the handler did not return in {self._limit_s:g} s")
