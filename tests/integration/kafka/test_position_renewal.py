"""The leader renews positions without an owner, on a real cluster: unchanged, and never as a zombie."""

from collections.abc import Iterator, Mapping

import pytest

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.positions import PositionStore, read_positions
from ureplicator_common.kafka.transactions.coordinator_requests import Fenced
from ureplicator_common.kafka.transactions.fencing import fence_ids
from ureplicator_common.kafka.transactions.position_rows import all_readable
from ureplicator_common.model import RENEWER, Partition, Route, position_group, transactional_id
from ureplicator_controller.core.positions.orphaned import OrphanedPosition
from ureplicator_controller.engines.position_renewal import Renewal, open_renewal, renew
from ureplicator_testkit.copier.driver import ROUTE
from ureplicator_testkit.records.topics import create_topic
from ureplicator_testkit.servers.clusters import KafkaCluster


@pytest.fixture
def client(target_cluster: KafkaCluster) -> Iterator[ClusterClient]:
    client = ClusterClient(target_cluster.bootstrap)
    yield client
    client.close()


@pytest.fixture
def renewal(
    target_cluster: KafkaCluster, client: ClusterClient, fleet: str, topic: str
) -> Iterator[Renewal]:
    """Two partitions of a topic, with positions that an owner committed."""
    create_topic(target_cluster.bootstrap, topic, partitions=2)
    store = PositionStore(
        client, group=position_group(fleet=fleet, route=ROUTE), transactional_id=f"{fleet}.owner"
    )
    store.initialise()
    store.commit({(topic, 0): Position(5, 1, "mine"), (topic, 1): Position(7)})
    renewal = open_renewal(fleet=fleet, route=ROUTE, client=ClusterClient(target_cluster.bootstrap))
    yield renewal
    renewal.client.close()


def stored(client: ClusterClient, fleet: str, topic: str) -> Mapping[tuple[str, int], Position]:
    group = position_group(fleet=fleet, route=ROUTE)
    return all_readable(read_positions(client, group, {topic: [0, 1]}))


def test_positions_are_committed_again_unchanged(
    renewal: Renewal, client: ClusterClient, fleet: str, topic: str
) -> None:
    before = stored(client, fleet, topic)
    both = {Partition(ROUTE, topic, number): OrphanedPosition(topic) for number in range(2)}
    assert renew(renewal, lambda _: both) == 2
    assert stored(client, fleet, topic) == before
    assert before[(topic, 0)] == Position(5, 1, "mine")


def test_a_refused_position_does_not_prevent_renewal_of_others(
    renewal: Renewal, client: ClusterClient, fleet: str, topic: str
) -> None:
    found = {
        Partition(ROUTE, topic, 0): OrphanedPosition(topic),
        Partition(ROUTE, "gone", 3): OrphanedPosition(f"{topic}-that-is-not-there"),
    }
    assert renew(renewal, lambda _: found) == 1
    assert stored(client, fleet, topic)[(topic, 0)].offset == 5


def test_a_partition_with_a_new_owner_is_not_renewed(
    renewal: Renewal, client: ClusterClient, fleet: str, topic: str
) -> None:
    """The new owner fences the leader's id, as every copier does, after the leader's proof."""
    queries: list[Route] = []

    def proof(route: Route) -> Mapping[Partition, OrphanedPosition]:
        queries.append(route)
        if len(queries) == 2:
            id = transactional_id(fleet=fleet, route=ROUTE, worker=RENEWER, slot=0)
            fence_ids(client, [id])
        return {Partition(ROUTE, topic, 0): OrphanedPosition(topic)}

    with pytest.raises(Fenced):
        renew(renewal, proof)
    assert stored(client, fleet, topic)[(topic, 0)] == Position(5, 1, "mine")
