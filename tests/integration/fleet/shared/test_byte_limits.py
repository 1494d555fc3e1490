"""Byte limits of a route, a topic and a worker on real clusters: set, raised and removed while records are
copied."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
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
SHOWN_S = 15.0
"""More than a division."""
STEADY_S = 3.0
"""Time after which the part that may be copied at once, at a start or a new limit, is copied."""
MEASURED_S = 8.0
ARRIVAL_POLL_S = 0.1
THROTTLED_S = 3.0
BURSTS_S = 1.0
"""Half a second of the limit on each of two workers."""
FETCHED = MB
"""Bytes that were fetched by both workers before the limit was known."""
ABOUT = 0.25
"""Tolerance: beside other tests, records that were fetched in time are produced late."""


class Copies:
    def __init__(self, fleet: Fleet, source: KafkaCluster, target: KafkaCluster) -> None:
        self.fleet, self.source, self.target = fleet, source, target

    def begin(self, topic: str, size_mb: int, *, partitions: int = PARTITIONS) -> float:
        """A topic with so much to copy, spread evenly; returns the time before which nothing was copied."""
        create_topic(self.source.bootstrap, topic, partitions=partitions)
        value = random.Random(1).randbytes(RECORD_BYTES)  # noqa: S311
        count = size_mb * MB // RECORD_BYTES
        records = (NewRecord(value, None, number % partitions) for number in range(count))
        produce(self.source.bootstrap, topic, records)
        began_s = time.monotonic()
        self.fleet.whitelist(topic)
        return began_s

    def limit(self, path: str, rate: int) -> None:
        self.fleet.rest("PUT", path, json={"bytesPerSecond": rate})

    def clear(self, path: str) -> None:
        self.fleet.rest("DELETE", path)

    def copied(self, topic: str) -> dict[int, int]:
        """Bytes of each partition at the target; none before the topic is there."""
        found = offsets(self.target.bootstrap, topic)
        return {number: end * RECORD_BYTES for number, (_, end) in found.items()}

    def rate(self, topic: str) -> float:
        """Bytes per second for a while, from the end of one fetch to that of another: all of a fetch arrives
        at once."""
        began, began_s = self._arrival(topic)
        Fleet.wait_seconds(MEASURED_S)
        ended, ended_s = self._arrival(topic)
        return (ended - began) / (ended_s - began_s)

    def _arrival(self, topic: str) -> tuple[int, float]:
        """Bytes when the next ones have arrived, and the time."""
        before = self.total(topic)
        eventually(
            lambda: self.total(topic) != before, COPIED_S, "records arrive", poll_s=ARRIVAL_POLL_S
        )
        return self.total(topic), time.monotonic()

    def total(self, topic: str) -> int:
        return sum(self.copied(topic).values())

    def wait_copied(self, topic: str) -> float:
        """Wait until both logs end alike; returns the seconds."""
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
    """Compare what was copied with the limit. It is exact on average since it was set: whatever was late
    comes within it."""
    assert copied < rate * (time.monotonic() - began_s + BURSTS_S) * 1.1 + FETCHED


@contextmanager
def limited(copies: Copies, path: str, rate: int) -> Iterator[None]:
    copies.limit(path, rate)
    try:
        yield
    finally:
        copies.clear(path)


def test_a_limit_of_a_route_is_kept_raised_and_removed(copies: Copies, topic: str) -> None:
    with limited(copies, ROUTE, MB):
        began_s = copies.begin(topic, 100)
        copies.fleet.wait_online(topic, PARTITIONS)
        Fleet.wait_seconds(STEADY_S)
        assert copies.rate(topic) > (1 - ABOUT) * MB
        assert_kept(MB, copies.total(topic), began_s)
        eventually(lambda: _is_shown(copies.fleet, MB), SHOWN_S, "the limit is shown as used")
        throttled = [_throttled_s(copies.fleet.status(worker)) for worker in ("w1", "w2")]
        assert min(throttled) > THROTTLED_S
        copies.limit(ROUTE, 3 * MB)
        raised_s, before = time.monotonic(), copies.total(topic)
        Fleet.wait_seconds(STEADY_S)
        assert copies.rate(topic) > (1 - ABOUT) * 3 * MB
        assert_kept(3 * MB, copies.total(topic) - before, raised_s)
    left = 100 * MB - copies.total(topic)
    assert left / copies.wait_copied(topic) > 6 * MB
    reasons = [
        event["reason"] for event in copies.fleet.rest("GET", "/history?kind=switch")["history"]
    ]
    assert reasons[:3] == [
        "byte limit of route source.target removed",
        "byte limit of route source.target set to 3000000 bytes/s",
        "byte limit of route source.target set to 1000000 bytes/s",
    ]


def _is_shown(fleet: Fleet, rate: int) -> bool:
    """The rate that was measured over the last division is about the limit."""
    (shown,) = fleet.rest("GET", "/limits")["limits"]
    return abs(float(shown["measuredBytesPerSecond"]) / rate - 1) < ABOUT


def _throttled_s(status: Any) -> float:
    slots = status["limits"].values()
    return max(float(use["throttledSeconds"]) for slot in slots for use in slot.values())


def test_only_the_topic_with_a_limit_is_held_back(copies: Copies, topic: str) -> None:
    free = f"{topic}-free"
    with limited(copies, f"/limits/topics/{topic}", MB):
        began_s = copies.begin(topic, 40)
        copies.fleet.wait_online(topic, PARTITIONS)
        Fleet.wait_seconds(STEADY_S)
        copies.begin(free, 20)
        copies.fleet.wait_online(free, PARTITIONS)
        assert 20 * MB / copies.wait_copied(free) > 2 * MB
        assert copies.rate(topic) > (1 - ABOUT) * MB
        assert_kept(MB, copies.total(topic), began_s)
    copies.wait_copied(topic)


def test_a_limit_of_a_worker_holds_back_its_partitions_alone(copies: Copies, topic: str) -> None:
    with limited(copies, "/limits/workers/w1", MB):
        limited_s = copies.begin(topic, 48)
        copies.fleet.wait_online(topic, PARTITIONS)
        began_s = time.monotonic()
        owners = copies.fleet.owners(topic)
        of_w1 = [number for number, owner in owners.items() if owner == "w1"]
        of_w2 = [number for number, owner in owners.items() if owner == "w2"]
        assert len(of_w1) == len(of_w2) == PARTITIONS // 2
        each = 48 * MB // PARTITIONS
        eventually(
            lambda: all(copies.copied(topic)[number] == each for number in of_w2),
            COPIED_S,
            "what w2 holds is copied",
        )
        Fleet.wait_seconds(MEASURED_S)
        copied, took_s = copies.copied(topic), time.monotonic() - began_s
        of_limited = sum(copied[number] for number in of_w1)
        assert of_limited > (1 - ABOUT) * MB * took_s, (
            "on average: a fetch too large is paid for later"
        )
        assert_kept(MB, of_limited, limited_s)
    copies.wait_copied(topic)
