"""Memory of a worker's Python processes under a heavy load.

The topic is filled and copied at the same time and deletes its oldest records, on both sides, so that
the disk never holds more than a few gigabytes; the producer waits when the copy lags.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import requests

from ureplicator_bench.contenders import Ours
from ureplicator_bench.load import Filler, Profile
from ureplicator_bench.servers import Servers
from ureplicator_bench.usage import is_python, peak_rss_bytes
from ureplicator_demo.progress import Ends
from ureplicator_testkit.records.topics import create_topic

LIMIT_MB = 300
CHUNK = 20_000
MAX_LAG_BYTES = 600_000_000
"""Backlog before copying begins: buffers are full while a worker catches up."""
KEPT_BYTES = 128 * 1024 * 1024
TOPIC_CONFIG = {
    "retention.bytes": str(KEPT_BYTES),  # of each partition
    "segment.bytes": str(16 * 1024 * 1024),
    "file.delete.delay.ms": "1000",
}
STALL_S = 60.0


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    what: str
    pid: int
    python: bool
    peak_mb: float


@dataclass(frozen=True, slots=True)
class Memory:
    copied_gb: float
    seconds: float
    complete: bool
    processes: tuple[ProcessMemory, ...]

    @property
    def good(self) -> bool:
        return self.complete and all(
            process.peak_mb < LIMIT_MB for process in self.processes if process.python
        )


def measure(
    ours: Ours, servers: Servers, profile: Profile, *, progress: Callable[[str], None]
) -> Memory:
    topic, target = "bench-memory", servers.target.bootstrap
    for cluster in (servers.source, servers.target):
        create_topic(cluster.bootstrap, topic, partitions=profile.partitions, config=TOPIC_CONFIG)
    try:
        filler = Filler(servers.source.bootstrap, topic, profile)
        ahead = min(MAX_LAG_BYTES // profile.size, profile.records)
        filler.add(ahead)
        ours.start([topic], profile)
        began = time.monotonic()
        copied = _copy(
            ours, filler, ahead, Ends(target, topic, profile.partitions), profile, progress
        )
        return Memory(
            copied_gb=copied * profile.size / 1e9,
            seconds=time.monotonic() - began,
            complete=copied >= profile.records,
            processes=_processes(ours),
        )
    finally:
        ours.stop()


def _copy(
    ours: Ours,
    filler: Filler,
    filled: int,
    target: Ends,
    profile: Profile,
    progress: Callable[[str], None],
) -> int:
    max_lag = MAX_LAG_BYTES // profile.size
    reported = copied = 0
    moved = time.monotonic()
    while copied < profile.records:
        if filled < profile.records and filled - copied < max_lag:
            count = min(CHUNK, profile.records - filled)
            filler.add(count)
            filled += count
        else:
            time.sleep(0.05)
        before, copied = copied, target.total()
        now = time.monotonic()
        moved = now if copied > before else moved
        if now - moved > STALL_S:
            progress(f"no progress: {ours.wrong()}")
            return copied
        if copied * profile.size // 10**9 > reported:
            reported = copied * profile.size // 10**9
            progress(f"copied {reported} GB")
    return copied


def _processes(ours: Ours) -> tuple[ProcessMemory, ...]:
    worker = ours.worker()
    status = requests.get(ours.pages().status, timeout=10).json()
    names = {slot["pid"]: f"copier of slot {slot['slot']}" for slot in status["slots"]}
    names[worker.pid] = "driver"
    found = []
    for pid in worker.tree():
        python = is_python(pid)
        what = names.get(pid) or ("Python process of Spark" if python else "JVM")
        found.append(ProcessMemory(what, pid, python, peak_rss_bytes(pid) / 1e6))
    return tuple(found)
