"""Time from a POST to a partition that is ONLINE, in a fleet with a thousand other topics.

Real processes: one controller, one worker, two clusters. The thousand are ordinary topics, of one
empty partition each, created on both sides; their intents are written as REST would, and all of them
are ONLINE before the measurement. The measured ones go through REST, and their target topics are
missing.

All times are taken by this process: from just before the request is sent until ZooKeeper shows the
worker's state, so neither a poll of REST nor another clock is included. One topic is whitelisted
first and not measured: the leader is still recording the first positions of the thousand.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ureplicator_bench.servers import Servers
from ureplicator_common.coordination import Create, Node
from ureplicator_common.coordination.zookeeper import ZooKeeperCoordination
from ureplicator_common.model import Partition, PartitionState, Route, TopicKey, WorkerId
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.topics import encode_intent
from ureplicator_common.znodes.workers import decode_assignment, decode_current
from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.records.topics import QUIET
from ureplicator_testkit.servers.processes import eventually

FLEET = "bench-control"
ROUTE = Route("source", "target")
WORKER = WorkerId("w1")
FILL_S = 300.0


@dataclass(frozen=True, slots=True)
class Steps:
    """Time at which each step of one whitelisting was seen, in seconds since the request was sent."""

    written: float
    responded: float
    assigned: float
    online: float


@dataclass(frozen=True, slots=True)
class Whitelisting:
    others: int
    each: tuple[Steps, ...]

    def p50(self, step: str) -> float:
        return self._quantiles(step)[49]

    def p99(self, step: str) -> float:
        return self._quantiles(step)[98]

    def _quantiles(self, step: str) -> list[float]:
        return quantiles([getattr(steps, step) for steps in self.each], n=100, method="inclusive")


def measure(servers: Servers, folder: Path, *, others: int, times: int) -> Whitelisting:
    fillers = [f"other-{number:04d}" for number in range(others)]
    first, *probes = (f"probe-{number:04d}" for number in range(1 + times))
    for cluster, topics in (
        (servers.source, [*fillers, first, *probes]),
        (servers.target, fillers),
    ):
        _make_topics(cluster.bootstrap, topics)
    with _running(servers, folder) as fleet, _Watcher(servers.zookeeper.hosts) as watcher:
        watcher.intend(fillers)
        eventually(lambda: watcher.online() == others, FILL_S, "the other topics are ONLINE")
        _whitelist(fleet, watcher, first)
        return Whitelisting(others, tuple(_whitelist(fleet, watcher, probe) for probe in probes))


def _make_topics(bootstrap: str, topics: list[str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    for begin in range(0, len(topics), 100):
        new = [NewTopic(topic, 1, 1) for topic in topics[begin : begin + 100]]
        for made in admin.create_topics(new).values():
            made.result(60)


@contextmanager
def _running(servers: Servers, folder: Path) -> Iterator[Fleet]:
    fleet = Fleet(
        name=FLEET,
        folder=folder,
        zookeeper=servers.zookeeper.hosts,
        source=servers.source.bootstrap,
        target=servers.target.bootstrap,
        worker={"slots": 2},
    )
    try:
        yield fleet.start()
        fleet.stop()
    finally:
        fleet.kill()


def _whitelist(fleet: Fleet, watcher: _Watcher, topic: str) -> Steps:
    expected = watcher.expect(topic)
    began_s = time.monotonic()
    fleet.whitelist(topic)
    responded_s = time.monotonic()
    eventually(expected.is_complete, 30, f"{topic} is ONLINE")
    seen = expected.seen_s
    return Steps(
        written=seen["written"] - began_s,
        responded=responded_s - began_s,
        assigned=seen["assigned"] - began_s,
        online=seen["online"] - began_s,
    )


@dataclass(slots=True)
class _Expected:
    """A watched partition, and the times of its steps."""

    partition: Partition | None = None
    seen_s: dict[str, float] = field(default_factory=dict)

    def is_complete(self) -> bool:
        return len(self.seen_s) == 3


class _Watcher:
    """Records when ZooKeeper shows each expected step."""

    def __init__(self, hosts: str) -> None:
        self._paths = Paths(FLEET)
        self._coordination = ZooKeeperCoordination(hosts=hosts, session_timeout_s=10)
        self._expected = _Expected()

    def __enter__(self) -> _Watcher:
        self._coordination.connect(30)
        self._tree_cache = self._coordination.tree_cache(self._paths.root, self._changed)
        self._tree_cache.refresh()
        return self

    def __exit__(self, *_: object) -> None:
        self._tree_cache.close()
        self._coordination.close()

    def intend(self, topics: list[str]) -> None:
        self._coordination.ensure(f"{self._paths.topics}/{ROUTE}")
        writes = [
            Create(
                self._paths.topic(TopicKey(ROUTE, topic)),
                encode_intent(TopicIntent(1, 1, target_topic=topic)),
            )
            for topic in topics
        ]
        for begin in range(0, len(writes), 100):
            self._coordination.transact(writes[begin : begin + 100])

    def expect(self, topic: str) -> _Expected:
        self._expected = _Expected(Partition(ROUTE, topic, 0))
        return self._expected

    def online(self) -> int:
        """Number of partitions that are ONLINE now."""
        node = self._tree_cache.nodes().get(self._paths.current_state(WORKER))
        entries = decode_current(node.data).entries.values() if node else ()
        return sum(entry.state is PartitionState.ONLINE for entry in entries)

    def _changed(self) -> None:
        expected = self._expected
        if expected.partition is None:
            return
        now_s, nodes = time.monotonic(), self._tree_cache.nodes()
        for step in self._shown(nodes, expected.partition):
            expected.seen_s.setdefault(step, now_s)

    def _shown(self, nodes: Mapping[str, Node], partition: Partition) -> Iterator[str]:
        if self._paths.topic(TopicKey(ROUTE, partition.topic)) in nodes:
            yield "written"
        assignment = nodes.get(self._paths.assignment(WORKER))
        if assignment is not None and partition in decode_assignment(assignment.data).entries:
            yield "assigned"
        current = nodes.get(self._paths.current_state(WORKER))
        entry = decode_current(current.data).entries.get(partition) if current else None
        if entry is not None and entry.state is PartitionState.ONLINE:
            yield "online"
