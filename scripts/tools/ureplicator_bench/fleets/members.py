"""Workers that join, leave and are replaced under load: gaps of all partitions, and what is lost or repeated.

Two controllers and two workers; a load on every partition, whose records carry numbers. At first nothing
happens. A third worker starts, which takes all cores of a small machine for seconds, so no limit is for
that; it joins, that is, gets its share; it leaves; then workers and controllers are stopped and started
again, one at a time, as in a rolling upgrade. The target's brokers record when each record arrived
(`handover`), so the gaps between the records of a partition show how long it stood still.

A worker that is back within the delay keeps its partitions: they stand still while it starts.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ureplicator_bench.figures import Figure
from ureplicator_bench.fleets.handover import Numbered
from ureplicator_bench.servers import running
from ureplicator_bench.usage import quantile
from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.records.comparison import ConsumedRecord
from ureplicator_testkit.records.topics import create_topic, offsets, read_all
from ureplicator_testkit.servers.processes import eventually, wait_for_http

PARTITIONS = 12
OTHERS_LIMIT_MS = 50.0
"""Limit for partitions that do not move, p99.9."""
SETTLED_S = 3.0
"""Time after each change, so that it shows in no other one."""
WARM_UP_S = 60.0
"""Brokers that have just begun stop the records of all partitions for up to half a second."""
NOTHING_S = 10.0
CHANGE_S = 120.0
POLL_S = 0.5
"""Calls of REST take processor time of the same machine."""
DELAYS = {"rebalance_delay_s": 120, "join_delay_s": 10}
"""The defaults: a worker is ready before it gets its share."""
Log = Mapping[int, Sequence[ConsumedRecord]]


@dataclass(frozen=True, slots=True)
class Change:
    """An event, from when to when, and the owners before and after it."""

    what: str
    began_ms: float
    ended_ms: float
    before: Mapping[int, str]
    after: Mapping[int, str]

    @property
    def moved(self) -> set[int]:
        return {number for number, owner in self.after.items() if self.before[number] != owner}


def figures(folder: Path) -> list[Figure]:
    """Figures on servers of its own."""
    with running(folder) as servers:
        source, target = servers.source.bootstrap, servers.target.bootstrap
        hosts = servers.zookeeper.hosts
        fleet = Fleet(
            name="bench",
            folder=folder,
            zookeeper=hosts,
            source=source,
            target=target,
            controller=DELAYS,
        )
        try:
            fleet.start(controllers=2, workers=2)
            return measure(fleet, source, target, "bench-members")
        finally:
            fleet.kill()


def measure(fleet: Fleet, source: str, target: str, topic: str) -> list[Figure]:
    """A running fleet of two workers and two controllers."""
    create_topic(source, topic, partitions=PARTITIONS)
    config = {"message.timestamp.type": "LogAppendTime"}
    create_topic(target, topic, partitions=PARTITIONS, config=config)
    fleet.whitelist(topic)
    fleet.wait_online(topic, PARTITIONS)
    with Numbered(source, topic, PARTITIONS):
        eventually(lambda: _copied(target, topic) > 20 * PARTITIONS, 60, "records are copied")
        time.sleep(WARM_UP_S)
        changes = list(_changes(fleet, topic))
    ends = {number: end for number, (_, end) in offsets(source, topic).items()}
    eventually(lambda: _copied(target, topic) >= sum(ends.values()), 60, "all is copied")
    return list(_judged(changes, ends, read_all(target, topic)))


def _copied(target: str, topic: str) -> int:
    return sum(end for _, end in offsets(target, topic).values())


def _changes(fleet: Fleet, topic: str) -> Iterator[Change]:
    with _change(fleet, topic, "nothing happens") as made:
        time.sleep(NOTHING_S)
    yield from made
    with _change(fleet, topic, "a worker starts") as made:
        fleet.start_worker("w3")
        url = f"http://127.0.0.1:{fleet.port_of('w3')}/ready"
        wait_for_http(url, CHANGE_S, process=fleet.workers["w3"])
    yield from made
    with _change(fleet, topic, "it joins") as made:
        eventually(
            lambda: _share(fleet, topic, "w3") == PARTITIONS // 3,
            CHANGE_S,
            "w3 has its share",
            poll_s=POLL_S,
        )
    yield from made
    with _change(fleet, topic, "it leaves") as made:
        fleet.workers["w3"].send(signal.SIGUSR1)
        fleet.workers["w3"].send(signal.SIGTERM)
        assert fleet.workers["w3"].wait(CHANGE_S) == 0
        eventually(lambda: _share(fleet, topic, "w3") == 0, CHANGE_S, "its partitions moved")
        fleet.wait_online(topic, PARTITIONS)
    yield from made
    with _change(fleet, topic, "all are replaced in turn") as made:
        _replace_all(fleet, topic)
    yield from made


@contextmanager
def _change(fleet: Fleet, topic: str, what: str) -> Iterator[list[Change]]:
    made: list[Change] = []
    before, began_ms = fleet.owners(topic), time.time() * 1_000
    yield made
    time.sleep(SETTLED_S)
    made.append(Change(what, began_ms, time.time() * 1_000, before, fleet.owners(topic)))


def _share(fleet: Fleet, topic: str, worker: str) -> int:
    return list(fleet.owners(topic).values()).count(worker)


def _replace_all(fleet: Fleet, topic: str) -> None:
    for worker in ("w1", "w2"):
        assert fleet.workers[worker].terminate() == 0
        fleet.start_worker(worker)
        fleet.wait_workers("w1", "w2")
        fleet.wait_online(topic, PARTITIONS, deadline_s=CHANGE_S)
    for controller in ("c1", "c2"):
        assert fleet.controllers[controller].terminate() == 0
        fleet.start_controller(controller)


def _judged(changes: Sequence[Change], ends: Mapping[int, int], log: Log) -> Iterator[Figure]:
    for change in changes:
        yield from _gaps(change, log)
    faults = sum(
        [record.value for record in log[number]] != [b"%d" % n for n in range(end)]
        for number, end in ends.items()
    )
    yield Figure("partitions with a record missing, repeated or misplaced", faults, "", 1)


def _gaps(change: Change, log: Log) -> Iterator[Figure]:
    """Gaps of what moved, and of all others. Who is replaced owns what did not move."""
    moved = sorted(change.moved)
    others = sorted(set(change.before) - set(moved))
    yield Figure(f"{change.what}: partitions that move", len(moved), "")
    if moved:
        longest = max(max(_of(change, log, number)) for number in moved)
        yield Figure(f"{change.what}: longest gap of these", longest, "ms")
    gaps = sorted(gap for number in others for gap in _of(change, log, number))
    limit_ms = OTHERS_LIMIT_MS if moved else None
    yield Figure(f"{change.what}: gaps of others, p99.9", quantile(gaps, 0.999), "ms", limit_ms)
    yield Figure(f"{change.what}: longest gap of others", gaps[-1], "ms")


def _of(change: Change, log: Log, number: int) -> list[float]:
    """Times between two records, in milliseconds, of which the later arrived during the change."""
    times_ms = [record.timestamp for record in log[number]]
    return [
        float(after - before)
        for before, after in pairwise(times_ms)
        if change.began_ms <= after <= change.ended_ms
    ]
