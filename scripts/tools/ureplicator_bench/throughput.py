"""Throughput and processor time of copying a full topic.

From the first record at the target to the last; the start-up before that is reported separately. The
second half is also reported separately, because a JVM takes some seconds to start and to compile.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from ureplicator_bench.contenders import Contender
from ureplicator_bench.load import Profile
from ureplicator_bench.servers import Servers
from ureplicator_bench.usage import PeakRss, cpu_s, others_cpu_s, share
from ureplicator_demo.progress import Ends

POLL_INTERVAL_S = 0.02


@dataclass(frozen=True, slots=True)
class Throughput:
    """One measurement, or several together; bytes are those of the values, before compression. `start_s`,
    `start_cpu_s`: until the first record, of each start."""

    records: int
    size: int
    seconds: float
    start_s: float
    start_cpu_s: float
    second_half_records_per_s: float
    second_half_cpu_s: float
    cpu_s: float
    brokers_cpu_s: float
    others_cpu_s: float
    peak_rss_bytes: int
    finished: bool
    starts: int = 1

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds

    @property
    def mb_per_s(self) -> float:
        return self.records_per_s * self.size / 1e6

    @property
    def others_share(self) -> float:
        """Share of the machine used by unrelated programs."""
        return share(self.others_cpu_s, self.seconds)

    @property
    def cpu_s_per_gb(self) -> float:
        return self.cpu_s / (self.records * self.size / 1e9)

    @property
    def from_start_records_per_s(self) -> float:
        """Rate with the start, as whoever starts a fleet for this topic meets it."""
        return self.records / (self.starts * self.start_s + self.seconds)

    @property
    def from_start_cpu_s_per_gb(self) -> float:
        used_s = self.starts * self.start_cpu_s + self.cpu_s
        return used_s / (self.records * self.size / 1e9)

    @property
    def second_half_cpu_us(self) -> float:
        """Processor time for a record, in microseconds."""
        return self.second_half_cpu_s / (self.records / 2) * 1e6

    @property
    def core_hours_per_tb(self) -> float:
        return self.cpu_s_per_gb * 1_000 / 3_600

    @property
    def brokers_cpu_s_per_gb(self) -> float:
        return self.brokers_cpu_s / (self.records * self.size / 1e9)


def combined(results: Sequence[Throughput]) -> Throughput:
    """Several measurements of one contender as one: sums, and the highest memory."""
    return Throughput(
        records=sum(result.records for result in results),
        size=results[0].size,
        seconds=sum(result.seconds for result in results),
        start_s=sum(result.start_s for result in results) / len(results),
        start_cpu_s=sum(result.start_cpu_s for result in results) / len(results),
        second_half_records_per_s=sum(result.second_half_records_per_s for result in results)
        / len(results),
        second_half_cpu_s=sum(result.second_half_cpu_s for result in results),
        cpu_s=sum(result.cpu_s for result in results),
        brokers_cpu_s=sum(result.brokers_cpu_s for result in results),
        others_cpu_s=sum(result.others_cpu_s for result in results),
        peak_rss_bytes=max(result.peak_rss_bytes for result in results),
        finished=all(result.finished for result in results),
        starts=len(results),
    )


@dataclass(frozen=True, slots=True)
class _Sample:
    at_s: float
    copied: int
    cpu_s: float
    brokers_cpu_s: float
    others_cpu_s: float


def measure(
    contender: Contender,
    servers: Servers,
    topic: str,
    profile: Profile,
    *,
    deadline_s: float,
    passing: int,
) -> Throughput:
    """Start it, wait until all is copied or the time is up, and stop it.

    `passing`: records of the source that are copied. The others count too, as copied evenly among them.
    """
    part = passing / profile.records
    target = Ends(servers.target.bootstrap, topic, profile.partitions)
    began = time.monotonic()
    end = began + deadline_s

    def sample(copied: int) -> _Sample:
        used, brokers = cpu_s(contender.processes()), cpu_s(servers.brokers())
        others = others_cpu_s(used + brokers)
        return _Sample(time.monotonic(), copied, used, brokers, others)

    try:
        with PeakRss(contender.processes) as memory:
            contender.start([topic], profile)
            first = sample(_wait(contender, target, 1, end))
            half = sample(_wait(contender, target, (passing + first.copied) // 2, end))
            last = sample(_wait(contender, target, passing, end))
        if last.copied <= first.copied:
            nothing = f"{contender.name} copied nothing within {deadline_s:.0f} s"
            raise AssertionError(f"{nothing}: {contender.wrong()}")
    finally:
        contender.stop()
    return Throughput(
        records=round((last.copied - first.copied) / part),
        size=profile.size,
        seconds=last.at_s - first.at_s,
        start_s=first.at_s - began,
        start_cpu_s=first.cpu_s,
        second_half_records_per_s=_rate(half, last) / part,
        second_half_cpu_s=(last.cpu_s - half.cpu_s) * _to_a_half(first, half, last),
        cpu_s=last.cpu_s - first.cpu_s,
        brokers_cpu_s=last.brokers_cpu_s - first.brokers_cpu_s,
        others_cpu_s=last.others_cpu_s - first.others_cpu_s,
        peak_rss_bytes=memory.bytes,
        finished=last.copied >= passing,
    )


def _to_a_half(first: _Sample, half: _Sample, last: _Sample) -> float:
    """Factor for what was measured since `half`, which was noticed some records late."""
    return (last.copied - first.copied) / (2 * max(last.copied - half.copied, 1))


def _rate(one: _Sample, other: _Sample) -> float:
    return (other.copied - one.copied) / max(other.at_s - one.at_s, 1e-9)


def _wait(contender: Contender, target: Ends, wanted: int, end: float) -> int:
    """Records present when there are enough, or when the time is up."""
    while True:
        for process in contender.processes():
            process.assert_running()
        copied = target.total()
        if copied >= wanted or time.monotonic() > end:
            return copied
        time.sleep(POLL_INTERVAL_S)
