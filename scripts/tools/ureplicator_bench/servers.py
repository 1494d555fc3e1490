"""Servers of a run, used by nothing else; with TLS for the replicators, if asked for.

What fills topics and measures uses the plaintext listener in any case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ureplicator_testkit.secured.brokers import MUTUAL, SECURE, by_certificate, secured_properties
from ureplicator_testkit.secured.certificates import Authority, Certificate
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
class ClientTls:
    """What a replicator needs to reach the brokers by mutual TLS."""

    authority: Authority
    client: Certificate

    def of_librdkafka(self, cluster: KafkaCluster) -> dict[str, str]:
        return by_certificate(cluster, self.authority, self.client)

    def of_java(self, cluster: KafkaCluster) -> dict[str, str]:
        return {
            "bootstrap.servers": f"127.0.0.1:{cluster.listener_port(MUTUAL)}",
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.certificate),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.client.both),
        }


@dataclass(frozen=True, slots=True)
class Servers:
    """`tls`: of the replicators."""

    zookeeper: ZooKeeperServer
    source: KafkaCluster
    target: KafkaCluster
    tls: ClientTls | None = None

    def by_name(self) -> Mapping[str, KafkaCluster]:
        return {"source": self.source, "target": self.target}

    def brokers(self) -> Sequence[Process]:
        return [*self.source.processes(), *self.target.processes()]


@contextmanager
def running(folder: Path, *, tls: bool = False) -> Iterator[Servers]:
    properties = dict(_PROPERTIES)
    listeners: tuple[str, ...] = ()
    client = None
    if tls:
        authority = Authority(folder / "authority")
        properties |= secured_properties(authority=authority, own=authority.issue("broker"))
        listeners, client = (SECURE, MUTUAL), ClientTls(authority, authority.issue("client"))
    source, target = (
        KafkaCluster(
            name=name,
            folder=folder / name,
            heap_mb=HEAP_MB,
            properties=properties,
            listeners=listeners,
        )
        for name in ("source", "target")
    )
    servers = Servers(ZooKeeperServer(folder=folder / "zookeeper"), source, target, client)
    everything = (servers.zookeeper, servers.source, servers.target)
    start_all(*everything)
    try:
        yield servers
    finally:
        for server in everything:
            server.stop()
