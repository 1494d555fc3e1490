"""Equal offsets without the right to write control records on request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported without __all__
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from ureplicator_common.model import OwnerEpoch, Partition
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.copier.owners import COPIED_S, SAME
from ureplicator_testkit.histories.events import READ_UNCOMMITTED
from ureplicator_testkit.records.topics import delete_records, offsets, read_all
from ureplicator_testkit.secured.brokers import USER, granted
from ureplicator_testkit.secured.ends import Secured, logins
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_worker.lifeline.messages import Grant

pytestmark = pytest.mark.integration

TURNS = 12
"""They leave over a hundred offsets without a record. Then the copier logs how they were filled."""
DELETED = 20


@pytest.fixture
def lane(secured: Secured, topic: str, fleet: str, tmp_path: Path) -> Iterator[RealLane]:
    lane = RealLane(secured.source, secured.target, topic, fleet, tmp_path)
    lane.make(1)
    yield lane
    lane.close()


@pytest.fixture
def without_alter(secured: Secured) -> Iterator[None]:
    """Neither ALTER nor CLUSTER_ACTION on the target cluster, and all else."""
    where = (ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL)
    denied = [
        AclBinding(*where, f"User:{USER}", "*", operation, AclPermissionType.DENY)
        for operation in (AclOperation.ALTER, AclOperation.CLUSTER_ACTION)
    ]
    everyone = AclBinding(*where, "User:*", "*", AclOperation.ALL, AclPermissionType.ALLOW)
    with granted(secured.target, [everyone, *denied]):
        yield


def same(partition: Partition, epoch: OwnerEpoch) -> Grant:
    return Grant(epoch, partition.topic, settings=SAME)


def test_gaps_are_filled_by_transactions(
    lane: RealLane, without_alter: None, secured: Secured
) -> None:
    for turn in range(TURNS):
        lane.fill_in_turn(turn)
    delete_records(lane.source.bootstrap, lane.topic, {0: DELETED})
    driver = lane.start(1, grant=same, properties=logins(secured, "SCRAM-SHA-512"))
    driver.wait_caught_up(COPIED_S)
    driver.stop()
    assert "without ALTER on the cluster" in driver.process.log_text()
    assert_same(lane)
    assert ends(lane.target, lane)[0][0] == DELETED


def assert_same(lane: RealLane) -> None:
    wanted, found = read_all(lane.source.bootstrap, lane.topic), lane.copied(READ_UNCOMMITTED)
    for number, rows in wanted.items():
        assert [(row.offset, row.value) for row in found[number]] == [
            (row.offset, row.value) for row in rows
        ]
    assert ends(lane.source, lane) == ends(lane.target, lane)


def ends(cluster: KafkaCluster, lane: RealLane) -> Mapping[int, tuple[int, int]]:
    return offsets(cluster.bootstrap, lane.topic)
