"""First and last offsets, and those of times, of partitions whose leaders come and go."""

import pytest

from ureplicator_common.kafka import BatchTime
from ureplicator_common.kafka.client import EARLIEST, LATEST
from ureplicator_testkit.kafka.clients import MemoryCluster
from ureplicator_testkit.kafka.cluster import cluster_model
from ureplicator_worker.records.errors import RangeUnavailable
from ureplicator_worker.records.offsets import offsets_of

T0, T1 = ("t", 0), ("t", 1)


@pytest.fixture
def cluster() -> MemoryCluster:
    model = cluster_model("A", {"t": 2})
    model.hold(start=3, end=9)
    model.logs[T1].open_from = 7
    model.logs[T0].times = [BatchTime(3, 5, 1_000), BatchTime(6, 8, 2_000)]
    return MemoryCluster(model)


def test_the_ends_of_logs_and_times(cluster: MemoryCluster) -> None:
    assert offsets_of(cluster, {T1: LATEST, T0: EARLIEST}) == {T1: 7, T0: 3}
    assert offsets_of(cluster, {T0: 1_500}) == {T0: 6}
    assert offsets_of(cluster, {T0: 2_500}) == {T0: 9}
    assert offsets_of(cluster, {}) == {}


def test_a_partition_without_a_leader_is_tried_again(cluster: MemoryCluster) -> None:
    cluster.leaderless = {T1}
    cluster.pause = lambda delay_s: cluster.leaderless.clear()
    assert offsets_of(cluster, {T0: LATEST, T1: LATEST}) == {T0: 9, T1: 7}


def test_a_partition_that_has_no_leader_for_long(cluster: MemoryCluster) -> None:
    cluster.leaderless = {T1}
    with pytest.raises(RangeUnavailable, match="t/1 has no leader"):
        offsets_of(cluster, {T0: LATEST, T1: LATEST}, timeout_s=0)
