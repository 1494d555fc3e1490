"""Positions forgotten on a real cluster: what is copied again begins at the start."""

from collections.abc import Callable, Iterator

import pytest

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.positions import Fenced, fence_ids
from ureplicator_common.kafka.wire import ClusterClient
from ureplicator_common.model import RENEWER, transactional_id
from ureplicator_controller.core.forgetting import Forgettable
from ureplicator_controller.engines.forgetting import forget
from ureplicator_controller.engines.offsets import Renewal, open_renewal
from ureplicator_testkit.clusters import KafkaCluster
from ureplicator_testkit.driver import ROUTE, StubDriver
from ureplicator_testkit.topics import produce, read_all, sample_records

Start = Callable[..., StubDriver]
Stored = Callable[[str, int], dict[int, Position]]


@pytest.fixture
def renewal(target_cluster: KafkaCluster, fleet: str) -> Iterator[Renewal]:
    renewal = open_renewal(fleet=fleet, route=ROUTE, bootstrap=target_cluster.bootstrap)
    yield renewal
    renewal.client.close()


@pytest.fixture
def copied(
    source_cluster: KafkaCluster, topic: str, both: Callable[..., None], start: Start
) -> str:
    """A topic of two partitions and 40 records, copied once."""
    both(topic, 2)
    produce(source_cluster.bootstrap, topic, sample_records(40, partitions=2, seed=1))
    driver = start(topic, 2)
    driver.wait_caught_up()
    driver.stop()
    return topic


def test_what_is_copied_again_begins_at_the_start(
    copied: str, renewal: Renewal, stored: Stored, target_cluster: KafkaCluster, start: Start
) -> None:
    assert all(position.offset > 0 for position in stored(copied, 2).values())
    assert forget(renewal, lambda: Forgettable(copied, 2, ())) == 2
    assert [position.offset for position in stored(copied, 2).values()] == [-1, -1]
    assert forget(renewal, lambda: Forgettable(copied, 2, ())) == 0
    driver = start(copied, 2, epoch=2)
    driver.wait_caught_up()
    driver.stop()
    logs = read_all(target_cluster.bootstrap, copied)
    assert sum(map(len, logs.values())) == 80


def test_a_target_topic_that_is_gone(renewal: Renewal, topic: str) -> None:
    assert forget(renewal, lambda: Forgettable(f"{topic}-gone", 2, ())) == 0


def test_a_leader_that_froze_forgets_nothing_of_the_next_life(
    copied: str, renewal: Renewal, stored: Stored, target_cluster: KafkaCluster, fleet: str
) -> None:
    """The topic's next owner fences the leader's id after that leader's proof."""
    before = stored(copied, 2)

    def proven() -> Forgettable:
        id = transactional_id(fleet=fleet, route=ROUTE, worker=RENEWER, slot=0)
        client = ClusterClient(target_cluster.bootstrap)
        fence_ids(client, [id])
        client.close()
        return Forgettable(copied, 2, ())

    with pytest.raises(Fenced):
        forget(renewal, proven)
    assert stored(copied, 2) == before
