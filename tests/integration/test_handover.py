"""Partitions go from one live worker to another under load: nothing is missing, nothing repeated."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ureplicator_bench import handover
from ureplicator_testkit.clusters import KafkaCluster, ZooKeeperServer
from ureplicator_testkit.fleet import Fleet

SANE_MS = 10_000
"""A gap that is long even for a busy machine; `scripts/bench --handover` measures on a quiet one."""


@pytest.fixture
def running_fleet(
    zookeeper: ZooKeeperServer,
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    fleet: str,
    tmp_path: Path,
) -> Iterator[Fleet]:
    running = Fleet(
        name=fleet,
        folder=tmp_path,
        zookeeper=zookeeper.hosts,
        source=source_cluster.bootstrap,
        target=target_cluster.bootstrap,
    )
    yield running.start(workers=2)
    running.kill()


def test_moves_between_live_workers_repeat_and_lose_nothing(
    running_fleet: Fleet, source_cluster: KafkaCluster, target_cluster: KafkaCluster, topic: str
) -> None:
    found = handover.measure(
        running_fleet,
        source_cluster.bootstrap,
        target_cluster.bootstrap,
        topic,
        partitions=4,
        moves=16,
    )
    running_fleet.stop()
    print(found)
    assert found.moves >= 16
    assert found.faults == 0
    assert found.max_ms < SANE_MS
