"""A `Clock` that tests move."""

from __future__ import annotations


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
