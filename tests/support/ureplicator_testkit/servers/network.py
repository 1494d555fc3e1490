"""Servers that can be broken, and for each process of a fleet a network path of its own to each of them.

    w1 --> proxy --> source (its listener W1)          the load and the checks connect directly
    w1 --> proxy --> target (its listener W1)          to the brokers: only the fleet's network
    w1 --> proxies -> each ZooKeeper server            is broken, not the test's

So one process can be cut off from one server while all others continue. Kafka tells its clients the
addresses of the brokers, so each process has a listener to itself, whose advertised port is its proxy's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.ensemble import ZooKeeperEnsemble
from ureplicator_testkit.servers.proxy import Proxy, ProxyThread, Way
from ureplicator_testkit.servers.server import start_all

CONTROLLERS = ("c1", "c2")
WORKERS = ("w1", "w2", "w3")
ALIASES = {"once": "target"}
"""Further names of clusters: two routes may lead from the source to the target."""


@dataclass(frozen=True, slots=True)
class NetworkPaths:
    """Network paths of one process."""

    zookeeper: tuple[Proxy, ...]
    source: Proxy
    target: Proxy

    def config(self) -> Mapping[str, Any]:
        """Configuration overrides with the proxies' addresses."""
        return {
            "hosts": ",".join(proxy.address for proxy in self.zookeeper),
            "source": self.source.address,
            "target": self.target.address,
        }

    def stall_zookeeper(self, *ways: Way) -> None:
        for proxy in self.zookeeper:
            proxy.stall(*ways)

    def reset_zookeeper(self) -> None:
        for proxy in self.zookeeper:
            proxy.reset()

    def heal(self) -> None:
        for proxy in (*self.zookeeper, self.source, self.target):
            proxy.heal()

    def slow_zookeeper(self, delay_s: float) -> None:
        for proxy in self.zookeeper:
            proxy.slow(delay_s=delay_s)


class BreakableServers:
    """A ZooKeeper of three servers, a source, a target, and the network to them."""

    def __init__(self, processes: Sequence[str] = (*CONTROLLERS, *WORKERS)) -> None:
        self.proxies = ProxyThread()
        self.zookeeper = ZooKeeperEnsemble()
        listeners = [id.upper() for id in processes]
        self.source, self.target = (
            KafkaCluster(name=name, listeners=listeners)
            for name in ("faulty-source", "faulty-target")
        )
        self.links = {id: self._links(id) for id in processes}

    def _links(self, id: str) -> NetworkPaths:
        clusters = []
        for cluster in (self.source, self.target):
            proxy = self.proxies.proxy(cluster.listener_port(id.upper()))
            cluster.advertise(id.upper(), proxy.port)
            clusters.append(proxy)
        zookeeper = tuple(self.proxies.proxy(port) for port in self.zookeeper.ports)
        return NetworkPaths(zookeeper, *clusters)

    def cluster(self, end: str) -> KafkaCluster:
        return {"source": self.source, "target": self.target}[ALIASES.get(end, end)]

    def start(self) -> Self:
        try:
            start_all(*self.zookeeper.members, self.source, self.target)
        except BaseException:
            self.stop()
            raise
        return self

    def heal(self) -> None:
        """Every server runs, every path is open."""
        self.proxies.heal()
        for cluster in (self.source, self.target):
            cluster.resume()
            if not cluster.process().running:
                cluster.restart()
        self.zookeeper.heal()

    def stop(self) -> None:
        for server in (self.target, self.source, self.zookeeper):
            server.stop()
        self.proxies.close()
