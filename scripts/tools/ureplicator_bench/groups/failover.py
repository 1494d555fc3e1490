"""Records that a consumer reads again when it goes on at the target, beside those of MirrorMaker 2.

Groups exist and have read a first record when a topic is filled and copied. Then each commits at the source,
so many records before the end, and stops. Here `POST /failover` writes its offsets to the target, there the
checkpoint connector with `sync.group.offsets`. A plain consumer of the group starts at the target and reads
to the end. Each record says where it lies at the source, so what it has read before, and what is missing,
is counted record by record. Beside this topic are a transactional and a compacted one, with a gap at nearly
each record (`gaps`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer

from ureplicator_bench.contenders import Contender, MirrorMaker, Ours
from ureplicator_bench.figures import Figure
from ureplicator_bench.groups import gaps
from ureplicator_bench.load import Profile
from ureplicator_bench.servers import Servers, running
from ureplicator_cli.rest_client import RestFailure
from ureplicator_common.model import Delivery
from ureplicator_demo.progress import Ends
from ureplicator_testkit.records.consumers import alter_offsets, group_offsets
from ureplicator_testkit.records.topics import QUIET, NewRecord, create_topic, produce
from ureplicator_testkit.servers.processes import eventually

LAGS = (0, 1_000, 100_000)
PROFILE = Profile("failover", records=400_000, size=16, partitions=4)
EACH = PROFILE.records // PROFILE.partitions
COPY_S, SYNC_S, READ_S = 180.0, 300.0, 120.0
STEADY_S = 70.0
"""Time without a change of the offsets at the target, after which they are taken as synced. MirrorMaker 2
writes what is left of its offset syncs once a minute (`offset.flush.interval.ms`)."""
READY = frozenset({"synced", "ahead on the target"})

Offsets = Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class Switch:
    """A consumer that has changed clusters."""

    contender: str
    what: str
    again: int
    missing: int

    def figures(self) -> Iterator[Figure]:
        what = f"{self.contender}, {self.what}"
        ours = self.contender.startswith("ureplicator")
        yield Figure(f"{what}: read again", self.again, "records", 1 if ours else None)
        yield Figure(f"{what}: missing", self.missing, "records", 1)


def figures(folder: Path, *, progress: Callable[[str], None]) -> Iterator[Figure]:
    """All of them, as they are measured."""
    with running(folder) as servers:
        ours = Ours(
            servers,
            folder,
            delivery=Delivery.AT_LEAST_ONCE,
            kind="failover",
            route={"offset_map": True},
        )
        theirs = MirrorMaker(servers, folder, tuned=True, groups="bench-.*")
        yield from _switched(ours, "bench-ours", servers, progress, sync=_apply(ours))
        yield from _with_gaps(ours, "bench-gaps", servers, progress)
        yield from _switched(theirs, "bench-theirs", servers, progress, sync=_await_steady)


Sync = Callable[[Servers, Mapping[str, Offsets]], None]
"""A function that has the offsets of these groups at the target, once their consumers have stopped."""


def _switched(
    contender: Contender,
    topic: str,
    servers: Servers,
    progress: Callable[[str], None],
    *,
    sync: Sync,
) -> Iterator[Figure]:
    progress(f"{contender.name}: copying {PROFILE.records:,} records")
    groups = {f"{topic}-{lag}": _stopped(topic, lag) for lag in LAGS}
    for cluster in (servers.source, servers.target):
        create_topic(cluster.bootstrap, topic, partitions=PROFILE.partitions)
    _commit(servers, dict.fromkeys(groups, _all_at(topic, 0)))
    contender.start([topic], PROFILE)
    try:
        _fill(servers, topic, first=0, end=1)
        _commit(servers, dict.fromkeys(groups, _all_at(topic, 1)))
        progress(f"{contender.name}: the groups follow")
        sync(servers, dict.fromkeys(groups, _all_at(topic, 1)))
        _fill(servers, topic, first=1, end=EACH)
        _commit(servers, groups)
        sync(servers, groups)
        for lag, (group, offsets) in zip(LAGS, groups.items(), strict=True):
            progress(f"{contender.name}: a consumer with a lag of {lag:,} goes on at the target")
            left = {number: set(range(at, EACH)) for (_, number), at in offsets.items()}
            found = _read(servers, topic, group, left)
            yield from Switch(contender.name, f"lag {lag:,}", *found).figures()
    finally:
        contender.stop()


def _with_gaps(
    ours: Ours, prefix: str, servers: Servers, progress: Callable[[str], None]
) -> Iterator[Figure]:
    progress(f"{ours.name}: filling a transactional and a compacted topic")
    filled = gaps.fill(servers, prefix)
    ours.start([gapped.topic for gapped in filled], PROFILE)
    try:
        for gapped in filled:
            _await_copied(servers, gapped.topic, gapped.records)
            groups = {f"{gapped.topic}-{n}": gapped.stopped(n) for n in gaps.READ_SHARES}
            _commit(servers, groups)
            _apply(ours)(servers, groups)
            progress(f"{ours.name}: {len(groups)} consumers of the {gapped.kind} topic go on")
            reads = [
                _read(servers, gapped.topic, group, gapped.left(offsets))
                for group, offsets in groups.items()
            ]
            again, missing = map(sum, zip(*reads, strict=True))
            yield from Switch(ours.name, f"{gapped.kind} topic", again, missing).figures()
    finally:
        ours.stop()


def _all_at(topic: str, offset: int) -> Offsets:
    return {(topic, number): offset for number in range(PROFILE.partitions)}


def _stopped(topic: str, lag: int) -> Offsets:
    """Offsets of a group that is `lag` records before the end."""
    return _all_at(topic, EACH - lag // PROFILE.partitions)


def _commit(servers: Servers, groups: Mapping[str, Offsets]) -> None:
    for group, offsets in groups.items():
        alter_offsets(servers.source.bootstrap, group, offsets)


def _fill(servers: Servers, topic: str, *, first: int, end: int) -> None:
    """Records of these source offsets, and wait until they are copied."""
    records = [
        NewRecord(f"{number}".encode(), partition=partition)
        for number in range(first, end)
        for partition in range(PROFILE.partitions)
    ]
    produce(servers.source.bootstrap, topic, records)
    _await_copied(servers, topic, end * PROFILE.partitions)


def _await_copied(servers: Servers, topic: str, records: int) -> None:
    ends = Ends(servers.target.bootstrap, topic, PROFILE.partitions)
    eventually(lambda: ends.total() >= records, COPY_S, f"{topic} is copied")


def _apply(ours: Ours) -> Sync:
    def sync(servers: Servers, groups: Mapping[str, Offsets]) -> None:
        def ready() -> bool:
            try:
                found = ours.fleet.rest("POST", "/failover", {"groups": list(groups)})
            except RestFailure:
                return False
            return all(group["state"] in READY for group in found["groups"])

        eventually(ready, SYNC_S, "the groups are ready to go on")

    return sync


def _await_steady(servers: Servers, groups: Mapping[str, Offsets]) -> None:
    """Every group has offsets at the target, and they stay as they are."""
    last: object = None
    since_s = time.monotonic()

    def steady() -> bool:
        nonlocal last, since_s
        now = [
            {key: row.offset for key, row in group_offsets(servers.target.bootstrap, id).items()}
            for id in groups
        ]
        if now != last:
            last, since_s = now, time.monotonic()
        whole = all(len(offsets) == PROFILE.partitions for offsets in now)
        return whole and time.monotonic() - since_s >= STEADY_S

    eventually(steady, SYNC_S, "the offsets at the target are steady")


def _read(
    servers: Servers, topic: str, group: str, left: Mapping[int, set[int]]
) -> tuple[int, int]:
    """Start a consumer of the group at the target, and read to the end: how many records it reads that are
    not `left` for it, and how many of these it does not."""
    ends = {number: False for number in left}
    again = 0
    with closing(_consumer(servers.target.bootstrap, group, topic)) as consumer:
        deadline_s = time.monotonic() + READ_S
        while not all(ends.values()) and time.monotonic() < deadline_s:
            for message in consumer.consume(10_000, timeout=1.0):
                number = message.partition() or 0
                if message.error() is not None:
                    ends[number] = True
                    continue
                place = int(message.value() or b"-1")
                again += place not in left[number]
                left[number].discard(place)
    assert all(ends.values()), f"{group}: not at the end after {READ_S} s"
    return again, sum(map(len, left.values()))


def _consumer(bootstrap: str, group: str, topic: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **QUIET,
        }
    )
    consumer.subscribe([topic])
    return consumer
