"""A cluster of one broker in any version of Kafka: KRaft, or before 3.0 with its metadata in ZooKeeper.

Run as a program it makes the archives of Kafka's classes, from which the brokers of tests start faster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from ureplicator_testkit.servers.broker_config import Node, zookeeper_config
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.java import KAFKA_VERSIONS, archive_of_classes, new_archive
from ureplicator_testkit.servers.zookeeper import ZooKeeperServer


def kafka_of_version(
    version: str,
    *,
    name: str,
    properties: Mapping[str, str] | None = None,
    listeners: Sequence[str] = (),
) -> KafkaCluster:
    kind = ZooKeeperKafka if version < "3" else KafkaCluster
    return kind(name=name, version=version, properties=properties, listeners=listeners, heap_mb=256)


class ZooKeeperKafka(KafkaCluster):
    """A Kafka with a ZooKeeper of its own."""

    def __init__(
        self,
        *,
        name: str,
        version: str,
        properties: Mapping[str, str] | None,
        listeners: Sequence[str],
        heap_mb: int,
    ) -> None:
        super().__init__(
            name=name,
            version=version,
            properties=properties,
            listeners=listeners,
            heap_mb=heap_mb,
        )
        self._zookeeper = ZooKeeperServer(name=f"{name}-zookeeper", heap_mb=64)

    def start(self) -> Self:
        self._zookeeper.start()
        return super().start()

    def stop(self) -> None:
        super().stop()
        self._zookeeper.stop()

    def _format(self, *nodes: Node) -> None:
        """Logs of these versions are not formatted."""

    def _config(self, node: Node) -> str:
        return zookeeper_config(node, self._zookeeper.hosts, self._properties)


def make_archive(version: str) -> None:
    """Start and end a broker that writes down the classes it loaded."""
    archive = archive_of_classes(version)
    if archive.exists():
        return
    with (
        new_archive(archive) as options,
        KafkaCluster(name="archive", version=version, java_options=options) as cluster,
    ):
        cluster.shutdown()


if __name__ == "__main__":
    for version in KAFKA_VERSIONS:
        if version >= "3":  # few tests have a broker before it, which needs a ZooKeeper, too
            make_archive(version)
