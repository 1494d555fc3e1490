"""Heartbeats in a topic of one cluster; `heartbeat_requests` implements the interface."""

from __future__ import annotations

from typing import Protocol


class Heartbeats(Protocol):
    """Belongs to one thread. Every call may raise ClusterUnavailable."""

    def send(self, topic: str, time_ms: int) -> None:
        """Append a heartbeat; returns when all replicas in sync have it."""
        ...

    def newest_ms(self, topic: str) -> int | None:
        """Time of the newest committed heartbeat; None without one near the end of the log."""
        ...

    def close(self) -> None: ...
