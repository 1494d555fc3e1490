"""What leaders know of producers, and the reasons why single partitions are not known."""

from __future__ import annotations

from typing import Any

import pytest

from ureplicator_common.kafka import ClusterUnavailable, PartitionUnavailable
from ureplicator_common.kafka.client import Broker
from ureplicator_common.kafka.producer_states import TOO_OLD, ProducerState, producer_states
from ureplicator_testkit.kafka.clients import MemoryCluster
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_testkit.records import batches

T0, T1, T2 = ("t", 0), ("t", 1), ("t", 2)
DOWN = 2


class Cluster(MemoryCluster):
    """Two nodes lead the partitions in turn. `down`: nodes that cannot be reached."""

    def __init__(self) -> None:
        self.kafka = MemoryKafka("c", {"t": 3}, nodes=2)
        super().__init__(self.kafka)
        self.down: set[int] = set()
        self.calls: list[int] = []

    def call(self, broker: Broker, request: Any, response: Any) -> Any:
        if broker.node_id in self.down:
            raise ClusterUnavailable(f"{broker} refused", delay_s=0.7)
        if type(request).__name__ == "DescribeProducersRequest":
            self.calls.append(broker.node_id)
        return super().call(broker, request, response)

    def states(self, *keys: tuple[str, int]) -> Any:
        return producer_states(self, self.view([topic for topic, _ in keys]), keys)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def sent(id: int, sequence: int, *, epoch: int = 0, attributes: int = 0) -> bytes:
    made = batches.batch(2, producer_id=id, attributes=attributes)
    return batches.patched(made, base_sequence=sequence, producer_epoch=epoch)


def test_producers_of_each_partition(cluster: Cluster) -> None:
    first, second = cluster.kafka.logs[T0], cluster.kafka.logs[T1]
    first.produce(sent(7, 5))
    first.produce(sent(8, 0, epoch=3, attributes=batches.TRANSACTIONAL))
    second.mark(9, 4, coordinator_epoch=0, commit=False)
    assert cluster.states(T0, T1, T2) == {
        T0: {7: ProducerState(0, 6, 1_001, -1), 8: ProducerState(3, 1, 1_001, 2)},
        T1: {9: ProducerState(4, -1, 1_000, -1, 0)},
        T2: {},
    }
    assert sorted(cluster.calls) == [1, 2]


def reason_of(found: Any) -> tuple[str, float]:
    assert isinstance(found, PartitionUnavailable)
    return str(found), found.delay_s


def test_a_broker_that_is_down_fails_its_own_partitions_only(cluster: Cluster) -> None:
    cluster.down.add(DOWN)
    found = cluster.states(T0, T1, T2)
    assert reason_of(found[T1]) == (f"{cluster.kafka.nodes[DOWN]} refused", 0.7)
    assert (found[T0], found[T2]) == ({}, {})


def test_partitions_without_a_leader(cluster: Cluster) -> None:
    cluster.leaderless.add(T0)
    found = cluster.states(T0, T1, ("u", 0))
    assert "has no leader" in reason_of(found[T0])[0]
    assert "u/0 has no leader" in reason_of(found["u", 0])[0]
    assert found[T1] == {}


def test_a_leader_that_moved(cluster: Cluster) -> None:
    view = cluster.view(["t"])
    cluster.kafka.move(T0, DOWN)
    found = producer_states(cluster, view, [T0, T2])
    reason = "producers of t/0: NOT_LEADER_OR_FOLLOWER"
    assert (reason_of(found[T0])[0], found[T2]) == (reason, {})


def test_a_missing_right_is_named(cluster: Cluster) -> None:
    view = cluster.view(["t"])
    cluster.kafka.hidden.add("t")
    found = producer_states(cluster, view, [T0])
    lacks = "TOPIC_AUTHORIZATION_FAILED: the principal lacks READ on topic t at cluster c"
    assert reason_of(found[T0])[0] == f"producers of t/0: {lacks}"


def test_brokers_that_do_not_know_the_request(cluster: Cluster) -> None:
    cluster.versions.clear()
    assert reason_of(cluster.states(T0)[T0])[0] == TOO_OLD
    assert not cluster.calls
