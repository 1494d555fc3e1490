"""Leaders, when brokers disagree about them."""

from dataclasses import replace

from ureplicator_common.kafka.client import Broker, ClusterView, Leader
from ureplicator_worker.copier.net.connections import newest_leaders

KEY = ("t", 0)


def view(node_id: int, epoch: int, topic_id: str = "id") -> ClusterView:
    return ClusterView(
        cluster_id="c",
        brokers={1: Broker(1, "h", 1), 2: Broker(2, "h", 2)},
        leaders={KEY: Leader(node_id, epoch)},
        topic_ids={"t": topic_id},
    )


def test_a_broker_that_lags_behind_does_not_bring_a_former_leader_back() -> None:
    assert newest_leaders(view(2, 7), view(1, 6)) == {KEY: Leader(2, 7)}
    assert newest_leaders(view(1, 6), view(2, 7)) == {KEY: Leader(2, 7)}


def test_a_leader_that_is_gone_without_a_successor_is_accepted() -> None:
    assert newest_leaders(view(1, 6), view(-1, 6)) == {KEY: Leader(-1, 6)}


def test_a_recreated_topic_begins_with_its_own_epochs() -> None:
    assert newest_leaders(view(2, 7), view(1, 0, "other")) == {KEY: Leader(1, 0)}


def test_a_topic_that_is_gone_stays_gone() -> None:
    assert newest_leaders(view(2, 7), replace(view(1, 0), leaders={}, topic_ids={})) == {}
