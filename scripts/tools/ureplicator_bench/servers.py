"""Servers of a run, used by nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import Process
from ureplicator_testkit.servers.server import start_all
from ureplicator_testkit.servers.zookeeper import ZooKeeperServer

HEAP_MB = 1_024
_PROPERTIES = {
    # Topics with a size limit shrink during the measurement, not minutes later.
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
}


@dataclass(frozen=True, slots=True)
class Servers:
    zookeeper: ZooKeeperServer
    source: KafkaCluster
    target: KafkaCluster

    def brokers(self) -> Sequence[Process]:
        return [*self.source.processes(), *self.target.processes()]


@contextmanager
def running(folder: Path) -> Iterator[Servers]:
    servers = Servers(
        ZooKeeperServer(folder=folder / "zookeeper"),
        *(
            KafkaCluster(name=n, folder=folder / n, heap_mb=HEAP_MB, properties=_PROPERTIES)
            for n in ("source", "target")
        ),
    )
    everything = (servers.zookeeper, servers.source, servers.target)
    start_all(*everything)
    try:
        yield servers
    finally:
        for server in everything:
            server.stop()
