"""Replicas that are too few, or that move: nothing is lost, repeated or out of order.

Every test ends with both logs, of two routes, and all commits, read from the beginning. The last one adds
brokers that stay.
"""

from contextlib import closing

import pytest

from ureplicator_common.kafka.admin import ConfluentTopicAdmin
from ureplicator_common.model import BROKER_DEFAULT_REPLICATION
from ureplicator_testkit.fleet.real_fleet import Fleet
from ureplicator_testkit.records.flow import Flow
from ureplicator_testkit.records.watched import WatchedTopic
from ureplicator_testkit.servers.processes import eventually
from ureplicator_testkit.servers.replicas import ROTATED, reassign
from ureplicator_testkit.servers.replicated import ReplicatedServers

REPORTED_S = 30


def test_a_target_below_its_minimum_of_replicas_in_sync(
    site: ReplicatedServers, fleet: Fleet, flows: list[Flow], watched: WatchedTopic
) -> None:
    """One broker of three is left: it leads everything and acknowledges nothing."""
    for broker in (2, 3):
        site.target.kill(broker)
    watched.begin()
    eventually(
        lambda: all(watched.stands_still(number) for number in range(watched.partitions)),
        REPORTED_S,
        "every partition is in ERROR with a reason",
    )
    site.heal()
    watched.wait_moving()
    for flow in flows:
        flow.judge()
    watched.judge()


@pytest.mark.parametrize(("factor", "expected"), [(BROKER_DEFAULT_REPLICATION, 3), (1, 1), (2, 2)])
def test_a_topic_is_created_with_its_replicas(
    site: ReplicatedServers, topic: str, factor: int, expected: int
) -> None:
    with closing(ConfluentTopicAdmin({"bootstrap.servers": site.target.bootstrap})) as admin:
        admin.create_topic(topic, partitions=2, configs={}, replication_factor=factor)
    made = site.target.admin().list_topics(topic, timeout=REPORTED_S).topics[topic]
    assert [len(partition.replicas) for partition in made.partitions.values()] == [
        expected,
        expected,
    ]


def test_partitions_move_to_a_broker_that_was_added(
    site: ReplicatedServers, fleet: Fleet, flows: list[Flow], watched: WatchedTopic
) -> None:
    watched.begin()
    for cluster in site.clusters:
        assert cluster.add_broker() == 4
    for cluster, topic in ((site.target, watched.copy), (site.source, watched.topic)):
        reassign(cluster, topic, [[4, *brokers[1:]] for brokers in ROTATED])
    site.heal()
    watched.wait_moving()
    watched.assert_no_slower_than_producers()
    for flow in flows:
        flow.judge()
    watched.judge()
