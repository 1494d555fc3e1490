"""Many partitions on one worker of ten slots, with Spark, ZooKeeper and brokers.

First a thousand partitions are whitelisted at once while both clusters are 100 ms away: how long until all
are ONLINE. Then the rest, at the speed of the machine. Then nothing happens for a while: the processor time
of the worker's processes, and of its busiest slot. One partition of each topic has records, the others are
empty.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ureplicator_bench.figures import Figure
from ureplicator_bench.fleets.idle import DRIVER_LIMIT, SLOT_LIMIT, SLOTS
from ureplicator_testkit.fleet.real_fleet import Fleet, pids_of
from ureplicator_testkit.records.topics import QUIET, NewRecord, produce
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually
from ureplicator_testkit.servers.proxy import Proxy, ProxyThread
from ureplicator_testkit.servers.server import start_all
from ureplicator_testkit.servers.zookeeper import ZooKeeperServer

FIRST = 1_000
FIRST_LIMIT_S = 15.0
ROUND_TRIP_S = 0.1
PER_TOPIC = 100
REQUESTS_AT_ONCE = 10
UNAVAILABLE = 503
HEAP_MB = 1_536
LISTENER = "FAR"
WORKER = "w1"
BROKER_LIMIT = 0.5
SETTLE_S = 20.0
IDLE_S = 30.0
ONLINE_S = 600.0


def figures(folder: Path, partitions: int, *, progress: Callable[[str], None]) -> Iterator[Figure]:
    topics = [f"scale-{number:04d}" for number in range(partitions // PER_TOPIC)]
    first = topics[: FIRST // PER_TOPIC]
    with ProxyThread() as proxies, _running(folder, proxies) as (fleet, source, lines):
        progress(f"topics with {partitions:,} partitions at the source")
        _make(source.bootstrap, topics)
        progress(f"{FIRST:,} partitions, both clusters {ROUND_TRIP_S * 1_000:.0f} ms away")
        for line in lines:
            line.slow(delay_s=ROUND_TRIP_S / 2)
        took_s = _whitelist(fleet, first, total=FIRST)
        yield Figure(f"whitelist {FIRST:,} partitions at 100 ms", took_s, "s", FIRST_LIMIT_S)
        proxies.heal()
        if partitions > FIRST:
            progress(f"{partitions:,} partitions")
            took_s = _whitelist(fleet, topics[len(first) :], total=partitions)
            yield Figure(f"whitelist {partitions - FIRST:,} more", took_s, "s")
        fleet.wait_seconds(SETTLE_S)
        progress("idle")
        yield from _idle(fleet, source, f"{partitions:,} partitions")


@contextmanager
def _running(
    folder: Path, proxies: ProxyThread
) -> Iterator[tuple[Fleet, KafkaCluster, Sequence[Proxy]]]:
    zookeeper = ZooKeeperServer(folder=folder / "zookeeper")
    source, target = (
        KafkaCluster(
            name=name,
            folder=folder / name,
            heap_mb=HEAP_MB,
            java_options=(),
            listeners=[LISTENER],
        )
        for name in ("source", "target")
    )
    lines = [proxies.proxy(cluster.listener_port(LISTENER)) for cluster in (source, target)]
    for cluster, line in zip((source, target), lines, strict=True):
        cluster.advertise(LISTENER, line.port)
    servers = (zookeeper, source, target)
    start_all(*servers)
    fleet = Fleet(
        name="bench-scale",
        folder=folder,
        zookeeper=zookeeper.hosts,
        source=lines[0].address,
        target=lines[1].address,
        worker={"slots": SLOTS, "commit_interval_s": 1.0},
    )
    try:
        yield fleet.start(), source, lines
        fleet.stop()
    finally:
        fleet.kill()
        for server in servers:
            server.stop()


def _make(bootstrap: str, topics: list[str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    for topic in topics:
        for made in admin.create_topics([NewTopic(topic, PER_TOPIC, 1)]).values():
            made.result(120)
        records = [NewRecord(f"{topic}/0/{number}".encode(), partition=0) for number in range(10)]
        produce(bootstrap, topic, records)


def _whitelist(fleet: Fleet, topics: list[str], *, total: int) -> float:
    """Seconds from the requests, all at once, until `total` partitions are ONLINE at the worker."""
    began_s = time.monotonic()
    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
        list(pool.map(partial(_request, fleet), topics))
    what = f"{total} partitions are ONLINE"
    eventually(lambda: _online(fleet) == total, ONLINE_S, what, poll_s=0.5)
    return time.monotonic() - began_s


def _request(fleet: Fleet, topic: str) -> None:
    """A request as REST asks for it: repeated while a cluster is too busy to create a topic in time."""
    path = "/topics?src=source&dst=target"

    def accepted() -> bool:
        response = fleet.call("POST", path, json={"topic": topic})
        assert response.ok or response.status_code == UNAVAILABLE, response.text
        return bool(response.ok)

    eventually(accepted, ONLINE_S, f"{topic} is whitelisted")


def _online(fleet: Fleet) -> int:
    return sum(state == "ONLINE" for state, _ in fleet.states())


def _idle(fleet: Fleet, source: KafkaCluster, size: str) -> Iterator[Figure]:
    worker = fleet.workers[WORKER]
    driver, jvms = worker.pid, pids_of(worker, "java")
    copiers = [pid for pid in pids_of(worker, "pyspark") if pid not in jvms]
    brokers = [broker.pid for broker in source.processes()]
    before = _cpu_s([driver, *copiers, *jvms, *brokers])
    began_s = time.monotonic()
    fleet.wait_seconds(IDLE_S)
    spent = _cpu_s(before)
    passed_s = time.monotonic() - began_s
    cost = {pid: (spent[pid] - before[pid]) / passed_s for pid in before}
    yield Figure(f"driver, {size}", cost[driver], "CPU-s/s", DRIVER_LIMIT)
    busiest = max(cost[pid] for pid in copiers)
    yield Figure(f"busiest of {SLOTS} slots, {size}", busiest, "CPU-s/s", SLOT_LIMIT)
    yield Figure(f"Spark's JVM, {size}", sum(cost[pid] for pid in jvms), "CPU-s/s")
    busy = sum(cost[pid] for pid in brokers)
    yield Figure(f"source's broker, {size}", busy, "CPU-s/s", BROKER_LIMIT)
    rss = max(psutil.Process(pid).memory_info().rss for pid in copiers)
    yield Figure(f"largest slot's memory, {size}", rss / 1e6, "MB")


def _cpu_s(pids: Iterable[int]) -> dict[int, float]:
    """Processor time of each process since its start, without its children."""
    found = {}
    for pid in pids:
        times = psutil.Process(pid).cpu_times()
        found[pid] = times.user + times.system
    return found
