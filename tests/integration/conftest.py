"""Fixtures of the tests against real servers: what most of them begin with."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.records.topics import create_topic
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.zookeeper import ZooKeeperServer
from ureplicator_testkit.spark import engines


@pytest.fixture(scope="module", autouse=True)
def no_former_jvm() -> Iterator[None]:
    """pyspark keeps the JVM of a process in a class, also one that has ended."""
    engines.forget_jvm()
    yield
    engines.forget_jvm()


@pytest.fixture
def source_topic(source_cluster: KafkaCluster, topic: str) -> str:
    """An empty topic of four partitions at the source."""
    create_topic(source_cluster.bootstrap, topic, partitions=4)
    return topic


@pytest.fixture
def lane(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    topic: str,
    fleet: str,
    tmp_path: Path,
) -> Iterator[RealLane]:
    """A topic that exists nowhere yet, between the two clusters."""
    lane = RealLane(source_cluster, target_cluster, topic, fleet, tmp_path)
    yield lane
    lane.close()


@pytest.fixture
def fleet_options() -> dict[str, Any]:
    """Of `whole_fleet`; a module may have its own."""
    return {}


@pytest.fixture
def whole_fleet(
    zookeeper: ZooKeeperServer,
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    fleet: str,
    tmp_path: Path,
    fleet_options: dict[str, Any],
) -> Iterator[Fleet]:
    """Controllers and workers, not started yet; whatever is left of them is killed."""
    whole = Fleet(
        name=fleet,
        folder=tmp_path,
        zookeeper=zookeeper.hosts,
        source=source_cluster.bootstrap,
        target=target_cluster.bootstrap,
        **fleet_options,
    )
    try:
        yield whole
    finally:
        whole.kill()
