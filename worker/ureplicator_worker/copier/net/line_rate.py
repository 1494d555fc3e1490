"""Rates of a connection, so that no request or response takes much longer than `BUSY_S`. Pure.

A response is useful only when it is whole, and the requests of all partitions to a broker follow one
another on one connection. On a slow line a large one would hold up everything behind it. So each end
measures what the line carries, and less is requested, or under way, where that is little:

    received   bytes of a response over the time from its first to its last byte
    sent       bytes that the peer has taken while the socket accepts no more, over that time. But only
               until the oldest request is there: afterwards the broker works on it and reads nothing,
               and that time is not the line's

The rate of an unknown line is assumed low, and doubles with each response while the line holds up
nothing. A rate that was measured is replaced by the next one, since lines change.
"""

from __future__ import annotations

BUSY_S = 2.0
FIRST_BYTES = 256 << 10
"""Bytes per response, or under way, while nothing is measured."""
MIN_BYTES = 64 << 10
SAMPLE_S = 1.0
"""Lines deliver in gusts."""
MIN_TOOK_S = 0.001
"""A response that was there at once took no time that could be measured."""


class ReceiveRate:
    """`limit_bytes`: size of the next response."""

    __slots__ = ("_began_s", "limit_bytes")

    def __init__(self) -> None:
        self.limit_bytes = FIRST_BYTES
        self._began_s = 0.0

    def began(self, now_s: float) -> None:
        """The first bytes of a response are there."""
        self._began_s = now_s

    def ended(self, size_bytes: int, now_s: float) -> None:
        """Small responses do not measure a line."""
        if size_bytes >= MIN_BYTES:
            took_s = max(MIN_TOOK_S, now_s - self._began_s)
            self.limit_bytes = max(MIN_BYTES, int(BUSY_S * size_bytes / took_s))


class SendProgress:
    """Places in the stream of all requests of a connection, in bytes since it was opened.

        responded <= taken <= accepted <= queued
            |          |         |          end of the last request
            |          |         the socket has it
            |          the peer has it
            end of the last request that got its response

    `limit_bytes`: how much may be under way without a response.
    """

    __slots__ = (
        "_busy",
        "_limited_s",
        "_sample_bytes",
        "_sample_s",
        "accepted",
        "limit_bytes",
        "queued",
        "responded",
        "taken",
    )

    def __init__(self) -> None:
        self.queued = self.accepted = self.taken = self.responded = 0
        self.limit_bytes = FIRST_BYTES
        self._limited_s: float | None = None
        self._sample_bytes = 0
        self._sample_s = 0.0
        self._busy = False

    @property
    def under_way_bytes(self) -> int:
        return self.queued - self.responded

    def observe(self, unacknowledged: int, *, oldest_end: int, now_s: float) -> bool:
        """True if the peer has taken bytes of the oldest request since the last call.

        `unacknowledged`: bytes that the socket accepted and the peer has not taken.
        """
        former, self.taken = self.taken, max(self.taken, self.accepted - unacknowledged)
        limited = self.accepted < self.queued and self.taken < oldest_end
        self._measure(self.taken - former, limited=limited, now_s=now_s)
        return former < min(self.taken, oldest_end)

    def _measure(self, count: int, *, limited: bool, now_s: float) -> None:
        since_s, self._limited_s = self._limited_s, now_s if limited else None
        self._busy |= limited
        if since_s is None or not limited:
            return
        self._sample_bytes += count
        self._sample_s += now_s - since_s
        if self._sample_s >= SAMPLE_S:
            self.limit_bytes = max(MIN_BYTES, int(BUSY_S * self._sample_bytes / self._sample_s))
            self._sample_bytes, self._sample_s = 0, 0.0

    def on_response(self, end: int, *, max_bytes: int) -> None:
        """The request that ends there got its response; `max_bytes`: where the limit stops growing."""
        size = end - self.responded
        self.responded = end
        if not self._busy and size >= self.limit_bytes // 8:
            self.limit_bytes = min(max_bytes, 2 * self.limit_bytes)
        self._busy = False
