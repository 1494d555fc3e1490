"""Cost of the sync of consumer groups: passes over many groups with offsets on ten partitions each.

A fleet copies a topic with an offset map, and ends. Then the engine of the leader runs in this process, pass
after pass, between two real clusters:

    first          no group is at the target; every offset is read, translated and written
    quiet          nothing has changed
    a tenth moved  a tenth of the groups have read on
    all moved      every group has read on

Requests, processor time and memory are those of the engine.
"""

from __future__ import annotations

import random
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from prometheus_client import CollectorRegistry

from ureplicator_bench.contenders import Ours
from ureplicator_bench.figures import Figure
from ureplicator_bench.load import Filler, Profile
from ureplicator_bench.servers import Servers, running
from ureplicator_common.clock import SystemClock
from ureplicator_common.config.route import GroupPatterns, GroupSyncSettings, RouteConfig
from ureplicator_common.garbage_collection import collect_seldom
from ureplicator_common.kafka.client import BlockingConnection, ClusterClient
from ureplicator_common.kafka.groups import CommittedOffset, wire
from ureplicator_common.kafka.groups.requests import KafkaConsumerGroups
from ureplicator_common.model import Delivery, Route, RouteSettings, SessionId, TopicKey
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_controller.core.groups.decisions import SyncState
from ureplicator_controller.core.state.decoding import Stored
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_controller.engines.groups.clusters import open_sync
from ureplicator_controller.engines.syncs.thread import SyncThread
from ureplicator_demo.progress import Ends
from ureplicator_testkit.control.memory_reports import MemoryReports
from ureplicator_testkit.records.topics import create_topic
from ureplicator_testkit.servers.processes import eventually

ROUTE = Route("source", "target")
PROFILE = Profile("groups", records=100_000, size=100, partitions=10)
EACH = PROFILE.records // PROFILE.partitions
TOPIC = "bench-groups"
PREFIX = "bench-"
PORTION = 500
INTERVAL_S = 5.0
QUIET_PASSES = 3
COPY_S = 120.0
KINDS = {
    wire.OFFSET_COMMIT: "OffsetCommit",
    wire.OFFSET_FETCH: "OffsetFetch",
    wire.FIND_COORDINATOR: "FindCoordinator",
    wire.DESCRIBE_GROUPS: "DescribeGroups",
    wire.LIST_GROUPS: "ListGroups",
}


@dataclass(frozen=True, slots=True)
class Pass:
    """Cost of one pass. `requests`: sent, by kind."""

    what: str
    seconds: float
    cpu_s: float
    requests: Mapping[str, int]

    def figures(self, limit_s: float | None) -> Iterator[Figure]:
        yield Figure(f"{self.what}: pass", self.seconds, "s", limit_s)
        yield Figure(f"{self.what}: engine", self.cpu_s, "CPU-s")
        for kind, count in sorted(self.requests.items()):
            yield Figure(f"{self.what}: {kind}", count, "requests")


class _Counted(BlockingConnection):
    """A connection that counts the requests that are sent over it."""

    sent: ClassVar[Counter[str]] = Counter()

    def send(self, requests: Sequence[Any], *, silence_s: float) -> int:
        self.sent.update(_kind(request) for request in requests)
        return super().send(requests, silence_s=silence_s)


def _kind(request: Any) -> str:
    name = type(request).__name__.removesuffix("Request")
    return name or KINDS[request.api_key]


def figures(folder: Path, groups: int, *, progress: Callable[[str], None]) -> Iterator[Figure]:
    """All of them, as they are measured. The garbage is collected as in a controller."""
    collect_seldom()
    with running(folder) as servers:
        fleet = _copied(servers, folder, progress)
        members = _Members(servers.source.bootstrap, groups)
        progress(f"committing the offsets of {groups:,} groups at the source")
        members.move(1)
        before_mb = _peak_mb()
        sync, reports = _engine(servers, fleet)
        try:
            for done, limit_s in _passes(sync, reports, members, groups):
                yield from done.figures(limit_s)
        finally:
            sync.close()
        yield Figure("peak memory of the engine", _peak_mb() - before_mb, "MB")


def _passes(
    sync: SyncThread, reports: MemoryReports, members: _Members, groups: int
) -> Iterator[tuple[Pass, float | None]]:
    """The first passes until every group is at the target: on a slow machine one does not write all."""

    def is_synced() -> bool:
        assert not reports.failures, reports.failures
        return bool(reports.passes) and reports.passes[-1][0] == {SyncState.SYNCED.value: groups}

    while not is_synced():
        yield _measured(f"first {len(reports.passes) + 1}", sync), None
    for number in range(QUIET_PASSES):
        yield _measured(f"quiet {number + 1}", sync), INTERVAL_S
    for what, every in (("a tenth moved", 10), ("all moved", 1)):
        members.move(every)
        yield _measured(what, sync), INTERVAL_S
        assert is_synced(), reports.passes[-1]


def _measured(what: str, sync: SyncThread) -> Pass:
    _Counted.sent.clear()
    began_s, cpu_s = time.monotonic(), time.process_time()
    sync.run_once()
    seconds, used_s = time.monotonic() - began_s, time.process_time() - cpu_s
    return Pass(what, seconds, used_s, dict(_Counted.sent))


class _Members:
    """Consumers of the groups, that read on from time to time."""

    def __init__(self, bootstrap: str, groups: int) -> None:
        self._bootstrap = bootstrap
        self._dice = random.Random(1)  # noqa: S311
        self._offsets = {
            f"{PREFIX}{number:05d}": [0] * PROFILE.partitions for number in range(groups)
        }

    def move(self, every: int) -> None:
        """Have each `every`-th group read on, on all partitions."""
        names = list(self._offsets)[::every]
        with closing(KafkaConsumerGroups(ClusterClient(self._bootstrap))) as client:
            for begin in range(0, len(names), PORTION):
                portion = names[begin : begin + PORTION]
                refused = client.commit({name: self._moved(name) for name in portion})
                assert not any(refused.values()), refused

    def _moved(self, name: str) -> Mapping[tuple[str, int], CommittedOffset]:
        now = [self._dice.randint(offset + 1, offset + EACH // 4) for offset in self._offsets[name]]
        self._offsets[name] = now
        return {(TOPIC, number): CommittedOffset(at) for number, at in enumerate(now)}


def _copied(servers: Servers, folder: Path, progress: Callable[[str], None]) -> str:
    """Copy a topic with an offset map; the name of the fleet that did."""
    progress(f"copying {PROFILE.records:,} records")
    for cluster in (servers.source, servers.target):
        create_topic(cluster.bootstrap, TOPIC, partitions=PROFILE.partitions)
    Filler(servers.source.bootstrap, TOPIC, PROFILE).add(PROFILE.records)
    ours = Ours(
        servers,
        folder,
        delivery=Delivery.AT_LEAST_ONCE,
        kind="groups",
        route={"offset_map": True},
    )
    ours.start([TOPIC], PROFILE)
    try:
        ends = Ends(servers.target.bootstrap, TOPIC, PROFILE.partitions)
        eventually(lambda: ends.total() >= PROFILE.records, COPY_S, "everything is copied")
        return ours.fleet.name
    finally:
        ours.stop()


def _engine(servers: Servers, fleet: str) -> tuple[SyncThread, MemoryReports]:
    patterns = GroupPatterns(include=(f"{PREFIX}.*",))
    config = RouteConfig(
        source=ROUTE.source,
        target=ROUTE.target,
        offset_map=True,
        sync_group_offsets=GroupSyncSettings(enabled=True, groups=patterns),
    )
    snapshot = _snapshot(fleet)
    reports = MemoryReports()
    source, target = (
        ClusterClient(cluster.bootstrap, open_channel=_Counted.open)
        for cluster in (servers.source, servers.target)
    )
    sync = open_sync(
        config=config,
        fleet=fleet,
        source=source,
        target=target,
        seen=lambda: (1, snapshot),
        clock=SystemClock(),
        metrics=ControlMetrics(CollectorRegistry()),
        reports=reports,
    )
    return sync, reports


def _snapshot(fleet: str) -> Snapshot:
    owner = SessionId(0)
    intent = TopicIntent(PROFILE.partitions, PROFILE.partitions, target_topic=TOPIC)
    return Snapshot(
        fleet=fleet,
        epoch=1,
        routes={ROUTE: Stored(RouteSettings(), 0, 0, owner)},
        topics={TopicKey(ROUTE, TOPIC): Stored(intent, 0, 0, owner)},
    )


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
