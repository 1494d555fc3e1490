"""Positions deleted on a real cluster: a topic copied again starts at the beginning."""

from collections.abc import Iterator

import pytest

from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.transactions.coordinator_requests import Fenced
from ureplicator_common.kafka.transactions.fencing import fence_ids
from ureplicator_common.model import RENEWER, transactional_id
from ureplicator_controller.core.positions.deletion import DeletablePositions
from ureplicator_controller.engines.position_deletion import delete_positions
from ureplicator_controller.engines.position_renewal import Renewal, open_renewal
from ureplicator_testkit.copier.driver import ROUTE
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.records.topics import sample_records
from ureplicator_testkit.servers.clusters import KafkaCluster


@pytest.fixture
def renewal(target_cluster: KafkaCluster, fleet: str) -> Iterator[Renewal]:
    renewal = open_renewal(fleet=fleet, route=ROUTE, client=ClusterClient(target_cluster.bootstrap))
    yield renewal
    renewal.client.close()


@pytest.fixture
def copied(lane: RealLane) -> RealLane:
    """A topic of two partitions and 40 records, copied once."""
    lane.make(2)
    lane.fill(sample_records(40, partitions=2, seed=1))
    copy_all(lane)
    return lane


def copy_all(lane: RealLane, *, epoch: int = 1) -> None:
    driver = lane.start(2, epoch=epoch)
    driver.wait_caught_up()
    driver.stop()


def test_a_topic_copied_again_starts_at_the_beginning(copied: RealLane, renewal: Renewal) -> None:
    assert all(position.offset > 0 for position in copied.stored(2).values())
    assert delete_positions(renewal, lambda: DeletablePositions(copied.topic, 2, (), 1)) == (2, 1)
    assert [position.offset for position in copied.stored(2).values()] == [-1, -1]
    assert delete_positions(renewal, lambda: DeletablePositions(copied.topic, 2, (), 1)) == (0, 1)
    copy_all(copied, epoch=2)
    assert sum(map(len, copied.copied().values())) == 80


def test_deletion_without_the_target_topic(renewal: Renewal, topic: str) -> None:
    assert delete_positions(renewal, lambda: DeletablePositions(f"{topic}-gone", 2, (), 1)) == (
        0,
        1,
    )


def test_a_frozen_leader_deletes_no_position_of_the_next_owner(
    copied: RealLane, renewal: Renewal
) -> None:
    """The topic's next owner fences the leader's id after that leader's proof."""
    before = copied.stored(2)

    def proven() -> DeletablePositions:
        id = transactional_id(fleet=copied.fleet, route=ROUTE, worker=RENEWER, slot=0)
        client = ClusterClient(copied.target.bootstrap)
        fence_ids(client, [id])
        client.close()
        return DeletablePositions(copied.topic, 2, (), 1)

    with pytest.raises(Fenced):
        delete_positions(renewal, proven)
    assert copied.stored(2) == before
