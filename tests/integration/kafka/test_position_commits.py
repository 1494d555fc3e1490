"""Commits of positions that follow one another at once, on a real cluster."""

import math
from collections.abc import Iterator

import pytest
from kafka.protocol.admin.transactions import (  # type: ignore[import-untyped]  # no stubs
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.client import TRANSACTION_COORDINATOR, ClusterClient
from ureplicator_common.kafka.positions import PositionStore
from ureplicator_common.kafka.transactions import markers
from ureplicator_common.kafka.transactions.markers import transaction_state
from ureplicator_common.kafka.transactions.producers import TransactionProtocol
from ureplicator_common.model import (
    MAX_TRANSACTION_INTERVAL_MS,
    TRANSACTION_TIMEOUT_MS,
    position_group,
)
from ureplicator_testkit.copier.driver import ROUTE
from ureplicator_testkit.records.topics import create_topic
from ureplicator_testkit.servers.clusters import KafkaCluster

COMMITS = 300
WAITED = 50


@pytest.fixture
def client(target_cluster: KafkaCluster, topic: str) -> Iterator[ClusterClient]:
    """A client of the target, where the topic has two partitions."""
    create_topic(target_cluster.bootstrap, topic, partitions=2)
    client = ClusterClient(target_cluster.bootstrap)
    yield client
    client.close()


@pytest.fixture
def store(client: ClusterClient, fleet: str) -> PositionStore:
    group = position_group(fleet=fleet, route=ROUTE)
    store = PositionStore(client, group=group, transactional_id=fleet)
    store.initialise()
    return store


def commit(store: PositionStore, topic: str, offset: int) -> None:
    store.commit({(topic, number): Position(offset) for number in range(2)})


def test_a_commit_waits_for_the_markers_of_the_one_before(store: PositionStore, topic: str) -> None:
    """Otherwise the partitions of a refused commit would start again, and repeat records."""
    assert store.producer.protocol is TransactionProtocol.IMPLICIT
    for offset in range(COMMITS):
        commit(store, topic, offset)
    found = store.read({topic: [0, 1]})
    assert {*found.values()} == {Position(COMMITS - 1)}


def test_the_markers_of_a_commit_are_written_when_it_was_waited_for_them(
    client: ClusterClient,
    store: PositionStore,
    fleet: str,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise most transactions are still being ended a millisecond later. However slow the broker is here,
    waiting is worth it."""
    monkeypatch.setattr(markers, "WORTH_S", math.inf)
    monkeypatch.setattr(markers, "LONGEST_S", math.inf)
    states: list[str] = []
    for offset in range(WAITED):
        commit(store, topic, offset)
        store.wait_for_markers()
        states.append(transaction_state(client, fleet))
    assert states == ["CompleteCommit"] * WAITED


@pytest.mark.usefixtures("store")
def test_the_coordinator_has_the_time_out_that_bounds_the_interval(
    client: ClusterClient, fleet: str
) -> None:
    """It aborts a transaction that is open for longer, so one must be committed long before."""
    response = client.call(
        client.coordinator(fleet, TRANSACTION_COORDINATOR),
        DescribeTransactionsRequest(version=0, transactional_ids=[fleet]),
        DescribeTransactionsResponse,
    )
    (found,) = response.transaction_states
    assert found.transaction_timeout_ms == TRANSACTION_TIMEOUT_MS >= 2 * MAX_TRANSACTION_INTERVAL_MS
