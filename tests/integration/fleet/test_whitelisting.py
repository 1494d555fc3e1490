"""Topics are whitelisted one after the other beside others, as `scripts/bench --control` measures it."""

from __future__ import annotations

from pathlib import Path

from ureplicator_bench.fleets import whitelisting
from ureplicator_bench.servers import Servers
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.zookeeper import ZooKeeperServer

OTHERS, TIMES = 5, 2


def test_topics_beside_others_come_online(
    zookeeper: ZooKeeperServer,
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    tmp_path: Path,
) -> None:
    servers = Servers(zookeeper, source_cluster, target_cluster)
    found = whitelisting.measure(servers, tmp_path, others=OTHERS, times=TIMES)
    assert (found.others, len(found.each)) == (OTHERS, TIMES)
    for steps in found.each:
        assert 0 < steps.written <= steps.assigned <= steps.online
