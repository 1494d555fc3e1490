"""Fixtures of the tests against real servers: what most of them begin with."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.positions import read_positions
from ureplicator_common.kafka.wire import ClusterClient
from ureplicator_common.model import position_group
from ureplicator_testkit.clusters import KafkaCluster
from ureplicator_testkit.driver import ROUTE, StubDriver, partitions_of
from ureplicator_testkit.topics import create_topic

Start = Callable[..., StubDriver]


@pytest.fixture
def source_topic(source_cluster: KafkaCluster, topic: str) -> str:
    """An empty topic of four partitions at the source."""
    create_topic(source_cluster.bootstrap, topic, partitions=4)
    return topic


@pytest.fixture
def start(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, fleet: str, tmp_path: Path
) -> Iterator[Start]:
    """Start copiers; all of them are gone after the test."""
    drivers: list[StubDriver] = []

    def begin(topic: str, count: int, *, epoch: int = 1, **options: object) -> StubDriver:
        driver = StubDriver(
            partitions_of(topic, count, epoch=epoch),
            source=source_cluster.bootstrap,
            target=target_cluster.bootstrap,
            fleet=fleet,
            folder=tmp_path,
            **options,  # type: ignore[arg-type]
        )
        drivers.append(driver)
        return driver

    yield begin
    for driver in drivers:
        driver.close()


@pytest.fixture
def both(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> Callable[..., None]:
    """Make a topic on both clusters, the target's with its defaults."""

    def make(topic: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        create_topic(source_cluster.bootstrap, topic, partitions=partitions, config=config)
        create_topic(target_cluster.bootstrap, topic, partitions=partitions)

    return make


@pytest.fixture
def stored(target_cluster: KafkaCluster, fleet: str) -> Callable[[str, int], dict[int, Position]]:
    """What the position store holds for a topic."""

    def read(topic: str, count: int) -> dict[int, Position]:
        client = ClusterClient(target_cluster.bootstrap)
        try:
            group = position_group(fleet=fleet, route=ROUTE)
            found = read_positions(client, group, {topic: range(count)})
        finally:
            client.close()
        return {number: position for (_, number), position in found.items()}

    return read
