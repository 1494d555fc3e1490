"""Lag in records and in seconds, on real brokers."""

import time
from collections.abc import Callable, Iterator

import pytest

from ureplicator_common.clock import SystemClock
from ureplicator_common.kafka import (
    BatchTime,
    Extent,
    Lifetime,
    OpenTransaction,
    PartitionUnavailable,
    Position,
)
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.log_offsets import SMALL_BYTES, KafkaLogReader
from ureplicator_common.kafka.positions import KafkaPositionReader, PositionStore
from ureplicator_common.model import TopicKey, position_group
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_controller.api.lag_collection.collector import LagCollector
from ureplicator_controller.core.reporting.lag import PartitionLag
from ureplicator_testkit.copier.driver import ROUTE
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.records.topics import (
    NewRecord,
    create_topic,
    delete_records,
    produce,
    produce_in_transaction,
    transaction,
)
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.own_broker import RETENTION_MS, OwnBroker
from ureplicator_testkit.servers.processes import eventually

AGE_S = 600
HOUR_MS = 3_600_000

LagOf = Callable[[str, int], dict[int, PartitionLag]]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def reader(source_cluster: KafkaCluster) -> Iterator[KafkaLogReader]:
    reader = KafkaLogReader(ClusterClient(source_cluster.bootstrap))
    yield reader
    reader.close()


@pytest.fixture
def lag_of(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, fleet: str
) -> Iterator[LagOf]:
    """Figures of a topic's partitions, from a new collection each time."""
    collector = LagCollector(
        fleet=fleet,
        positions=lambda name: KafkaPositionReader(ClusterClient(target_cluster.bootstrap)),
        logs=lambda name: KafkaLogReader(ClusterClient(source_cluster.bootstrap)),
        clock=SystemClock(),
    )

    def lag_of(topic: str, count: int) -> dict[int, PartitionLag]:
        key = TopicKey(ROUTE, topic)
        return dict(
            collector.collect({key: TopicIntent(count, count, target_topic=topic)}).topics[key]
        )

    yield lag_of
    collector.close()


def old(partition: int, count: int) -> list[NewRecord]:
    """Records of ten minutes ago."""
    written_ms = now_ms() - AGE_S * 1_000
    return [NewRecord(b"v", partition=partition, timestamp=written_ms + n) for n in range(count)]


def test_lag_is_exact_after_a_copier_stopped(lane: RealLane, lag_of: LagOf) -> None:
    """0 ends in a commit marker, 1 in an aborted transaction, 2 is empty, 3 has no position."""
    lane.make(4, {"retention.ms": str(HOUR_MS)})
    source, topic = lane.source.bootstrap, lane.topic
    produce_in_transaction(source, topic, old(0, 5), transactional_id=f"{topic}-a")
    produce_in_transaction(source, topic, old(1, 5), transactional_id=f"{topic}-b", commit=False)
    driver = lane.start(3)
    driver.wait_online()
    eventually(
        lambda: [lag_of(topic, 3)[number].lag_records for number in range(3)] == [0, 0, 0],
        30,
        "a partition that is copied settles at lag 0, markers and aborted records or not",
    )
    driver.stop()
    lane.fill(old(0, 7))
    produce_in_transaction(source, topic, old(1, 3), transactional_id=f"{topic}-b")
    eventually(
        lambda: [lag_of(topic, 4)[number].lag_records for number in range(4)] == [7, 4, 0, None],
        30,
        "the broker writes the marker of a transaction some time after the commit",
    )
    found = lag_of(topic, 4)
    for number in (0, 1):
        assert found[number].lag_s == pytest.approx(AGE_S, abs=10)
        assert found[number].retention_s == pytest.approx(3_600 - AGE_S, abs=10)
    assert found[2].lag_s == 0
    assert found[2].retention_s is None
    assert found[3].never_committed
    assert "never committed" in found[3].reason


def test_positions_are_shown_while_others_are_being_committed(
    target_cluster: KafkaCluster, fleet: str, topic: str
) -> None:
    """An owner's read waits for the transaction; a query of REST must not."""
    create_topic(target_cluster.bootstrap, topic)
    group = position_group(fleet=fleet, route=ROUTE)
    client = ClusterClient(target_cluster.bootstrap)
    store = PositionStore(client, group=group, transactional_id=fleet)
    store.initialise()
    store.commit({(topic, 0): Position(5)})
    producer = store._producer
    assert producer is not None
    store._requests.add_group(producer)
    store._requests.add_positions(producer, {(topic, 0): Position(6)})
    reader = KafkaPositionReader(ClusterClient(target_cluster.bootstrap))
    began_s = time.monotonic()
    assert reader.read(group, {topic: [0]})[topic, 0] == Position(5)
    assert time.monotonic() - began_s < 5
    store._requests.end(producer, commit=True)
    eventually(
        lambda: reader.read(group, {topic: [0]})[topic, 0] == Position(6), 10, "it is committed"
    )
    client.close()
    reader.close()


def test_records_of_an_open_transaction_are_no_lag(
    source_cluster: KafkaCluster, reader: KafkaLogReader, topic: str
) -> None:
    create_topic(source_cluster.bootstrap, topic)
    produce(source_cluster.bootstrap, topic, old(0, 3))
    with transaction(source_cluster.bootstrap, transactional_id=topic) as producer:
        producer.produce(topic, b"v", partition=0)
        producer.flush(10)
        assert reader.extents({topic: [0]}) == {(topic, 0): Extent(0, 3, held=1)}
        found = reader.open_transactions([(topic, 0)])[topic, 0]
        assert isinstance(found, OpenTransaction)
        assert (found.transactional_id, found.first_offset) == (topic, 3)
        assert found.state == "Ongoing"
        assert abs(now_ms() - found.began_ms) < HOUR_MS
    eventually(
        lambda: reader.extents({topic: [0]}) == {(topic, 0): Extent(0, 5)}, 10, "it is committed"
    )
    assert reader.open_transactions([(topic, 0)]) == {}


def test_times_of_small_and_large_batches(
    source_cluster: KafkaCluster, reader: KafkaLogReader, topic: str
) -> None:
    """Every other one of eight partitions begins with more than a first request would bring."""
    create_topic(source_cluster.bootstrap, topic, partitions=8)
    for number in range(8):
        size = 10 if number % 2 else SMALL_BYTES * 4
        record = NewRecord(b"v" * size, partition=number, timestamp=1_000 + number)
        produce(source_cluster.bootstrap, topic, [record])
    keys = {(topic, number): 0 for number in range(8)}
    extents = reader.extents({topic: range(8)})
    assert extents == dict.fromkeys(keys, Extent(0, 1))
    expected = {key: BatchTime(0, 0, 1_000 + key[1]) for key in keys}
    assert reader.batch_times(keys) == expected


def test_missing_topics_and_partitions_do_not_affect_others(
    source_cluster: KafkaCluster, reader: KafkaLogReader, topic: str
) -> None:
    create_topic(source_cluster.bootstrap, topic, config={"cleanup.policy": "compact"})
    produce(source_cluster.bootstrap, topic, [NewRecord(b"v", key=b"k") for _ in range(9)])
    found = reader.extents({topic: [0, 1], f"{topic}-gone": [0]})
    assert found[topic, 0] == Extent(0, 9)
    assert isinstance(found[topic, 1], PartitionUnavailable)
    assert isinstance(found[f"{topic}-gone", 0], PartitionUnavailable)
    assert reader.batch_times({(topic, 0): 9, (topic, 1): 0, (f"{topic}-gone", 0): 0}) == {}
    assert reader.lifetimes([topic, f"{topic}-gone"]) == {topic: Lifetime()}


def test_the_log_start_and_the_broker_s_own_limits(own_broker: OwnBroker, topic: str) -> None:
    bootstrap = own_broker.cluster.bootstrap
    create_topic(bootstrap, topic, config={"retention.bytes": "1000"})
    produce(bootstrap, topic, [NewRecord(b"v") for _ in range(9)])
    delete_records(bootstrap, topic, {0: 4})
    reader = KafkaLogReader(ClusterClient(bootstrap))
    assert reader.extents({topic: [0]}) == {(topic, 0): Extent(4, 9)}
    assert reader.lifetimes([topic]) == {topic: Lifetime(RETENTION_MS, 1_000)}
    reader.close()


def test_a_lost_broker_affects_only_its_partitions(topic: str) -> None:
    with KafkaCluster(brokers=2, name="two", combined=True) as cluster:
        create_topic(cluster.bootstrap, topic, partitions=4)
        produce(cluster.bootstrap, topic, [NewRecord(b"v", partition=n) for n in range(4)])
        reader = KafkaLogReader(ClusterClient(cluster.bootstrap, timeout_s=2))
        assert set(reader.extents({topic: range(4)}).values()) == {Extent(0, 1)}
        cluster.kill(2)
        found = reader.extents({topic: range(4)})
        known = [extent for extent in found.values() if isinstance(extent, Extent)]
        assert known == [Extent(0, 1)] * 2
        assert len(reader.batch_times(dict.fromkeys(found, 0))) == 2
        reader.close()
