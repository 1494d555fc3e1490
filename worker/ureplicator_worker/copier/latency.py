"""Latency of batches, as counts per bucket. Hot path."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable

from ureplicator_worker.lifeline.messages import LATENCY_BOUNDS_MS


class Latencies:
    """Latencies of a lane. `of_records`: from the youngest record of a batch to its acknowledgement, or
    its commit. `of_fetches`: from the response that brought it to its acknowledgement."""

    __slots__ = ("of_fetches", "of_records")

    def __init__(self) -> None:
        self.of_records = LatencyHistogram()
        self.of_fetches = LatencyHistogram()

    def add(self, other: Latencies) -> None:
        self.of_records.add(other.of_records)
        self.of_fetches.add(other.of_fetches)


class LatencyHistogram:
    __slots__ = ("_monotonic_s", "_wall_s", "counts", "sum_ms")

    def __init__(
        self,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self.counts = [0] * (len(LATENCY_BOUNDS_MS) + 1)
        self.sum_ms = 0.0
        self._monotonic_s = monotonic_s
        self._wall_s = wall_s

    def record_since(self, since_s: float) -> None:
        """`since_s` is a monotonic time of this process."""
        latency_ms = (self._monotonic_s() - since_s) * 1_000
        self.counts[bisect_left(LATENCY_BOUNDS_MS, latency_ms)] += 1
        self.sum_ms += latency_ms

    def record(self, *timestamps_ms: int) -> None:
        """A time in the future comes from another machine's clock and counts as no latency.

        Batches of the oldest format have no time (-1) and are not counted.
        """
        now_ms = self._wall_s() * 1_000
        for timestamp_ms in timestamps_ms:
            if timestamp_ms >= 0:
                latency_ms = max(0.0, now_ms - timestamp_ms)
                self.counts[bisect_left(LATENCY_BOUNDS_MS, latency_ms)] += 1
                self.sum_ms += latency_ms

    def add(self, other: LatencyHistogram) -> None:
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        self.sum_ms += other.sum_ms
