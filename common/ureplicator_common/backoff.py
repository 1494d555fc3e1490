"""Growing delays between attempts at something that fails.

    Backoff((0.5, 1.0, 2.0))   failures    0 -> 1 -> 2 -> 3 -> 4
                               delay_s     -   0.5   1   2   2

A pure value: it reads no clock and does not wait. Its owner adds `delay_s` to the time of the failure.
What ran long enough before it failed counts as recovered (`recovered`), so that the next failure is a
first one again; what flaps faster than that keeps its longer delays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Backoff:
    """`delays_s`: delay after the first, second, ... failure in a row; the last one repeats."""

    delays_s: tuple[float, ...]
    failures: int = 0

    @property
    def delay_s(self) -> float:
        """Delay after the latest failure; 0 before any.

        >>> Backoff((0.5, 1.0)).failed().delay_s
        0.5
        >>> Backoff((0.5, 1.0), failures=7).delay_s
        1.0
        """
        if self.failures == 0:
            return 0.0
        return self.delays_s[min(self.failures, len(self.delays_s)) - 1]

    def failed(self) -> Backoff:
        return replace(self, failures=self.failures + 1)

    def reset(self) -> Backoff:
        return replace(self, failures=0)

    def recovered(self, *, ran_s: float, steady_s: float) -> Backoff:
        """Reset if it ran for at least `steady_s`."""
        return self.reset() if ran_s >= steady_s else self

    def with_delays(self, delays_s: tuple[float, ...]) -> Backoff:
        """The same failures in a row, with the delays of another kind of failure."""
        return replace(self, delays_s=delays_s)
