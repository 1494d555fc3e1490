"""Byte limits of one slot: token buckets that are consulted before anything is fetched. Pure.

A bucket fills at the rate of the slot's share, up to BURST_S of it. Nothing is requested while it holds less
than READY_PART of that: many small fetches cost more than few. A request is sized by what the bucket
holds, but a broker sends at least one batch, however large. So a fetch may *borrow*: the bucket is charged
with what came, falls below zero, and is refilled before the next request. Hence in any time t no more than
rate * t + burst + one fetch passes, and none is so large that it never passes.

    worker:w1 -----+
    route:west.east+--> the next request of the route to any source broker
    topic:...      ----> which partitions take part in it, and how much each may bring

Bytes are counted as they are stored at the source, when they are fetched: also those that are fetched again.
"""

from __future__ import annotations

from collections.abc import Mapping

from ureplicator_common.model import Limited, LimitKind, Route, TopicKey
from ureplicator_worker.lifeline.messages import LimitUse

BURST_S = 0.5
"""A time longer than a round trip between continents, during which the bucket must not overflow."""
READY_PART = 0.25
MAX_WAIT_S = 1.0
"""Longest time between two calls of `room`; a longer time was not spent waiting for the bucket."""


class TokenBucket:
    """A bucket of tokens, empty at first. `change` keeps what was borrowed."""

    __slots__ = ("_at_s", "_tokens", "_waiting_since_s", "rate", "throttled_s")

    def __init__(self, rate: int, now_s: float) -> None:
        self.rate = rate
        self.throttled_s = 0.0
        self._tokens = 0.0
        self._at_s = now_s
        self._waiting_since_s: float | None = None

    def room(self, now_s: float) -> int:
        """Bytes that may be requested now; 0: wait."""
        self._refill(now_s)
        ready = self._tokens >= READY_PART * BURST_S * self.rate
        if self._waiting_since_s is not None:
            self.throttled_s += min(MAX_WAIT_S, now_s - self._waiting_since_s)
        self._waiting_since_s = None if ready else now_s
        return max(1, int(self._tokens)) if ready else 0

    def take(self, count: int, now_s: float) -> None:
        """Note how much was fetched, if need be on credit."""
        self._refill(now_s)
        self._tokens -= count

    def change(self, rate: int, now_s: float) -> None:
        self._refill(now_s)
        self.rate = rate
        self._tokens = min(self._tokens, BURST_S * rate)

    def _refill(self, now_s: float) -> None:
        passed_s = max(0.0, now_s - self._at_s)
        self._at_s = now_s
        self._tokens = min(self._tokens + passed_s * self.rate, BURST_S * self.rate)


class ByteLimits:
    """All buckets of the slot."""

    def __init__(self) -> None:
        self.version = -1
        self.buckets: dict[Limited, TokenBucket] = {}

    def change(self, version: int, rates: Mapping[Limited, int], now_s: float) -> None:
        """Use these shares from now on; an older version has no effect."""
        if version <= self.version:
            return
        self.version = version
        former, self.buckets = self.buckets, {}
        for limited, rate in rates.items():
            bucket = former.get(limited) or TokenBucket(rate, now_s)
            bucket.change(rate, now_s)
            self.buckets[limited] = bucket

    def use(self) -> dict[Limited, LimitUse]:
        return {
            limited: LimitUse(bucket.rate, int(bucket.throttled_s * 1_000))
            for limited, bucket in self.buckets.items()
        }


class RouteLimits:
    """The limits that concern one route in the slot."""

    def __init__(self, limits: ByteLimits, route: Route) -> None:
        self._limits = limits
        self._route = route
        self._version = -1
        self._shared: tuple[TokenBucket, ...] = ()
        self._topics: dict[str, TokenBucket] = {}

    def room(self, now_s: float) -> int | None:
        """Bytes that may be requested of the route now; 0: wait; None: it is not limited."""
        if self._version != self._limits.version:
            self._follow()
        rooms = [bucket.room(now_s) for bucket in self._shared]
        return min(rooms) if rooms else None

    def topic_rooms(self, now_s: float) -> dict[str, int]:
        """Limited topics, and the bytes that may be requested of each now."""
        return {topic: bucket.room(now_s) for topic, bucket in self._topics.items()}

    @property
    def limited(self) -> bool:
        return bool(self._shared or self._topics)

    def take(self, topic: str, count: int, now_s: float) -> None:
        """Note how much of the topic was fetched."""
        for bucket in self._shared:
            bucket.take(count, now_s)
        bucket_of_topic = self._topics.get(topic)
        if bucket_of_topic is not None:
            bucket_of_topic.take(count, now_s)

    def _follow(self) -> None:
        self._version = self._limits.version
        buckets = self._limits.buckets
        own = Limited.route(self._route)
        self._shared = tuple(
            bucket
            for limited, bucket in buckets.items()
            if limited == own or limited.kind is LimitKind.WORKER
        )
        self._topics = {}
        for limited, bucket in buckets.items():
            if limited.kind is LimitKind.TOPIC:
                key = TopicKey.parse(limited.name)
                if key.route == self._route:
                    self._topics[key.topic] = bucket


def unlimited() -> RouteLimits:
    return RouteLimits(ByteLimits(), Route("", ""))
