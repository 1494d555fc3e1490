"""Time from a request to its response on one connection, to tell a far broker from a near one. Pure.

A partition has at most five batches under way, and its records come in one response at a time. So over a long
line it copies as much as five batches hold, or one response, in each round trip, and both are to be larger.

A response begins after the round trip of the line, and after what the broker and the loop were busy with
besides. Only the line matters here. So requests that follow many bytes do not count, and of the last ones the
shortest does.

Measured by requests, not asked of the kernel: behind a proxy or a service mesh the kernel knows the way to
that alone.
"""

from __future__ import annotations

from collections import deque

FAR_S = 0.03
"""Round trip from which a broker is far: at 16 KB a batch five of them a round trip are 2.7 MB/s, far
below what a partition can bring."""
FEW_BYTES = 4 << 20
"""Brokers nearby append so much within a part of `FAR_S`."""
KEPT = 16


class RoundTrip:
    """Round trips of the last requests."""

    __slots__ = ("_took_s",)

    def __init__(self) -> None:
        self._took_s: deque[float] = deque(maxlen=KEPT)

    def began(self, took_s: float, *, under_way_bytes: int) -> None:
        """A response begins. `under_way_bytes`: of the request and those before it, when it was sent."""
        if under_way_bytes <= FEW_BYTES:
            self._took_s.append(took_s)

    @property
    def is_far(self) -> bool:
        """True if no response came sooner than `FAR_S`; False while nothing is measured."""
        return bool(self._took_s) and min(self._took_s) > FAR_S
