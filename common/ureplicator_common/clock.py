"""Clock as an argument: cores get numbers, engines hold a `Clock`, tests advance it.

Delays and leases use monotonic time. Wall time is for display only: nothing may depend on it, since it
jumps.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def monotonic_s(self) -> float:
        """Monotonic seconds from an arbitrary zero."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for display."""
        ...


def utc_text(wall_ms: int) -> str:
    """A time in whole seconds, as `2026-01-31T12:00:00Z`."""
    return datetime.fromtimestamp(wall_ms // 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class SystemClock:
    def monotonic_s(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class SilenceTimer:
    """Seconds since the last sign of life of another party, less those in which this process stood still.

    A process that was frozen for minutes (SIGSTOP, a suspended machine) has heard nothing, which says
    nothing about the other party. So `observe` is called often, and of the time since the last call at most
    `step_s` counts.
    """

    def __init__(self, *, step_s: float = 1.0) -> None:
        self._step_s = step_s
        self._sign_s = self._observed_s = 0.0
        self._silent_s = 0.0

    def observe(self, sign_s: float, now_s: float) -> float:
        """Seconds of silence. `sign_s`: time of the last sign of life."""
        if sign_s != self._sign_s:
            self._sign_s = sign_s
            self._silent_s = min(now_s - sign_s, self._step_s)
        else:
            self._silent_s += min(now_s - self._observed_s, self._step_s)
        self._observed_s = now_s
        return self._silent_s
