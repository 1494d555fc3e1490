"""Fixtures of the tests against real servers: what most of them begin with."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.records.topics import create_topic
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.zookeeper import ZooKeeperServer


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
def whole_fleet(
    zookeeper: ZooKeeperServer,
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    fleet: str,
    tmp_path: Path,
) -> Iterator[Fleet]:
    """Controllers and workers, not started yet; whatever is left of them is killed."""
    whole = Fleet(
        name=fleet,
        folder=tmp_path,
        zookeeper=zookeeper.hosts,
        source=source_cluster.bootstrap,
        target=target_cluster.bootstrap,
    )
    try:
        yield whole
    finally:
        whole.kill()
