"""Fixtures of the tests against real servers: what most of them begin with."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

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


@pytest.fixture(scope="session")
def new_fleet(
    zookeeper: ZooKeeperServer, source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> Callable[..., Fleet]:
    """A fleet between the servers of all tests, not started yet; `with` kills whatever is left of it."""
    return partial(
        Fleet,
        zookeeper=zookeeper.hosts,
        source=source_cluster.bootstrap,
        target=target_cluster.bootstrap,
    )
