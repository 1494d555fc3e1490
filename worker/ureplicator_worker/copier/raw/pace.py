"""How fast one copier may read, all of its routes and brokers together."""

from __future__ import annotations


class Pace:
    """`bytes_per_s` 0: as fast as can be. What came too fast is waited for afterwards."""

    def __init__(self) -> None:
        self.bytes_per_s = 0
        self._free_at_s = 0.0

    def spend(self, size: int, now_s: float) -> None:
        if self.bytes_per_s:
            self._free_at_s = max(self._free_at_s, now_s) + size / self.bytes_per_s

    def allows(self, now_s: float) -> bool:
        return self.bytes_per_s == 0 or now_s >= self._free_at_s
