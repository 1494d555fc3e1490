"""Token buckets: never more than the rate allows, never starved."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ureplicator_common.model import Limited, Route, TopicKey, WorkerId
from ureplicator_worker.copier.raw.byte_limits import (
    BURST_S,
    READY_PART,
    ByteLimits,
    RouteLimits,
    TokenBucket,
)

ROUTE = Route("a", "b")
OF_ROUTE = Limited.route(ROUTE)
OF_TOPIC = Limited.topic(TopicKey(ROUTE, "t"))
OF_WORKER = Limited.worker(WorkerId("w"))
MB = 1_000_000

waits = st.floats(0.0, 3.0)
sizes = st.floats(0.0, 20.0)
"""Of a fetch, in parts of the room: a broker may send more than was requested, or less."""


@given(st.integers(1, 10 * MB), st.lists(st.tuples(waits, sizes), min_size=1, max_size=60))
def test_no_window_has_more_than_rate_burst_and_one_fetch(
    rate: int, history: list[tuple[float, float]]
) -> None:
    bucket, now_s = TokenBucket(rate, 0.0), 0.0
    taken: list[tuple[float, int]] = []
    for wait_s, part in history:
        now_s += wait_s
        room = bucket.room(now_s)
        if room:
            size = int(part * room)
            bucket.take(size, now_s)
            taken.append((now_s, size))
    for first in range(len(taken)):
        total = 0
        for at_s, size in taken[first:]:
            total += size
            span_s = at_s - taken[first][0]
            assert total - size <= rate * (span_s + BURST_S) + 2, "before the last fetch"


@given(st.integers(1, 10 * MB), st.integers(0, 100 * MB))
def test_a_fetch_of_any_size_passes_and_is_paid_for(rate: int, size: int) -> None:
    bucket, ready_s = TokenBucket(rate, 0.0), READY_PART * BURST_S
    assert bucket.room(ready_s + 0.001)
    bucket.take(size, ready_s + 0.001)
    owed_s = size / rate
    if owed_s > BURST_S:
        assert not bucket.room(owed_s * 0.99 + 0.001)
    assert bucket.room(ready_s + 0.002 + owed_s * 1.001 + ready_s)


def test_a_lower_rate_keeps_the_debt_and_no_burst_of_the_former_one() -> None:
    bucket = TokenBucket(MB, 0.0)
    bucket.room(10.0)
    bucket.change(1_000, 10.0)
    assert bucket.room(10.0) == int(BURST_S * 1_000)
    bucket.take(3_000, 10.0)
    bucket.change(MB, 10.0)
    assert not bucket.room(10.0)
    assert bucket.room(10.2)


def test_time_that_was_waited_is_counted() -> None:
    bucket = TokenBucket(1_000, 0.0)
    for now_s in (0.0, 0.05, 0.1, 0.15):
        bucket.room(now_s)
    assert abs(bucket.throttled_s - 0.15) < 1e-9
    bucket.room(100.0)
    assert abs(bucket.throttled_s - 0.15) < 1e-9
    bucket.take(10_000, 100.0)
    bucket.room(100.0)
    bucket.room(104.0)
    assert bucket.throttled_s < 1.2, (
        "it was not looked at for so long since nothing was to be fetched"
    )


def test_a_route_has_the_least_room_of_its_limits() -> None:
    limits = ByteLimits()
    route, other = RouteLimits(limits, ROUTE), RouteLimits(limits, Route("c", "d"))
    assert route.room(0.0) is None
    assert not route.limited
    limits.change(1, {OF_ROUTE: MB, OF_WORKER: 2 * MB, OF_TOPIC: 1_000}, 0.0)
    assert route.room(9.0) == MB // 2
    assert other.room(9.0) == MB
    assert route.topic_rooms(9.0) == {"t": 500}
    assert other.topic_rooms(9.0) == {}
    other.take("t", 3 * MB, 9.0)
    assert route.room(9.0) == 0, "the worker's limit is that of all routes"
    assert route.topic_rooms(9.0) == {"t": 500}
    route.take("t", 600, 9.0)
    assert route.topic_rooms(9.0) == {"t": 0}
    assert limits.use()[OF_ROUTE].bytes_per_s == MB


def test_older_shares_have_no_effect() -> None:
    limits = ByteLimits()
    limits.change(2, {OF_ROUTE: MB}, 0.0)
    limits.change(1, {}, 0.0)
    limits.change(2, {}, 0.0)
    assert limits.buckets.keys() == {OF_ROUTE}
    limits.change(3, {}, 0.0)
    assert RouteLimits(limits, ROUTE).room(0.0) is None
