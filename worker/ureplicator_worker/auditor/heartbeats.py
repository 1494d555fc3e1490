"""Times at which the threads of an auditor last made progress.

A thread may hang in Spark, whose JVM is frozen, or whose task never ends. Its claim would be held without
end, so the process ends instead, and another auditor takes the work over.
"""

from __future__ import annotations

from ureplicator_common.clock import Clock

HANG_S = 3_600.0
"""A round of a comparison reports when it ends. Usually that takes 15 s; the longest is one that reads the
16 MiB that librdkafka holds at the lowest rate of 10 kB/s: 1,700 s. Twice that."""


class Heartbeats:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_s: dict[str, float] = {}

    def beat(self, thread: str) -> None:
        self._last_s[thread] = self._clock.monotonic_s()

    @property
    def hanging(self) -> str:
        """Thread that hangs, with the time; "" if none does."""
        now_s = self._clock.monotonic_s()
        late = [(now_s - last_s, name) for name, last_s in dict(self._last_s).items()]
        silent_s, name = max(late, default=(0.0, ""))
        return f"{name} made no progress for {silent_s:.0f} s" if silent_s > HANG_S else ""
