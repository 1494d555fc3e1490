"""The configuration of one node of a Kafka cluster: a broker, the controller, or both in one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ureplicator_testkit.servers.processes import Process

FEW_THREADS = {
    "num.network.threads": "1",  # of each listener
    "num.io.threads": "2",
    "background.threads": "2",
    "group.coordinator.threads": "1",
    "share.coordinator.threads": "1",
}
"""A broker has a hundred threads by default, most of which wake several times a second."""


@dataclass
class Node:
    """One process of a cluster: a broker, the controller, or both in one."""

    node_id: int
    port: int | None  # None: a controller serves no clients
    advertised_port: int | None
    internal_port: int
    controller_port: int | None  # None: a broker that is no controller
    folder: Path
    more: dict[str, tuple[int, int]]  # listener -> the port it listens on, the one it advertises
    process: Process | None = field(default=None)

    @property
    def roles(self) -> str:
        roles = {"broker": self.port, "controller": self.controller_port}
        return ",".join(role for role, port in roles.items() if port)


def kraft_config(node: Node, nodes: Iterable[Node], properties: Mapping[str, str]) -> str:
    """`properties` win over what is set here."""
    everyone = list(nodes)
    voters = (n for n in everyone if n.controller_port)
    settings = {
        "process.roles": node.roles,
        "node.id": str(node.node_id),
        "controller.quorum.voters": ",".join(
            f"{n.node_id}@127.0.0.1:{n.controller_port}" for n in voters
        ),
        "controller.listener.names": "CONTROLLER",
        # An idle controller writes a record of metadata twice a second, and each broker reads it.
        "metadata.max.idle.interval.ms": "10000",
        **_common(node, brokers=sum(n.port is not None for n in everyone)),
        **properties,
    }
    return _text(settings)


def zookeeper_config(node: Node, zookeeper: str, properties: Mapping[str, str]) -> str:
    """A broker of a version that keeps its metadata in ZooKeeper."""
    settings = {
        "broker.id": str(node.node_id),
        "zookeeper.connect": zookeeper,
        "zookeeper.session.timeout.ms": "6000",
        **_common(node, brokers=1),
        **properties,
    }
    return _text(settings)


def _text(settings: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _common(node: Node, *, brokers: int) -> dict[str, str]:
    replicas = str(min(3, brokers))
    partitions = (
        "1" if brokers == 1 else "5"
    )  # several coordinators only where brokers can have them
    return {
        **_listeners(node),
        "log.dirs": str(node.folder / "data"),
        "auto.create.topics.enable": "false",
        # Sample records are of 1970: retention would delete a rolled segment of them within a test.
        "log.retention.ms": "-1",
        "group.initial.rebalance.delay.ms": "0",
        # A killed broker may come back only when its old session is over: 9 s by default.
        "broker.session.timeout.ms": "5000",
        "broker.heartbeat.interval.ms": "1000",
        "offsets.topic.num.partitions": partitions,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.num.partitions": partitions,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": "1",
        # Compaction within the time of a test: 15 s and a 128 MiB buffer by default.
        "log.cleaner.backoff.ms": "500",
        "log.cleaner.dedupe.buffer.size": str(8 << 20),
    }


def _listeners(node: Node) -> dict[str, str]:
    """Clients, other brokers and the controller each have a listener, all on loopback."""
    listening, advertised = [], []
    if node.port and node.advertised_port:
        clients = {"PLAINTEXT": (node.port, node.advertised_port), **node.more}
        clients["INTERNAL"] = node.internal_port, node.internal_port
        for name, (port, advertised_port) in clients.items():
            listening.append(f"{name}://127.0.0.1:{port}")
            advertised.append(f"{name}://127.0.0.1:{advertised_port}")
    if node.controller_port:
        listening.append(f"CONTROLLER://127.0.0.1:{node.controller_port}")
    names = ("PLAINTEXT", "INTERNAL", "CONTROLLER", *node.more)
    settings = {
        "listeners": ",".join(listening),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
    }
    if advertised:
        settings["advertised.listeners"] = ",".join(advertised)
        settings["inter.broker.listener.name"] = "INTERNAL"
    return settings
