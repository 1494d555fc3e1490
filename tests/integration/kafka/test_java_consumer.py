"""A consumer of Kafka's own library that goes on at the target, with its requests counted.

It takes the leader epoch that is stored with an offset for one that it has seen, and ignores metadata that is
older (KIP-320). With an epoch of the source above the target's it refreshes its metadata for ever, or reads
nothing at all, by its version: so no epoch of a source may be written.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.groups import CommittedOffset
from ureplicator_common.kafka.groups.requests import KafkaConsumerGroups
from ureplicator_testkit.records.java_consumer import JavaConsumer, properties_of
from ureplicator_testkit.records.topics import NewRecord, create_topic, produce
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.own_broker import OwnBroker
from ureplicator_testkit.servers.processes import eventually
from ureplicator_testkit.servers.proxy import Proxy

pytestmark = pytest.mark.integration

METADATA = 3
RECORDS, AT = 20, 12
WRITTEN_S = ASSIGNED_S = 20
SOURCE_EPOCH = 99
FEW = 3
"""Requests for metadata of a consumer that has no reason for them."""
ROUNDS, ROUND_MS = 50, 100


@dataclass
class Target:
    """A cluster whose clients' requests are counted."""

    cluster: KafkaCluster
    proxy: Proxy
    jvm: Any

    def read(self, protocol: str, group: str, topic: str) -> tuple[list[int], int]:
        """Offsets that a consumer of the group reads in some rounds, and its requests for metadata after it
        has got its partition."""
        properties = properties_of(self.proxy.address, group, **{"group.protocol": protocol})
        with closing(JavaConsumer(self.jvm, properties)) as consumer:
            consumer.subscribe(topic)
            found: list[int] = []

            def is_assigned() -> bool:
                found.extend(consumer.poll(ROUND_MS))
                return consumer.is_assigned()

            eventually(is_assigned, ASSIGNED_S, "the consumer has its partition")
            before = self.proxy.requests(METADATA)
            for _ in range(ROUNDS):
                found += consumer.poll(ROUND_MS)
            return found, self.proxy.requests(METADATA) - before


@pytest.fixture(scope="module")
def target(own_broker: OwnBroker, jvm: Any) -> Target:
    return Target(own_broker.cluster, own_broker.proxy, jvm)


@pytest.fixture
def filled(target: Target, topic: str) -> str:
    create_topic(target.cluster.bootstrap, topic, partitions=1)
    values = [f"{topic}/0/{number}".encode() for number in range(RECORDS)]
    produce(target.cluster.bootstrap, topic, [NewRecord(value, partition=0) for value in values])
    return topic


PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@PROTOCOLS
def test_a_consumer_goes_on_after_the_sync_without_refreshing_its_metadata(
    target: Target, filled: str, protocol: str
) -> None:
    with closing(KafkaConsumerGroups(ClusterClient(target.cluster.bootstrap))) as groups:
        assert groups.commit({filled: {(filled, 0): CommittedOffset(AT)}}) == {filled: {}}
    found, refreshed = target.read(protocol, filled, filled)
    assert found == list(range(AT, RECORDS))
    assert refreshed <= FEW


@PROTOCOLS
def test_a_consumer_with_an_epoch_of_the_source_would_not_go_on(
    target: Target, filled: str, protocol: str
) -> None:
    """The other test can fail, as this one shows."""
    row = TopicPartition(filled, 0, AT, leader_epoch=SOURCE_EPOCH)
    admin = target.cluster.admin()
    wanted = [ConsumerGroupTopicPartitions(filled, [row])]
    for future in admin.alter_consumer_group_offsets(wanted).values():
        future.result(timeout=WRITTEN_S)
    found, _ = target.read(protocol, filled, filled)
    assert found == []
