"""Byte limits of a route, a topic and a worker on real clusters: set, raised and removed while records are
copied."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.records.topics import NewRecord, create_topic, offsets, produce
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually

MB = 1_000_000
RECORD_BYTES = 10_000
PARTITIONS = 4
ROUTE = "/limits/routes/source.target"
COPIED_S = 60.0
DIVIDED_S = 22.0
"""Two divisions: the shares have followed the load."""
MEASURED_S = 15.0
BURSTS_S = 1.0
"""Half a second of the limit on each of two workers."""
FETCHED = MB
"""Bytes that were fetched by both workers before the limit was known."""
ABOUT = 0.25
"""Tolerance: beside other tests, records that were fetched in time are produced late."""


@pytest.fixture(scope="module")
def running(make_fleet: Callable[..., Fleet]) -> Fleet:
    fleet = make_fleet(f"limits-{uuid.uuid4().hex[:8]}")
    return fleet.start(controllers=1, workers=2)


class Copies:
    def __init__(self, fleet: Fleet, source: KafkaCluster, target: KafkaCluster) -> None:
        self.fleet, self.source, self.target = fleet, source, target

    def begin(self, topic: str, size_mb: int, *, partitions: int = PARTITIONS) -> None:
        """A topic with so much to copy, spread evenly."""
        create_topic(self.source.bootstrap, topic, partitions=partitions)
        value = random.Random(1).randbytes(RECORD_BYTES)  # noqa: S311
        count = size_mb * MB // RECORD_BYTES
        records = (NewRecord(value, None, number % partitions) for number in range(count))
        produce(self.source.bootstrap, topic, records)
        self.fleet.whitelist(topic)

    def limit(self, path: str, rate: int) -> None:
        self.fleet.rest("PUT", path, json={"bytesPerSecond": rate})

    def clear(self, path: str) -> None:
        self.fleet.rest("DELETE", path)

    def copied(self, topic: str) -> dict[int, int]:
        """Bytes of each partition at the target; none before the topic is there."""
        found = offsets(self.target.bootstrap, topic)
        return {number: end * RECORD_BYTES for number, (_, end) in found.items()}

    def rate(self, topic: str, seconds: float) -> float:
        before, began_s = self.total(topic), time.monotonic()
        Fleet.wait_seconds(seconds)
        after = self.total(topic)
        return (after - before) / (time.monotonic() - began_s)

    def total(self, topic: str) -> int:
        return sum(self.copied(topic).values())

    def wait_copied(self, topic: str) -> float:
        """Until both logs end alike; returns the seconds."""
        began_s = time.monotonic()
        wanted = offsets(self.source.bootstrap, topic)
        eventually(
            lambda: offsets(self.target.bootstrap, topic) == wanted, COPIED_S, f"{topic} is copied"
        )
        return time.monotonic() - began_s


@pytest.fixture
def copies(running: Fleet, source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> Copies:
    return Copies(running, source_cluster, target_cluster)


def assert_kept(rate: int, copied: int, began_s: float) -> None:
    """On average since it was set, the limit is exact: whatever was late comes within it."""
    assert copied < rate * (time.monotonic() - began_s + BURSTS_S) * 1.1 + FETCHED


@contextmanager
def limited(copies: Copies, path: str, rate: int) -> Iterator[None]:
    copies.limit(path, rate)
    try:
        yield
    finally:
        copies.clear(path)


def test_a_limit_of_a_route_is_kept_raised_and_removed(copies: Copies, topic: str) -> None:
    with limited(copies, ROUTE, 2 * MB):
        copies.begin(topic, 300)
        began_s = time.monotonic()
        copies.fleet.wait_online(topic, PARTITIONS)
        Fleet.wait_seconds(DIVIDED_S)
        assert copies.rate(topic, MEASURED_S) > (1 - ABOUT) * 2 * MB
        assert_kept(2 * MB, copies.total(topic), began_s)
        (shown,) = copies.fleet.rest("GET", "/limits")["limits"]
        assert abs(shown["measuredBytesPerSecond"] / (2 * MB) - 1) < ABOUT
        throttled = [_throttled_s(copies.fleet.status(worker)) for worker in ("w1", "w2")]
        assert min(throttled) > 5.0
        copies.limit(ROUTE, 6 * MB)
        raised_s, before = time.monotonic(), copies.total(topic)
        Fleet.wait_seconds(1.0)
        assert copies.rate(topic, MEASURED_S) > (1 - ABOUT) * 6 * MB
        assert_kept(6 * MB, copies.total(topic) - before, raised_s)
    left = 300 * MB - copies.total(topic)
    assert left / copies.wait_copied(topic) > 12 * MB
    reasons = [
        each["reason"] for each in copies.fleet.rest("GET", "/history?kind=switch")["history"]
    ]
    assert reasons[:3] == [
        "byte limit of route source.target removed",
        "byte limit of route source.target set to 6000000 bytes/s",
        "byte limit of route source.target set to 2000000 bytes/s",
    ]


def _throttled_s(status: Any) -> float:
    slots = status["limits"].values()
    return max(float(use["throttledSeconds"]) for slot in slots for use in slot.values())


def test_only_the_topic_with_a_limit_is_held_back(copies: Copies, topic: str) -> None:
    free = f"{topic}-free"
    with limited(copies, f"/limits/topics/{topic}", MB):
        copies.begin(topic, 90)
        began_s = time.monotonic()
        copies.fleet.wait_online(topic, PARTITIONS)
        Fleet.wait_seconds(DIVIDED_S)
        copies.begin(free, 40)
        copies.fleet.wait_online(free, PARTITIONS)
        assert 40 * MB / copies.wait_copied(free) > 4 * MB
        assert copies.rate(topic, MEASURED_S) > (1 - ABOUT) * MB
        assert_kept(MB, copies.total(topic), began_s)
    copies.wait_copied(topic)


def test_a_limit_of_a_worker_holds_back_its_partitions_alone(copies: Copies, topic: str) -> None:
    with limited(copies, "/limits/workers/w1", MB):
        limited_s = time.monotonic()
        copies.begin(topic, 80)
        copies.fleet.wait_online(topic, PARTITIONS)
        owners = copies.fleet.owners(topic)
        of_w1 = [number for number, owner in owners.items() if owner == "w1"]
        of_w2 = [number for number, owner in owners.items() if owner == "w2"]
        assert len(of_w1) == len(of_w2) == PARTITIONS // 2
        each = 80 * MB // PARTITIONS
        eventually(
            lambda: all(copies.copied(topic)[number] == each for number in of_w2),
            COPIED_S,
            "what w2 holds is copied",
        )
        before, began_s = copies.copied(topic), time.monotonic()
        Fleet.wait_seconds(10.0)
        after, took_s = copies.copied(topic), time.monotonic() - began_s
        rate = sum(after[number] - before[number] for number in of_w1) / took_s
        assert rate > (1 - ABOUT) * MB
        assert_kept(MB, sum(after[number] for number in of_w1), limited_s)
    copies.wait_copied(topic)
