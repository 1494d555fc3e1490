"""Consumer groups on real brokers: lists, offsets, commits, and a consumer that goes on at the target."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from ureplicator_common.kafka import ClusterUnavailable, Position
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.groups import CommittedOffset
from ureplicator_common.kafka.groups.requests import KafkaConsumerGroups
from ureplicator_common.kafka.log_offsets import KafkaLogReader
from ureplicator_common.kafka.positions import KafkaPositionReader
from ureplicator_common.kafka.publication import publish_positions
from ureplicator_common.model import Partition
from ureplicator_controller.core.groups.decisions import GroupDecision, SyncState, Translate
from ureplicator_controller.core.groups.selection import GroupFilter
from ureplicator_controller.core.groups.topics import RouteTopic
from ureplicator_controller.engines.groups.copied import KafkaCopiedReader
from ureplicator_controller.engines.groups.survey import RouteClusters, Survey
from ureplicator_controller.engines.groups.sync import write
from ureplicator_testkit.copier.driver import ROUTE
from ureplicator_testkit.records.topics import NewRecord, create_topic, produce
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import deadline_factor, eventually

PARTITIONS, RECORDS, SHIFT = 2, 40, 7
READ_S = 60 * deadline_factor()
Values = list[tuple[int, bytes]]


@pytest.fixture
def here(source_cluster: KafkaCluster) -> Iterator[KafkaConsumerGroups]:
    with closing(KafkaConsumerGroups(ClusterClient(source_cluster.bootstrap))) as groups:
        yield groups


@pytest.fixture
def there(target_cluster: KafkaCluster) -> Iterator[KafkaConsumerGroups]:
    with closing(KafkaConsumerGroups(ClusterClient(target_cluster.bootstrap))) as groups:
        yield groups


def opened(bootstrap: str, group: str, topic: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    return consumer


def read(consumer: Consumer, count: int) -> Values:
    """The next records; an error is raised, also that there is no offset."""
    found: Values = []

    def enough() -> bool:
        message: Message | None = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            found.append((message.partition() or 0, message.value() or b""))
        return len(found) >= count

    eventually(enough, READ_S, f"{count} records were read")
    return found


def alter(bootstrap: str, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    rows = [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
    for future in admin.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group, rows)]
    ).values():
        future.result(timeout=READ_S)


class Shifted:
    """The offset map of copies that begin `SHIFT` offsets later."""

    def update(self) -> None: ...

    def translate(self, partition: Partition, stored: Position) -> Translate:
        return lambda offset: offset + SHIFT

    def close(self) -> None: ...


@dataclass
class Pair:
    """A topic and its copy, and the sync of one group between them."""

    source: str
    target: str
    topic: str
    clusters: RouteClusters

    @property
    def group(self) -> str:
        return self.topic

    def sync(self) -> GroupDecision:
        survey = Survey(self.clusters, selected=GroupFilter.of([self.group], []))
        found = survey.read({self.topic: RouteTopic(self.topic, self.topic)})
        (decision,) = write(self.clusters.target, found, may_write=lambda: True)
        return decision


def values(first: int, count: int) -> list[NewRecord]:
    return [
        NewRecord(f"{number}".encode(), partition=partition)
        for partition in range(PARTITIONS)
        for number in range(first, first + count)
    ]


@pytest.fixture
def pair(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    here: KafkaConsumerGroups,
    there: KafkaConsumerGroups,
    topic: str,
) -> Iterator[Pair]:
    """All records are copied, with `SHIFT` others before them."""
    source, target = source_cluster.bootstrap, target_cluster.bootstrap
    for bootstrap in (source, target):
        create_topic(bootstrap, topic, partitions=PARTITIONS)
    produce(target, topic, values(-SHIFT, SHIFT))
    for bootstrap in (source, target):
        produce(bootstrap, topic, values(0, RECORDS))
    client = ClusterClient(target)
    position_group = f"positions-{topic}"
    positions = {(topic, number): Position(RECORDS) for number in range(PARTITIONS)}
    assert not publish_positions(client, position_group, positions)
    copied = KafkaCopiedReader(
        route=ROUTE,
        group=position_group,
        positions=KafkaPositionReader(client),
        logs=KafkaLogReader(ClusterClient(target)),
        map=Shifted(),
    )
    yield Pair(source, target, topic, RouteClusters(source=here, target=there, copied=copied))
    copied.close()


def test_offsets_and_metadata_are_read_and_written(
    there: KafkaConsumerGroups, target_cluster: KafkaCluster, topic: str
) -> None:
    create_topic(target_cluster.bootstrap, topic, partitions=2)
    offsets = {(topic, 0): CommittedOffset(3, "mine"), (topic, 1): CommittedOffset(0)}
    assert there.commit({topic: offsets}) == {topic: {}}
    assert there.offsets([topic, "nobody"]) == {topic: offsets, "nobody": {}}
    listed = there.listed()
    assert not listed.failed
    assert (listed.groups[topic].kind, listed.groups[topic].state) == ("", "Empty")
    assert there.states([topic, f"no-{topic}"]) == {topic: "Empty", f"no-{topic}": "Dead"}
    before = there.offsets([topic])[topic]
    assert there.offsets([topic])[topic] is before


def test_many_groups_are_written_and_read_in_portions(
    there: KafkaConsumerGroups, target_cluster: KafkaCluster, topic: str
) -> None:
    create_topic(target_cluster.bootstrap, topic)
    wanted = {f"{topic}-{n}": {(topic, 0): CommittedOffset(n)} for n in range(450)}
    assert there.commit(wanted) == {group: {} for group in wanted}
    assert there.offsets(list(wanted)) == wanted
    assert wanted.keys() <= there.listed().groups.keys()


def test_a_partition_that_does_not_exist_is_refused_alone(
    there: KafkaConsumerGroups, target_cluster: KafkaCluster, topic: str
) -> None:
    create_topic(target_cluster.bootstrap, topic)
    offsets = {(topic, 0): CommittedOffset(3), (topic, 5): CommittedOffset(4)}
    refused = there.commit({topic: offsets})[topic]
    assert refused == {(topic, 5): "UNKNOWN_TOPIC_OR_PARTITION"}
    assert there.offsets([topic])[topic] == {(topic, 0): CommittedOffset(3)}


def test_a_cluster_that_is_away_is_an_error() -> None:
    groups = KafkaConsumerGroups(ClusterClient("127.0.0.1:1"))
    with pytest.raises(ClusterUnavailable):
        groups.listed()


def test_a_plain_consumer_goes_on_at_the_target_with_exactly_the_rest_and_back(pair: Pair) -> None:
    first = opened(pair.source, pair.group, pair.topic)
    alter(pair.source, pair.group, {(pair.topic, number): 0 for number in range(PARTITIONS)})
    with closing(first):
        half = read(first, RECORDS * PARTITIONS // 2)
        first.commit(asynchronous=False)
    assert pair.sync().state is SyncState.SYNCED
    with closing(opened(pair.target, pair.group, pair.topic)) as second:
        rest = read(second, RECORDS * PARTITIONS - len(half))
        second.commit(asynchronous=False)
        assert second.poll(1.0) is None
    every = [(record.partition, record.value) for record in values(0, RECORDS)]
    assert sorted(half + rest) == sorted(every)
    ahead = pair.sync()
    assert (ahead.state, ahead.writes) == (SyncState.AHEAD, {})


def test_a_group_with_a_member_at_the_target_is_untouched_and_its_coordinator_refuses(
    pair: Pair,
) -> None:
    beginning = {(pair.topic, number): SHIFT for number in range(PARTITIONS)}
    alter(pair.target, pair.group, beginning)
    alter(pair.source, pair.group, {(pair.topic, number): 20 for number in range(PARTITIONS)})
    with closing(opened(pair.target, pair.group, pair.topic)) as consumer:
        read(consumer, 1)
        for _ in range(20):
            assert pair.sync().state is SyncState.ACTIVE
        offsets = {key: CommittedOffset(30) for key in beginning}
        refused = pair.clusters.target.commit({pair.group: offsets})[pair.group]
        assert isinstance(refused, dict)
        assert refused.keys() == beginning.keys()
    there = pair.clusters.target.offsets([pair.group])[pair.group]
    assert there == {key: CommittedOffset(offset) for key, offset in beginning.items()}
    eventually(
        partial(lambda: pair.sync().state is SyncState.SYNCED), READ_S, "the member has left"
    )


def test_the_epoch_is_written_as_unknown_and_read_so_by_clients(
    pair: Pair,
) -> None:
    """An epoch of the source above the target's would make its consumers refresh metadata for ever."""
    alter(pair.source, pair.group, {(pair.topic, 0): 20})
    pair.sync()
    admin = AdminClient({"bootstrap.servers": pair.target})
    wanted = [ConsumerGroupTopicPartitions(pair.group)]
    (found,) = admin.list_consumer_group_offsets(wanted).values()
    (row,) = found.result(timeout=READ_S).topic_partitions
    assert (row.offset, row.leader_epoch) == (20 + SHIFT, None)
