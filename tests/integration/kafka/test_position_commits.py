"""Commits of positions that follow one another at once, on a real cluster."""

from kafka.protocol.admin.transactions import (  # type: ignore[import-untyped]  # no stubs
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.client import TRANSACTION_COORDINATOR, ClusterClient
from ureplicator_common.kafka.positions import PositionStore
from ureplicator_common.kafka.transactions.producers import TransactionProtocol
from ureplicator_common.model import position_group
from ureplicator_testkit.copier.driver import ROUTE
from ureplicator_testkit.records.topics import create_topic
from ureplicator_testkit.servers.clusters import KafkaCluster

COMMITS = 300
WAITED = 50


def test_a_commit_waits_for_the_markers_of_the_one_before(
    target_cluster: KafkaCluster, fleet: str, topic: str
) -> None:
    """Otherwise the partitions of a refused commit would start again, and repeat records."""
    create_topic(target_cluster.bootstrap, topic, partitions=2)
    client = ClusterClient(target_cluster.bootstrap)
    group = position_group(fleet=fleet, route=ROUTE)
    store = PositionStore(client, group=group, transactional_id=fleet)
    try:
        store.initialise()
        assert store.producer.protocol is TransactionProtocol.IMPLICIT
        for offset in range(COMMITS):
            store.commit({(topic, number): Position(offset) for number in range(2)})
        found = store.read({topic: [0, 1]})
    finally:
        client.close()
    assert {position.offset for position in found.values()} == {COMMITS - 1}


def test_the_markers_of_a_commit_are_written_when_it_was_waited_for_them(
    target_cluster: KafkaCluster, fleet: str, topic: str
) -> None:
    """Otherwise most transactions are still being ended a millisecond later."""
    create_topic(target_cluster.bootstrap, topic, partitions=2)
    client = ClusterClient(target_cluster.bootstrap)
    group = position_group(fleet=fleet, route=ROUTE)
    store = PositionStore(client, group=group, transactional_id=fleet)
    states: list[str] = []
    try:
        store.initialise()
        for offset in range(WAITED):
            store.commit({(topic, number): Position(offset) for number in range(2)})
            store.wait_for_markers()
            states.append(state(client, fleet))
    finally:
        client.close()
    assert states == ["CompleteCommit"] * WAITED


def state(client: ClusterClient, transactional_id: str) -> str:
    response = client.call(
        client.coordinator(transactional_id, TRANSACTION_COORDINATOR),
        DescribeTransactionsRequest(version=0, transactional_ids=[transactional_id]),
        DescribeTransactionsResponse,
    )
    (found,) = response.transaction_states
    return str(found.transaction_state)
