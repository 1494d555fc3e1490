"""Fixtures of the tests against real servers: what most of them begin with."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ureplicator_testkit.clusters import KafkaCluster
from ureplicator_testkit.lane import Lane
from ureplicator_testkit.topics import create_topic


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
) -> Iterator[Lane]:
    """A topic that exists nowhere yet, between the two clusters."""
    lane = Lane(source_cluster, target_cluster, topic, fleet, tmp_path)
    yield lane
    lane.close()
