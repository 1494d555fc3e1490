"""Clock as an argument: cores get numbers, engines hold a `Clock`, tests advance it.

Delays and leases use monotonic time. Wall time is for display only: nothing may depend on it, since it
jumps.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def monotonic_s(self) -> float:
        """Monotonic seconds from an arbitrary zero."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for display."""
        ...


class SystemClock:
    def monotonic_s(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that only `advance` moves."""

    def __init__(self, *, start_s: float = 1_000.0) -> None:
        self._now_s = start_s

    def monotonic_s(self) -> float:
        return self._now_s

    def wall_ms(self) -> int:
        return int(self._now_s * 1_000)

    def advance(self, seconds: float) -> None:
        assert seconds >= 0
        self._now_s += seconds
