"""Takeover of all partitions of a copier that is killed, at once, under load, for both deliveries.

Copiers of one slot each, without Spark and ZooKeeper: so no time passes until the fleet finds the loss. One
owns all partitions but one of each other copier, which runs already. The owner is killed, and all that it had
is granted to the next one. The target's brokers record when each record arrived, and each record carries its
number: none may be missing; exactly once none may be repeated.

    killed --> granted --> each partition is ONLINE --> each has a record that was produced after the kill

The last takeover goes through a proxy, which counts the requests to the target.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ureplicator_bench.figures import Figure
from ureplicator_bench.fleets.handover import Numbered
from ureplicator_bench.servers import HEAP_MB
from ureplicator_bench.usage import quantile
from ureplicator_common.model import Delivery, OwnerEpoch, Partition, RouteSettings
from ureplicator_testkit.copier.driver import StubDriver
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.records.comparison import ConsumedRecord
from ureplicator_testkit.records.topics import read_all
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually
from ureplicator_testkit.servers.proxy import Proxy, ProxyThread
from ureplicator_testkit.servers.server import start_all
from ureplicator_worker.lifeline.messages import Add, Grant

LIMIT_S = 3.0
TIMED = 3
"""Takeovers that are timed; one more is counted."""
PER_S = 2
"""Records per second and partition."""
COMMIT_INTERVAL_S = 1.0
"""The default: what was sent since the last commit is counted."""
WARM_UP_S = 20.0
SETTLED_S = 8.0
ONLINE_S = 120.0
POLL_S = 0.02
LISTENER = "COUNTED"
KINDS = {
    1: "Fetch",
    2: "ListOffsets",
    3: "Metadata",
    9: "OffsetFetch",
    10: "FindCoordinator",
    18: "ApiVersions",
    22: "InitProducerId",
    24: "AddPartitionsToTxn",
    25: "AddOffsetsToTxn",
    26: "EndTxn",
    28: "TxnOffsetCommit",
    32: "DescribeConfigs",
}
"""Requests to the target, by their keys, besides those that copy."""


@dataclass(frozen=True, slots=True)
class Takeover:
    """Times of this machine in seconds since the epoch. `requests`: to the target, by kind, if they were
    counted."""

    killed_s: float
    granted_s: float
    online_s: float
    requests: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Servers:
    source: KafkaCluster
    target: KafkaCluster
    counted: Proxy


def figures(folder: Path, partitions: int, *, progress: Callable[[str], None]) -> Iterator[Figure]:
    """Figures of both deliveries, on servers of their own."""
    with _running(folder) as servers:
        for delivery in Delivery:
            progress(f"{delivery}: {partitions:,} partitions, {PER_S} records a second in each")
            yield from _of(delivery, servers, folder, partitions)


@contextmanager
def _running(folder: Path) -> Iterator[_Servers]:
    source, target = (
        KafkaCluster(
            name=name, folder=folder / name, heap_mb=HEAP_MB, java_options=(), listeners=[LISTENER]
        )
        for name in ("source", "target")
    )
    with ProxyThread() as proxies, ExitStack() as more:
        proxy = proxies.proxy(target.listener_port(LISTENER))
        target.advertise(LISTENER, proxy.port)
        for server in (source, target):
            more.callback(server.stop)
        start_all(source, target)
        yield _Servers(source, target, proxy)


def _of(delivery: Delivery, servers: _Servers, folder: Path, partitions: int) -> Iterator[Figure]:
    lane = RealLane(
        servers.source, servers.target, f"bench-takeover-{delivery}", f"bench-{delivery}", folder
    )
    lane.make_source(partitions + TIMED + 1)
    lane.make_target(partitions + TIMED + 1, {"message.timestamp.type": "LogAppendTime"})
    owners = _Owners(lane, delivery, partitions, servers.counted)
    try:
        with Numbered(servers.source.bootstrap, lane.topic, partitions + TIMED + 1, per_s=PER_S):
            made = list(owners.in_a_row())
            time.sleep(SETTLED_S)
        logs = _copied(lane, partitions)
        for number, takeover in enumerate(made, start=1):
            yield from _times(f"{delivery} {number}", takeover, logs)
        yield from _faults(delivery, logs)
    finally:
        lane.close()
        closed = "the connections of the last owner are closed"
        eventually(lambda: not servers.counted.connections, ONLINE_S, closed)


class _Owners:
    """Copiers, each after the first with one partition of its own until it takes `all` over."""

    def __init__(self, lane: RealLane, delivery: Delivery, partitions: int, proxy: Proxy) -> None:
        self._lane = lane
        self._settings = RouteSettings(delivery=delivery)
        self.all = [lane.at(number) for number in range(partitions)]
        self._own = [lane.at(partitions + number) for number in range(TIMED + 1)]
        self._proxy = proxy

    def in_a_row(self) -> Iterator[Takeover]:
        owner = self._started(0, self.all)
        time.sleep(WARM_UP_S)
        for number, own in enumerate(self._own, start=1):
            counted = number > TIMED
            successor = self._started(number, [own], through_proxy=counted)
            time.sleep(SETTLED_S)
            yield self._taken(owner, successor, number, counted=counted)
            owner = successor

    def _started(
        self, number: int, partitions: Sequence[Partition], *, through_proxy: bool = False
    ) -> StubDriver:
        target = self._proxy.address if through_proxy else self._lane.target.bootstrap
        driver = StubDriver(
            dict.fromkeys(partitions, OwnerEpoch(number + 1)),
            source=self._lane.source.bootstrap,
            target=target,
            fleet=self._lane.fleet,
            folder=self._lane.folder,
            worker=f"w{number}",
            grant=partial(self._grant, number),
            commit_interval_s=COMMIT_INTERVAL_S,
        )
        eventually(lambda: _online(driver, number, partitions), ONLINE_S, f"w{number} copies")
        return driver

    def _grant(self, number: int, partition: Partition, epoch: OwnerEpoch) -> Grant:
        taken = partition not in self._own and number > 0
        return Grant(
            epoch,
            partition.topic,
            fence=self._lane.ids(f"w{number - 1}") if taken else (),
            had_position=taken,
            settings=self._settings,
        )

    def _taken(
        self, owner: StubDriver, successor: StubDriver, number: int, *, counted: bool
    ) -> Takeover:
        eventually(lambda: _keeps_up(owner), ONLINE_S, "the owner keeps up")
        before = _requests(self._proxy)
        killed_s = time.time()
        owner.process.kill_tree()
        granted_s = time.time()
        successor.send(Add(dict.fromkeys(self.all, OwnerEpoch(number + 1))))
        what = f"w{number} copies all"
        eventually(lambda: _online(successor, number, self.all), ONLINE_S, what, poll_s=POLL_S)
        online_s = time.time()
        after = _requests(self._proxy)
        owner.close()
        made = {kind: after[kind] - before[kind] for kind in after if after[kind] > before[kind]}
        return Takeover(killed_s, granted_s, online_s, made if counted else {})


def _online(driver: StubDriver, number: int, partitions: Sequence[Partition]) -> bool:
    """True once all are ONLINE. What fails for a time is added again, as a worker does."""
    for partition, failure in list(driver.failed.items()):
        assert failure.temporary, failure
        del driver.failed[partition]
        driver.send(Add({partition: OwnerEpoch(number + 1)}))
    report = driver.report
    return driver.all_online() and all(partition in report for partition in partitions)


def _keeps_up(driver: StubDriver) -> bool:
    return all(0 <= report.lag <= PER_S for report in driver.report.values())


def _requests(proxy: Proxy) -> dict[str, int]:
    return {kind: proxy.requests(key) for key, kind in KINDS.items()}


@dataclass(frozen=True, slots=True)
class _Logs:
    """Both logs of the partitions that were taken over."""

    source: Mapping[int, Sequence[ConsumedRecord]]
    target: Mapping[int, Sequence[ConsumedRecord]]


def _copied(lane: RealLane, partitions: int) -> _Logs:
    """Both logs, once the target has all records."""
    source = _read(lane.source, lane.topic, partitions)
    wanted = {number: rows[-1].value for number, rows in source.items()}

    def target() -> Mapping[int, Sequence[ConsumedRecord]]:
        found = _read(lane.target, lane.topic, partitions)
        last = {number: rows[-1].value if rows else b"" for number, rows in found.items()}
        return found if last == wanted else {}

    return _Logs(source, eventually(target, ONLINE_S, "all is copied", poll_s=1.0))


def _read(
    cluster: KafkaCluster, topic: str, partitions: int
) -> Mapping[int, Sequence[ConsumedRecord]]:
    log = read_all(cluster.bootstrap, topic)
    return {number: log[number] for number in range(partitions)}


def _times(what: str, takeover: Takeover, logs: _Logs) -> Iterator[Figure]:
    """Figures of a takeover. The times begin with the grant."""
    online_s = takeover.online_s - takeover.granted_s
    copied_s = sorted(
        _first_s(logs.source[number], logs.target[number], takeover) for number in logs.source
    )
    if takeover.requests:
        yield Figure(f"{what}, through a proxy: all ONLINE", online_s, "s")
        for kind, count in takeover.requests.items():
            yield Figure(f"{what}: {kind}", count, "requests")
        return
    yield Figure(f"{what}: all ONLINE", online_s, "s", LIMIT_S)
    yield Figure(f"{what}: a new record is copied, median", quantile(copied_s, 0.5), "s")
    yield Figure(f"{what}: a new record is copied, all", copied_s[-1], "s", LIMIT_S)


def _first_s(
    source: Sequence[ConsumedRecord], target: Sequence[ConsumedRecord], takeover: Takeover
) -> float:
    """Time until the first record that was produced after the kill has arrived."""
    produced_ms = takeover.killed_s * 1_000
    first = next(record.value for record in source if record.timestamp >= produced_ms)
    arrived_ms = next(record.timestamp for record in target if record.value == first)
    return arrived_ms / 1_000 - takeover.granted_s


def _faults(delivery: Delivery, logs: _Logs) -> Iterator[Figure]:
    missing = repeats = 0
    for number, source in logs.source.items():
        copied = [record.value for record in logs.target[number]]
        missing += list(dict.fromkeys(copied)) != [record.value for record in source]
        repeats += len(copied) - len(set(copied))
    yield Figure(f"{delivery}: partitions with a record missing or misplaced", missing, "", 1)
    limit = 1 if delivery is Delivery.EXACTLY_ONCE else None
    yield Figure(f"{delivery}: records repeated", repeats, "", limit)
