"""The target's `transaction.version` is upgraded while records are copied exactly once (KIP-890)."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.protocol.admin import (  # type: ignore[attr-defined]  # not in the stubs
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

from ureplicator_common.kafka.client import TRANSACTION_COORDINATOR, ClusterClient
from ureplicator_common.kafka.features import TRANSACTION_FEATURE, transaction_support
from ureplicator_common.kafka.positions import PROTOCOL_CHECK_S
from ureplicator_common.kafka.transactions.producers import TransactionProtocol
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.copier.lanes import LANES, granting
from ureplicator_testkit.records.labels import assert_holds
from ureplicator_testkit.records.load import Load
from ureplicator_testkit.records.topics import read_all
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually

PARTITIONS = 3
IN_TRANSACTIONS = LANES["exactly_once-handled"]
EPOCHS = 20
"""More than errors bring: with the implicit protocol each transaction has one."""
UPGRADE = 1
RECORDS_PER_S = 200
"""Enough for a transaction at each turn of the copier."""


@pytest.fixture
def target() -> Iterator[KafkaCluster]:
    with KafkaCluster(name="upgraded", features={TRANSACTION_FEATURE: 1}) as cluster:
        yield cluster


@pytest.fixture
def client(target: KafkaCluster) -> Iterator[ClusterClient]:
    client = ClusterClient(target.bootstrap)
    yield client
    client.close()


@pytest.fixture
def lane(
    source_cluster: KafkaCluster, target: KafkaCluster, topic: str, fleet: str, tmp_path: Path
) -> Iterator[RealLane]:
    lane = RealLane(source_cluster, target, topic, fleet, tmp_path)
    yield lane
    lane.close()


def upgrade(client: ClusterClient) -> None:
    update = UpdateFeaturesRequest.FeatureUpdateKey(
        feature=TRANSACTION_FEATURE, max_version_level=2, upgrade_type=UPGRADE
    )
    request = UpdateFeaturesRequest(
        version=1, timeout_ms=10_000, feature_updates=[update], validate_only=False
    )
    response = client.call_any(lambda: request, UpdateFeaturesResponse)
    assert response.error_code == 0, response


def epoch(client: ClusterClient, transactional_id: str) -> int:
    request = DescribeTransactionsRequest(version=0, transactional_ids=[transactional_id])
    coordinator = client.coordinator(transactional_id, TRANSACTION_COORDINATOR)
    response = client.call(coordinator, request, DescribeTransactionsResponse)
    (state,) = response.transaction_states
    return int(state.producer_epoch)


def test_an_upgrade_is_followed_while_records_are_copied(
    lane: RealLane, client: ClusterClient
) -> None:
    """The copier finds it between two transactions, and repeats nothing."""
    assert transaction_support(client).protocol is TransactionProtocol.ADDED
    lane.make(PARTITIONS)
    (id,) = lane.ids("w1")
    source = lane.source.bootstrap
    with Load(source, lane.topic, partitions=PARTITIONS, records_per_s=RECORDS_PER_S) as load:
        driver = lane.start(PARTITIONS, grant=granting(IN_TRANSACTIONS))
        driver.wait_caught_up(60)
        before = epoch(client, id)
        assert before < EPOCHS
        upgrade(client)
        assert transaction_support(client).protocol is TransactionProtocol.IMPLICIT
        eventually(
            lambda: epoch(client, id) > before + EPOCHS, 2 * PROTOCOL_CHECK_S, "it is followed"
        )
    driver.wait_caught_up(60)
    driver.stop()
    assert len(driver.proof_requests) == 1, "without an abort"
    lane.assert_equal()
    assert_holds(read_all(lane.target.bootstrap, lane.topic), lane.topic, load.acknowledged)
