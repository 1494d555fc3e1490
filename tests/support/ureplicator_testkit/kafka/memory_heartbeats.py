"""Heartbeats of a cluster in memory that can fail."""

from __future__ import annotations

from ureplicator_common.errors import OperatingError


class MemoryHeartbeats:
    """`failure`: raised by every request. `times_ms`: heartbeats of each topic, in order."""

    def __init__(self) -> None:
        self.times_ms: dict[str, list[int]] = {}
        self.failure: OperatingError | None = None
        self.closed = False

    def send(self, topic: str, time_ms: int) -> None:
        self._request()
        self.times_ms.setdefault(topic, []).append(time_ms)

    def newest_ms(self, topic: str) -> int | None:
        self._request()
        return max(self.times_ms.get(topic, ()), default=None)

    def close(self) -> None:
        self.closed = True

    def _request(self) -> None:
        if self.failure is not None:
            raise self.failure
