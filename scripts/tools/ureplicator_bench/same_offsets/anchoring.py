"""A source log that begins far up, filled at the target while another topic is copied under a steady load.

    other topic  ==== without ============= beside filling =============>
    far topic                  | whitelisted | fillers ... | its records

The latency of the other topic is probed meanwhile (`delays.latency`), and the processes are watched.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

from ureplicator_bench.contenders import Ours
from ureplicator_bench.delays import latency, open_loop
from ureplicator_bench.delays.latency import Latency, Phase, Sender
from ureplicator_bench.figures import Figure
from ureplicator_bench.load import Profile
from ureplicator_bench.servers import Servers
from ureplicator_bench.usage import PeakRss, cpu_s
from ureplicator_demo.progress import Ends
from ureplicator_testkit.records.topics import NewRecord, create_topic, produce
from ureplicator_testkit.servers.far_logs import begin_logs
from ureplicator_worker.copier.raw.gap_filling import RESERVE

FAR, PROBED, LOADED = "bench-far", "bench-far-probed", "bench-far-loaded"
RECORDS = 1_000
LOAD_PER_S = 5_000
FILLED_AT_LEAST_PER_S = 100_000
WARM_S = 30.0
WITHOUT_S = 20.0
COPIED_S = 60.0
WITHOUT, BESIDE = "without filling", "beside filling"


def prepare(servers: Servers, offset: int) -> None:
    """The far topic at the source, with its first record at this offset. Its brokers are restarted."""
    source = servers.source.bootstrap
    create_topic(source, FAR)
    begin_logs(servers.source, FAR, {0: offset})
    produce(source, FAR, [NewRecord(b"%d" % number) for number in range(RECORDS)])


def measure(
    ours: Ours, servers: Servers, profile: Profile, *, offset: int
) -> tuple[list[Latency], list[Figure]]:
    """`profile`: of the other topic."""
    source, target = servers.source.bootstrap, servers.target.bootstrap
    plain = f"{PROBED}-plain"
    for bootstrap, topic in ((source, PROBED), (target, PROBED), (target, plain)):
        create_topic(bootstrap, topic, partitions=profile.partitions)
    for bootstrap in (source, target):
        config = open_loop.TOPIC_CONFIG
        create_topic(bootstrap, LOADED, partitions=profile.partitions, config=config)
    filling = _Filling(ours, servers, profile, offset)
    with open_loop.producing(servers, LOADED, profile, LOAD_PER_S):
        topics = [PROBED, LOADED]
        late = latency.probed(ours, servers, topics, profile, phases=filling.phases)
    return late, filling.figures


class _Filling:
    """Phases of the probe, and what was measured in them."""

    def __init__(self, ours: Ours, servers: Servers, profile: Profile, offset: int) -> None:
        self._ours, self._servers, self._profile = ours, servers, profile
        self._offset = offset
        self._far = Ends(servers.target.bootstrap, FAR, 1)
        self.figures: list[Figure] = []

    def phases(self, sender: Sender) -> Iterator[Phase]:
        copied = Ends(self._servers.target.bootstrap, PROBED, self._profile.partitions)
        sender.run_until(lambda: copied.total() > 0, "copying begins")
        sender.run(WARM_S)
        yield self._watched(WITHOUT, partial(sender.run, WITHOUT_S))
        began_s = time.monotonic()
        self._ours.fleet.rest("POST", "/topics", {"topic": FAR})
        sender.run_until(lambda: self._far.total() > 0, "filling begins")
        filled = self._offset - RESERVE  # behind them it waits until brokers have stored the start
        first, first_s = self._far.total(), time.monotonic()
        yield self._watched(BESIDE, partial(self._wait, sender, filled))
        per_s = (filled - first) / (time.monotonic() - first_s)
        self._wait(sender, self._offset + RECORDS)
        took_s = time.monotonic() - began_s
        self.figures += [
            Figure("filling", per_s, "offsets/s"),
            Figure(f"whitelisted until copied, from {self._offset:,}", took_s, "s"),
        ]

    def _wait(self, sender: Sender, end: int) -> None:
        """Send until the target has all before this offset."""
        deadline_s = COPIED_S + self._offset / FILLED_AT_LEAST_PER_S
        what = f"the target has offsets up to {end:,}"
        sender.run_until(lambda: self._far.total() >= end, what, deadline_s=deadline_s)

    def _watched(self, name: str, send: Callable[[], None]) -> Phase:
        """A phase, and what the target's broker and the fleet take in it."""
        broker, fleet = self._servers.target.processes(), self._ours.processes()
        began_s, before = time.time(), (cpu_s(broker), cpu_s(fleet))
        with PeakRss(lambda: broker) as memory:
            send()
        ended_s, after = time.time(), (cpu_s(broker), cpu_s(fleet))
        cores = [(b - a) / (ended_s - began_s) for a, b in zip(before, after, strict=True)]
        self.figures += [
            Figure(f"target's broker, {name}", cores[0], "cores"),
            Figure(f"target's broker, {name}: peak memory", memory.bytes / 1e6, "MB"),
            Figure(f"fleet, {name}", cores[1], "cores"),
        ]
        return Phase(name, began_s, ended_s)
