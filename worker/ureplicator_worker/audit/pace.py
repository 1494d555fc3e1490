"""Pace of reading at a byte rate. Pure.

Small portions at any rate: the task looks at its time between two of them. What is handed out was waited for
before, so that the rate also holds for the last portion of a round. Time in which nothing was read is made up
for, `CREDIT_S` at most.
"""

from __future__ import annotations

from dataclasses import dataclass

PORTION_S = 0.25
CREDIT_S = 1.0
MOST_KBYTES = 16_384
LEAST_KBYTES = 64


@dataclass(slots=True)
class Pace:
    """`rate_bytes_per_s`: 0 is no limit."""

    rate_bytes_per_s: float
    _free_at_s: float | None = None

    def wait_s(self, size_bytes: int, *, now_s: float) -> float:
        """Seconds until as much as was read, with these bytes, fits the rate."""
        if not self.rate_bytes_per_s:
            return 0.0
        begin_s = now_s if self._free_at_s is None else max(self._free_at_s, now_s - CREDIT_S)
        self._free_at_s = begin_s + size_bytes / self.rate_bytes_per_s
        return max(0.0, self._free_at_s - now_s)

    def first_count(self, most: int) -> int:
        """Records of the first portion, of unknown size."""
        return 1 if self.rate_bytes_per_s else most

    def portion_bytes(self, most: int) -> int:
        """Size of a portion."""
        if not self.rate_bytes_per_s:
            return most
        return max(1, min(most, int(self.rate_bytes_per_s * PORTION_S)))

    def read_ahead_kbytes(self) -> int:
        """Most that the client may fetch before it is asked for: what a second allows."""
        if not self.rate_bytes_per_s:
            return MOST_KBYTES
        return max(LEAST_KBYTES, min(MOST_KBYTES, int(self.rate_bytes_per_s) >> 10))
