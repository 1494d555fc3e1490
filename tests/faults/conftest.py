"""Servers that a fault test may break, one set for all of them: each test leaves them running."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ureplicator_testkit.clusters import KafkaCluster, ZooKeeperServer, start_all
from ureplicator_testkit.fleet import Fleet, fleet_on
from ureplicator_testkit.topics import create_topic

Servers = tuple[ZooKeeperServer, KafkaCluster, KafkaCluster]
StartFleet = Callable[..., Fleet]

PARTITIONS = 4


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    zookeeper = ZooKeeperServer()
    source, target = KafkaCluster(name="faulty-source"), KafkaCluster(name="faulty-target")
    try:
        start_all(zookeeper, source, target)
        yield zookeeper, source, target
    finally:
        for server in (target, source, zookeeper):
            server.stop()


@pytest.fixture
def filled_topic(servers: Servers, topic: str) -> str:
    """A source topic of four partitions."""
    create_topic(servers[1].bootstrap, topic, partitions=PARTITIONS)
    return topic


@pytest.fixture
def start_fleet(servers: Servers, fleet: str, tmp_path: Path) -> Iterator[StartFleet]:
    """Start a fleet; nothing of it is left after the test."""
    fleets: list[Fleet] = []

    def start(*, controllers: int = 1, workers: int = 1, **settings: Any) -> Fleet:
        made = fleet_on(servers, name=fleet, folder=tmp_path, **settings)
        fleets.append(made)
        return made.start(controllers=controllers, workers=workers)

    yield start
    for made in fleets:
        made.kill()
