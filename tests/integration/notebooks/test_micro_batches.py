"""The query of Structured Streaming that the bench measures beside a slot copies every record."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ureplicator_bench.load import Profile
from ureplicator_bench.servers import Servers
from ureplicator_bench.spark.contenders import StructuredStreaming
from ureplicator_testkit.records.topics import (
    compare_logs,
    create_topic,
    offsets,
    produce,
    sample_records,
)
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually
from ureplicator_testkit.servers.zookeeper import ZooKeeperServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

PARTITIONS, RECORDS, COPIED_S = 4, 500, 120.0


def test_it_finds_the_data_source_without_any_setting(
    zookeeper: ZooKeeperServer,
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    source_topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark looks for it with the `python3` of the path, which may be another one."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin", prepend=":")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    source, target = source_cluster.bootstrap, target_cluster.bootstrap
    create_topic(target, source_topic, partitions=PARTITIONS)
    produce(source, source_topic, sample_records(RECORDS, partitions=PARTITIONS))
    streaming = StructuredStreaming(Servers(zookeeper, source_cluster, target_cluster), tmp_path)
    streaming.start([source_topic], Profile("streaming", records=RECORDS, size=100))

    def is_copied() -> bool:
        for process in streaming.processes():
            process.assert_running()
        return sum(end for _, end in offsets(target, source_topic).values()) >= RECORDS

    try:
        eventually(is_copied, COPIED_S, "every record is copied")
    finally:
        streaming.stop()
    compare_logs(source, target, source_topic).assert_clean()
