"""Lag under a steady load: 50 and 80 % of what a replicator can sustain.

A full topic shows throughput, and a trickle shows latency; users run between the two. So a producer
sends at a fixed rate, whatever the replicator does (open loop), and the lag is sampled as time: record
number N counts as late by the time from when the source had N records until the target had N. The
end offsets of both clusters are polled for that, which costs little at any rate; a consumer that reads
everything would compete for the processor.

The capacity is measured the same way, on the same machine, with the producer at full speed: copying
competes with producing here, as it does not on separate machines. Lags are comparable at the same rate only,
so contenders can share one: parts of the smallest of their capacities.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ureplicator_bench.contenders import Contender
from ureplicator_bench.load import Filler, Profile
from ureplicator_bench.servers import Servers
from ureplicator_bench.usage import quantile
from ureplicator_demo.progress import Ends
from ureplicator_testkit.servers.processes import eventually

POLL_INTERVAL_S = 0.004
TICK_S = 0.005
CAPACITY_S = 20.0
WARM_S = 10.0
PARTS = (0.5, 0.8)
UNLIMITED = 0
TOPIC_CONFIG = {"retention.bytes": str(1 << 30), "segment.bytes": str(64 << 20)}
"""Settings of each partition: more than a backlog while the capacity is measured, less than would fill
a disk."""

Sample = tuple[float, int]
"""Time in seconds, records in the log by then."""


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Lag at one rate. `produced_per_s`: the rate that the producer reached."""

    part: float
    wanted_per_s: float
    produced_per_s: float
    p50_ms: float
    p99_ms: float
    max_ms: float

    def __str__(self) -> str:
        return (
            f"{self.part:.0%} is {self.produced_per_s:,.0f} records/s:"
            f" p50 {self.p50_ms:.0f} ms, p99 {self.p99_ms:.0f} ms, max {self.max_ms:.0f} ms"
        )


def shared(capacities: Mapping[str, float], sharing: Collection[str]) -> dict[str, float]:
    """Capacity of each contender that its rates are parts of: of those that share it the smallest."""
    smallest = min((capacities[name] for name in sharing), default=0.0)
    return {**capacities, **dict.fromkeys(sharing, smallest)}


def capacity(contender: Contender, servers: Servers, topic: str, profile: Profile) -> float:
    """Records a second that are copied beside a producer at full speed."""
    try:
        return _at_full_speed(contender, servers, topic, profile)
    finally:
        contender.stop()


def measure(
    contender: Contender,
    servers: Servers,
    topic: str,
    profile: Profile,
    *,
    capacity: float,
    seconds: float,
) -> list[OpenLoop]:
    """Lag at each part of this capacity for so many seconds, in one run of the contender, after it has copied
    at full speed."""
    try:
        _at_full_speed(contender, servers, topic, profile)
        return [_at(part, capacity, servers, topic, profile, seconds=seconds) for part in PARTS]
    finally:
        contender.stop()


def _at_full_speed(contender: Contender, servers: Servers, topic: str, profile: Profile) -> float:
    """Start it, and return the records a second that it copies when it is warm."""
    contender.start([topic], profile)
    with producing(servers, topic, profile, UNLIMITED):
        ends = Ends(servers.target.bootstrap, topic, profile.partitions)
        eventually(lambda: ends.total() > 0, 120, f"{contender.name} copies", poll_s=0.2)
        time.sleep(WARM_S)
        return _rate(_sampled(ends, CAPACITY_S))


def _at(
    part: float, capacity: float, servers: Servers, topic: str, profile: Profile, *, seconds: float
) -> OpenLoop:
    source, target = (
        Ends(cluster.bootstrap, topic, profile.partitions)
        for cluster in (servers.source, servers.target)
    )
    eventually(lambda: target.total() >= source.total(), 300, "the backlog is copied", poll_s=0.1)
    with producing(servers, topic, profile, round(capacity * part)):
        time.sleep(WARM_S)
        copied: list[Sample] = []
        watch = threading.Thread(target=lambda: copied.extend(_sampled(target, seconds + 2)))
        watch.start()
        produced = _sampled(source, seconds)
        watch.join()
    late = sorted(lags_s(produced, copied))
    if not late:
        raise AssertionError("the target never reached what was produced")
    return OpenLoop(
        part=part,
        wanted_per_s=capacity * part,
        produced_per_s=_rate(produced),
        p50_ms=quantile(late, 0.5) * 1_000,
        p99_ms=quantile(late, 0.99) * 1_000,
        max_ms=late[-1] * 1_000,
    )


def lags_s(produced: Sequence[Sample], copied: Sequence[Sample]) -> Iterator[float]:
    """Lag in seconds of each sample of the source.

    Counts of the target grow; one that is never reached counts as late until the last sample.
    """
    counts = [count for _, count in copied]
    for at_s, count in produced:
        index = bisect_left(counts, count)
        reached_s = copied[min(index, len(copied) - 1)][0]
        yield max(0.0, reached_s - at_s)


def _sampled(ends: Ends, seconds: float) -> list[Sample]:
    """The time is that after the response: both clusters are sampled alike."""
    samples: list[Sample] = []
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        count = ends.total()
        samples.append((time.monotonic(), count))
        time.sleep(POLL_INTERVAL_S)
    return samples


def _rate(samples: Sequence[Sample]) -> float:
    (began_s, first), (ended_s, last) = samples[0], samples[-1]
    return (last - first) / (ended_s - began_s)


@contextmanager
def producing(servers: Servers, topic: str, profile: Profile, per_s: int) -> Iterator[None]:
    """A process that produces until the block ends."""
    details = (str(detail) for detail in (profile.partitions, profile.size, profile.codec, per_s))
    command = [sys.executable, "-m", __name__, servers.source.bootstrap, topic, *details]
    producer = subprocess.Popen(command)  # noqa: S603
    try:
        yield
        if producer.poll() is not None:
            raise AssertionError(f"the producer ended with {producer.returncode}")
    finally:
        producer.kill()
        producer.wait()


def produce(bootstrap: str, topic: str, profile: Profile, per_s: int) -> None:
    """Send `per_s` records a second in ticks, or as fast as possible; until the process is killed."""
    filler = Filler(bootstrap, topic, profile, linger_ms=5)
    began_s, sent = time.monotonic(), 0
    while True:
        due = round((time.monotonic() - began_s) * per_s) - sent if per_s else 10_000
        if due > 0:
            filler.send(due)
            sent += due
        if per_s:
            time.sleep(TICK_S)


if __name__ == "__main__":
    where, name, partitions, size, codec, rate = sys.argv[1:]
    load = Profile("load", 0, int(size), codec, int(partitions))
    produce(where, name, load, int(rate))
