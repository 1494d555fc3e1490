"""Servers of a run, used by nothing else; for the replicators with TLS, or far away, if asked for.

What fills topics and measures uses the plaintext listener in any case. A target that is far away is reached
through a proxy that delays all bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from ureplicator_testkit.secured.brokers import MUTUAL, SECURE, by_certificate, secured_properties
from ureplicator_testkit.secured.certificates import Authority, Certificate
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import Process
from ureplicator_testkit.servers.proxy import ProxyThread
from ureplicator_testkit.servers.server import start_all
from ureplicator_testkit.servers.zookeeper import ZooKeeperServer

HEAP_MB = 1_024
FAR = "FAR"
"""Listener of a target that is far away."""
NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})
_PROPERTIES = {
    # Topics with a size limit shrink during the measurement, not minutes later.
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
}


@dataclass(frozen=True, slots=True)
class ClientTls:
    """Files that a replicator needs to reach the brokers by mutual TLS."""

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
class Line:
    """Line of the replicators. `round_trip_ms`: to the target, besides what it takes here; not with
    `tls`."""

    tls: bool = False
    round_trip_ms: int = 0


@dataclass(frozen=True, slots=True)
class Servers:
    """`tls`: of the replicators. `far_target`: address of the target for them, if it is far away."""

    zookeeper: ZooKeeperServer
    source: KafkaCluster
    target: KafkaCluster
    tls: ClientTls | None = None
    far_target: str = ""

    @property
    def target_address(self) -> str:
        """Address of the target for the replicators."""
        return self.far_target or self.target.bootstrap

    def by_name(self) -> Mapping[str, KafkaCluster]:
        return {"source": self.source, "target": self.target}

    def brokers(self) -> Sequence[Process]:
        return [*self.source.processes(), *self.target.processes()]


@contextmanager
def running(
    folder: Path, line: Line = Line(), *, more: Mapping[str, str] = NO_PROPERTIES
) -> Iterator[Servers]:
    """`more`: properties of the brokers."""
    assert not (line.tls and line.round_trip_ms), "a target that is far away is reached without TLS"
    properties = {**_PROPERTIES, **more}
    listeners: tuple[str, ...] = ()
    client = None
    if line.tls:
        authority = Authority(folder / "authority")
        properties |= secured_properties(authority=authority, own=authority.issue("broker"))
        listeners, client = (SECURE, MUTUAL), ClientTls(authority, authority.issue("client"))
    elif line.round_trip_ms:
        listeners = (FAR,)
    source, target = (
        KafkaCluster(
            name=name,
            folder=folder / name,
            heap_mb=HEAP_MB,
            java_options=(),
            properties=properties,
            listeners=listeners,
        )
        for name in ("source", "target")
    )
    with ExitStack() as ends:
        far_target = ""
        if line.round_trip_ms:
            proxy = ends.enter_context(ProxyThread()).proxy(target.listener_port(FAR))
            target.advertise(FAR, proxy.port)
            proxy.slow(delay_s=line.round_trip_ms / 2_000)
            far_target = proxy.address
        zookeeper = ZooKeeperServer(folder=folder / "zookeeper")
        everything = (zookeeper, source, target)
        for server in everything:
            ends.callback(server.stop)
        start_all(*everything)
        yield Servers(zookeeper, source, target, client, far_target)
