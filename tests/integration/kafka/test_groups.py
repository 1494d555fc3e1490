"""Consumer groups on real brokers: lists, offsets, commits, and a consumer that goes on at the target."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import cast
from uuid import UUID

import pytest

from ureplicator_common.kafka import ClusterUnavailable, Position
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.groups import CommittedOffset
from ureplicator_common.kafka.groups.requests import KafkaConsumerGroups
from ureplicator_common.kafka.log_offsets import KafkaLogReader
from ureplicator_common.kafka.positions import KafkaPositionReader, PositionStore
from ureplicator_common.kafka.provenance import Provenance
from ureplicator_common.model import Partition
from ureplicator_common.offset_map.segments import MapSegment
from ureplicator_controller.core.groups.decisions import METADATA_LEFT_OUT, GroupDecision, SyncState
from ureplicator_controller.core.groups.selection import GroupFilter
from ureplicator_controller.core.groups.topics import RouteTopic
from ureplicator_controller.engines.groups.copied import KafkaCopiedReader
from ureplicator_controller.engines.groups.survey import RouteClusters, Survey
from ureplicator_controller.engines.groups.sync import write
from ureplicator_testkit.copier.driver import ROUTE
from ureplicator_testkit.kafka.offset_maps import MemoryOffsetMaps
from ureplicator_testkit.records.consumers import (
    READ_S,
    alter_offsets,
    group_offsets,
    open_member,
    read_next,
)
from ureplicator_testkit.records.topics import NewRecord, create_topic, produce
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually

PARTITIONS, RECORDS, SHIFT = 2, 40, 7
CLUSTER, SOURCE_ID, TARGET_ID = "a", str(UUID(int=1)), str(UUID(int=2))


@pytest.fixture
def here(source_cluster: KafkaCluster) -> Iterator[KafkaConsumerGroups]:
    with closing(KafkaConsumerGroups(ClusterClient(source_cluster.bootstrap))) as groups:
        yield groups


@pytest.fixture
def there(target_cluster: KafkaCluster) -> Iterator[KafkaConsumerGroups]:
    with closing(KafkaConsumerGroups(ClusterClient(target_cluster.bootstrap))) as groups:
        yield groups


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
    written = Provenance(CLUSTER, SOURCE_ID, TARGET_ID, "w", 0, 1, RECORDS + SHIFT, mapped=SHIFT)
    position = Position(RECORDS, metadata=written.encode())
    positions = {(topic, number): position for number in range(PARTITIONS)}
    maps = MemoryOffsetMaps()
    for number in range(PARTITIONS):
        segment = MapSegment(0, 1, SHIFT)
        maps.put(Partition(ROUTE, topic, number), segment, topics=(SOURCE_ID, TARGET_ID))
    store = PositionStore(client, group=position_group, transactional_id=position_group)
    store.initialise()
    store.commit(positions)
    copied = KafkaCopiedReader(
        route=ROUTE,
        group=position_group,
        positions=KafkaPositionReader(client),
        logs=KafkaLogReader(ClusterClient(target)),
        source_logs=KafkaLogReader(ClusterClient(source)),
        maps=maps,
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


def test_a_plain_consumer_goes_on_at_the_target_with_exactly_the_rest(pair: Pair) -> None:
    alter_offsets(
        pair.source, pair.group, {(pair.topic, number): 0 for number in range(PARTITIONS)}
    )
    with closing(open_member(pair.source, pair.group, pair.topic)) as first:
        half = read_next(first, RECORDS * PARTITIONS // 2)
        first.commit(asynchronous=False)
    assert pair.sync().state is SyncState.SYNCED
    with closing(open_member(pair.target, pair.group, pair.topic)) as second:
        rest = read_next(second, RECORDS * PARTITIONS - len(half))
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
    alter_offsets(pair.target, pair.group, beginning)
    alter_offsets(
        pair.source, pair.group, {(pair.topic, number): 20 for number in range(PARTITIONS)}
    )
    with closing(open_member(pair.target, pair.group, pair.topic)) as consumer:
        read_next(consumer, 1)
        for _ in range(20):
            assert pair.sync().state is SyncState.ACTIVE
        offsets = {key: CommittedOffset(30) for key in beginning}
        refused = pair.clusters.target.commit({pair.group: offsets})[pair.group]
        assert isinstance(refused, dict)
        assert refused.keys() == beginning.keys()
    there = pair.clusters.target.offsets([pair.group])[pair.group]
    assert there == {key: CommittedOffset(offset) for key, offset in beginning.items()}
    eventually(lambda: pair.sync().state is SyncState.SYNCED, READ_S, "the member has left")


def test_the_epoch_is_written_as_unknown_and_read_so_by_clients(
    pair: Pair,
) -> None:
    """An epoch of the source above the target's would make its consumers refresh metadata for ever."""
    alter_offsets(pair.source, pair.group, {(pair.topic, 0): 20})
    pair.sync()
    row = group_offsets(pair.target, pair.group)[pair.topic, 0]
    assert row.offset == 20 + SHIFT
    assert cast(int | None, row.leader_epoch) is None


def test_metadata_go_along_only_while_no_record_is_to_come(pair: Pair) -> None:
    """Records to come may lie at another distance than those that the metadata are about."""
    first, second = (pair.topic, 0), (pair.topic, 1)
    produce(pair.source, pair.topic, [NewRecord(b"to come", partition=1)])
    here = {first: CommittedOffset(20, "done: +3"), second: CommittedOffset(20, "done: +3")}
    pair.clusters.source.commit({pair.group: here})
    found = pair.sync()
    assert found.state is SyncState.SYNCED
    assert [partition.note for partition in found.partitions] == ["", METADATA_LEFT_OUT]
    assert pair.clusters.target.offsets([pair.group])[pair.group] == {
        first: CommittedOffset(20 + SHIFT, "done: +3"),
        second: CommittedOffset(20 + SHIFT),
    }


def test_deleted_offsets_are_gone_and_those_of_other_partitions_stay(
    there: KafkaConsumerGroups, topic: str, target_cluster: KafkaCluster
) -> None:
    create_topic(target_cluster.bootstrap, topic, partitions=PARTITIONS)
    first, second = (topic, 0), (topic, 1)
    there.commit({topic: {first: CommittedOffset(1), second: CommittedOffset(2)}})
    assert there.delete_offsets({topic: [first], f"{topic}-unknown": [first]}) == {
        topic: {},
        f"{topic}-unknown": {},
    }
    assert there.offsets([topic]) == {topic: {second: CommittedOffset(2)}}


def test_offsets_of_a_group_with_a_member_are_not_deleted(pair: Pair) -> None:
    beginning = {(pair.topic, number): SHIFT for number in range(PARTITIONS)}
    alter_offsets(pair.target, pair.group, beginning)
    with closing(open_member(pair.target, pair.group, pair.topic)) as consumer:
        read_next(consumer, 1)
        refused = pair.clusters.target.delete_offsets({pair.group: beginning.keys()})
        assert refused == {pair.group: dict.fromkeys(beginning, "GROUP_SUBSCRIBED_TO_TOPIC")}
    assert group_offsets(pair.target, pair.group).keys() == beginning.keys()
