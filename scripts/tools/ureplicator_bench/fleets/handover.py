"""Gap in copying when a partition moves between two live workers, for both deliveries.

Two workers, a load on every partition, and one worker after the other drained and taken back over
REST: each time its partitions move to the other, several at once. The target's brokers record the
append time of each record, so the gap of a move is the longest time between two records of the
partition around it: from the last one of the old owner to the first of the new. Every record carries
its number: none may be missing, none repeated.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Producer

from ureplicator_bench.figures import Figure
from ureplicator_bench.servers import Servers, running
from ureplicator_bench.usage import quantile
from ureplicator_common.model import Delivery
from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.records.topics import QUIET, create_topic, offsets, read_all
from ureplicator_testkit.servers.processes import eventually

PER_S = 200
"""Records per second and partition: one each 5 ms, which is the precision of a gap."""
PARTITIONS = 16
MOVES = 1_000
"""Moves of a partition, of each delivery."""
LIMIT_MS = 500.0
QUIET_S = 0.5
"""Time after each round: the moved partitions are copied evenly again, so the load affects no other gap."""


@dataclass(frozen=True, slots=True)
class HandoverTimes:
    """Gaps in milliseconds over all moves; `faults`: partitions with missing, repeated or late records."""

    moves: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float
    faults: int


@dataclass(frozen=True, slots=True)
class _Move:
    partition: int
    began_ms: float
    ended_ms: float


class Numbered:
    """A load: each partition gets consecutive numbers at an even pace."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, *, per_s: float = PER_S
    ) -> None:
        settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "linger.ms": 0}
        self._producer = Producer({**settings, "enable.idempotence": True, **QUIET})
        self._topic, self._partitions, self._per_s = topic, partitions, per_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="numbered load")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(60) == 0

    def _run(self) -> None:
        began, number = time.monotonic(), 0
        while not self._stopping.is_set():
            for partition in range(self._partitions):
                self._producer.produce(self._topic, b"%d" % number, partition=partition)
            self._producer.poll(0)
            number += 1
            self._stopping.wait(max(0.0, began + number / self._per_s - time.monotonic()))


def figures(folder: Path) -> Iterator[Figure]:
    """Figures on servers of its own, with a fleet of a controller and two workers of one slot each."""
    with running(folder) as servers:
        for delivery in Delivery:
            yield from _of(delivery, servers, folder)


def _of(delivery: Delivery, servers: Servers, folder: Path) -> Iterator[Figure]:
    source, target = servers.source.bootstrap, servers.target.bootstrap
    own = folder / delivery
    own.mkdir()
    fleet = Fleet(
        name=f"bench-{delivery}",
        folder=own,
        zookeeper=servers.zookeeper.hosts,
        source=source,
        target=target,
        route={"delivery": delivery.value},
    )
    topic = f"bench-handover-{delivery}"
    try:
        fleet.start(workers=2)
        found = measure(fleet, source, target, topic, partitions=PARTITIONS, moves=MOVES)
    finally:
        fleet.kill()
    yield Figure(f"{delivery}: moves of a partition between two workers", found.moves, "")
    yield Figure(f"{delivery}: gap of a partition, median", found.p50_ms, "ms")
    yield Figure(f"{delivery}: gap of a partition, p90", found.p90_ms, "ms")
    yield Figure(f"{delivery}: gap of a partition, p99", found.p99_ms, "ms", LIMIT_MS)
    yield Figure(f"{delivery}: gap of a partition, p99.9", found.p999_ms, "ms")
    yield Figure(f"{delivery}: longest gap", found.max_ms, "ms")
    what = "partitions with a record missing, repeated or misplaced"
    yield Figure(f"{delivery}: {what}", found.faults, "", 1)


def measure(
    fleet: Fleet, source: str, target: str, topic: str, *, partitions: int, moves: int
) -> HandoverTimes:
    """A running fleet of two workers, w1 and w2, makes this many moves, or a few more."""
    create_topic(source, topic, partitions=partitions)
    config = {"message.timestamp.type": "LogAppendTime"}
    create_topic(target, topic, partitions=partitions, config=config)
    fleet.whitelist(topic)
    fleet.wait_online(topic, partitions)
    made: list[_Move] = []
    with Numbered(source, topic, partitions):
        eventually(lambda: _copied(target, topic) > 20 * partitions, 60, "records are copied")
        turn = 0
        while len(made) < moves:
            made += _round(fleet, topic, ("w1", "w2")[turn % 2])
            turn += 1
    ends = offsets(source, topic)
    wanted = sum(end for _, end in ends.values())
    eventually(lambda: _copied(target, topic) >= wanted, 60, "all is copied")
    return _judge(made, {number: end for number, (_, end) in ends.items()}, target, topic)


def _copied(target: str, topic: str) -> int:
    return sum(end for _, end in offsets(target, topic).values())


def _round(fleet: Fleet, topic: str, worker: str) -> list[_Move]:
    """All partitions of a worker move to the other; then it gets its share back."""
    other = "w2" if worker == "w1" else "w1"
    drained = _shift(
        fleet, topic, "DELETE", worker, lambda owners: owners == dict.fromkeys(owners, other)
    )
    back = _shift(
        fleet, topic, "POST", worker, lambda owners: list(owners.values()).count(worker) > 1
    )
    return drained + back


def _shift(
    fleet: Fleet, topic: str, verb: str, worker: str, settled: Callable[[dict[int, str]], bool]
) -> list[_Move]:
    """One call, until all partitions are at their new owners."""
    before = fleet.owners(topic)
    began_ms = time.time() * 1_000
    fleet.rest(verb, f"/instances/{worker}")

    def after() -> dict[int, str]:
        owners = fleet.owners(topic)
        return owners if len(owners) == len(before) and settled(owners) else {}

    owners = eventually(after, 60, f"{verb} {worker} is done", poll_s=0.1)
    time.sleep(QUIET_S)
    ended_ms = time.time() * 1_000
    moved = [number for number, owner in owners.items() if before[number] != owner]
    return [_Move(number, began_ms, ended_ms) for number in moved]


def _judge(
    moves: Sequence[_Move], ends: Mapping[int, int], target: str, topic: str
) -> HandoverTimes:
    log = read_all(target, topic)
    faults = sum(
        [record.value for record in log[number]] != [b"%d" % n for n in range(end)]
        for number, end in ends.items()
    )
    gaps = sorted(_gap_ms([record.timestamp for record in log[m.partition]], m) for m in moves)

    p50, p90, p99, p999 = (quantile(gaps, part) for part in (0.5, 0.9, 0.99, 0.999))
    return HandoverTimes(len(gaps), p50, p90, p99, p999, gaps[-1], faults)


def _gap_ms(times_ms: Sequence[int], move: _Move) -> float:
    """The longest gap between two records that touches the time of the move."""
    return max(
        after - before
        for before, after in pairwise(times_ms)
        if move.began_ms <= after and before <= move.ended_ms
    )
