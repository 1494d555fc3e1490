"""Fixtures of the tests against real servers: what most of them begin with."""

import pytest

from ureplicator_testkit.clusters import KafkaCluster
from ureplicator_testkit.topics import create_topic


@pytest.fixture
def source_topic(source_cluster: KafkaCluster, topic: str) -> str:
    """An empty topic of four partitions at the source."""
    create_topic(source_cluster.bootstrap, topic, partitions=4)
    return topic
