"""Partitions go from one live worker to another under load: nothing is missing, nothing repeated."""

from ureplicator_bench.fleets import handover
from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.servers.clusters import KafkaCluster

SANE_MS = 10_000
"""A gap that is long even for a busy machine; `scripts/bench --handover` measures on a quiet one."""


def test_moves_between_live_workers_repeat_and_lose_nothing(
    running: Fleet, source_cluster: KafkaCluster, target_cluster: KafkaCluster, topic: str
) -> None:
    found = handover.measure(
        running,
        source_cluster.bootstrap,
        target_cluster.bootstrap,
        topic,
        partitions=4,
        moves=16,
    )
    print(found)
    assert found.moves >= 16
    assert found.faults == 0
    assert found.max_ms < SANE_MS
