"""Servers as operators run them: a source and a target of three brokers each, replication 3.

`min.insync.replicas` is 2, for the internal topics too: with one broker away everything is still
acknowledged, with two away nothing is. Heaps are small: it all runs on two cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.java import KAFKA_VERSION
from ureplicator_testkit.servers.network import ALIASES
from ureplicator_testkit.servers.replicas import settle
from ureplicator_testkit.servers.server import start_all
from ureplicator_testkit.servers.zookeeper import ZooKeeperServer

BROKERS = 3
HEAP_MB = 256
PROPERTIES = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "transaction.state.log.min.isr": "2",
    # Fewer threads than for a machine to itself.
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    "log.cleaner.dedupe.buffer.size": str(4 << 20),
}


def replicated_cluster(name: str, version: str = KAFKA_VERSION) -> KafkaCluster:
    """Three brokers, not started yet; two acknowledge."""
    return KafkaCluster(BROKERS, name=name, version=version, properties=PROPERTIES, heap_mb=HEAP_MB)


def heal(*clusters: KafkaCluster) -> None:
    """Every broker runs and is in sync, and leads what it should."""
    for cluster in clusters:
        cluster.resume()
        for broker in range(1, cluster.brokers + 1):
            if not cluster.process(broker).running:
                cluster.restart(broker)
    for cluster in clusters:
        settle(cluster)


class ReplicatedServers:
    """A ZooKeeper, a source and a target."""

    def __init__(self) -> None:
        self.zookeeper = ZooKeeperServer(heap_mb=64)
        self.source = replicated_cluster("replicated-source")
        self.target = replicated_cluster("replicated-target")

    def cluster(self, end: str) -> KafkaCluster:
        return {"source": self.source, "target": self.target}[ALIASES.get(end, end)]

    @property
    def clusters(self) -> Sequence[KafkaCluster]:
        return self.source, self.target

    def start(self) -> Self:
        start_all(self.zookeeper, *self.clusters)
        return self

    def heal(self) -> None:
        heal(*self.clusters)

    def stop(self) -> None:
        for server in (*self.clusters, self.zookeeper):
            server.stop()
