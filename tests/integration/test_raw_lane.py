"""The copier alone between two real brokers: what arrives, and what is cut, left out or refused.

The driver is a stub (`ureplicator_testkit.driver`): these tests are about bytes, not about Spark or
ZooKeeper.
"""

import itertools
import time
from collections.abc import Callable

from ureplicator_common.model import (
    Partition,
    RouteSettings,
)
from ureplicator_testkit.clusters import KafkaCluster
from ureplicator_testkit.driver import ROUTE, StubDriver, partitions_of
from ureplicator_testkit.processes import eventually
from ureplicator_testkit.topics import (
    CODECS,
    NewRecord,
    compare_logs,
    create_topic,
    delete_records,
    produce,
    produce_in_transaction,
    read_all,
    sample_records,
)
from ureplicator_worker.core.messages import Grant

Start = Callable[..., StubDriver]


def assert_equal_logs(source: KafkaCluster, target: KafkaCluster, topic: str) -> None:
    compare_logs(source.bootstrap, target.bootstrap, topic).assert_clean()


def big(size: int, *, partition: int = 0) -> NewRecord:
    return NewRecord(value=bytes(index % 251 for index in range(size)), partition=partition)


def only_fails(driver: StubDriver, number: int, topic: str) -> str:
    """Wait until one partition was given up; its reason."""
    partition = Partition(ROUTE, topic, number)
    eventually(lambda: partition in driver.failed, 20, f"{partition} fails")
    return driver.failed[partition].reason


def test_every_record_arrives_once_in_order_byte_for_byte(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    topic: str,
    both: Callable[..., None],
    start: Start,
) -> None:
    both(topic, 4)
    for codec in CODECS:
        for seed, settings in enumerate(
            ({"linger.ms": 0, "batch.num.messages": 1}, {"linger.ms": 50})
        ):
            records = sample_records(400, partitions=4, seed=seed)
            produce(source_cluster.bootstrap, topic, records, codec=codec, settings=settings)
        produce(source_cluster.bootstrap, topic, [big(950_000, partition=1)], codec=codec)
    driver = start(topic, 4)
    driver.wait_caught_up()
    driver.stop()
    assert driver.released == set(partitions_of(topic, 4))
    assert_equal_logs(source_cluster, target_cluster, topic)


def test_only_committed_records_of_transactions_arrive(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    topic: str,
    both: Callable[..., None],
    start: Start,
) -> None:
    both(topic, 2)
    for number in range(12):
        produce_in_transaction(
            source_cluster.bootstrap,
            topic,
            sample_records(20, partitions=2, seed=number),
            transactional_id=f"{topic}-{number % 2}",
            commit=bool(number % 3),
        )
    driver = start(topic, 2)
    driver.wait_caught_up()
    driver.stop()
    assert_equal_logs(source_cluster, target_cluster, topic)
    copied = read_all(target_cluster.bootstrap, topic)
    assert sum(map(len, copied.values())) == 8 * 20


def test_records_of_a_compacted_topic_arrive_without_its_holes(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    topic: str,
    both: Callable[..., None],
    start: Start,
) -> None:
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "500",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "500",
    }
    both(topic, 1, config)

    fills = itertools.count()

    def fill() -> None:
        """Every third record stays; the others are overwritten by the next fill."""
        turn = next(fills)
        keys = (b"%d" % index + (b"" if index % 3 else b"-%d" % turn) for index in range(300))
        records = [NewRecord(value=b"v", key=key) for key in keys]
        produce(source_cluster.bootstrap, topic, records, settings={"linger.ms": 20})

    def has_holes() -> bool:
        fill()
        time.sleep(0.6)  # lets the segment grow old enough to be rolled and cleaned
        kept = read_all(source_cluster.bootstrap, topic)[0]
        return len(kept) < kept[-1].offset - kept[0].offset + 1

    eventually(has_holes, 60, "the cleaner has run", poll_s=0.5)
    driver = start(topic, 1)
    driver.wait_caught_up()
    driver.stop()
    assert_equal_logs(source_cluster, target_cluster, topic)


def test_times_stamped_by_the_source_broker_are_kept(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    topic: str,
    both: Callable[..., None],
    start: Start,
) -> None:
    both(topic, 1, {"message.timestamp.type": "LogAppendTime"})
    produce(source_cluster.bootstrap, topic, [NewRecord(b"x", timestamp=5) for _ in range(10)])
    driver = start(topic, 1)
    driver.wait_caught_up()
    driver.stop()
    source = read_all(source_cluster.bootstrap, topic)[0]
    target = read_all(target_cluster.bootstrap, topic)[0]
    assert [record.timestamp for record in target] == [record.timestamp for record in source]
    assert min(record.timestamp for record in target) > 5


def test_deleted_records_do_not_come_back_with_the_rest_of_their_batch(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    topic: str,
    both: Callable[..., None],
    start: Start,
) -> None:
    both(topic, 1)
    records = [NewRecord(b"%d" % index) for index in range(100)]
    produce(source_cluster.bootstrap, topic, records, settings={"linger.ms": 200})
    delete_records(source_cluster.bootstrap, topic, {0: 37})
    driver = start(topic, 1)
    driver.wait_caught_up()
    driver.stop()
    assert [record.value for record in read_all(target_cluster.bootstrap, topic)[0]] == [
        b"%d" % index for index in range(37, 100)
    ]


def test_a_record_too_large_for_the_target_stops_its_partition_only(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    topic: str,
    start: Start,
) -> None:
    create_topic(source_cluster.bootstrap, topic, partitions=2)
    create_topic(
        target_cluster.bootstrap, topic, partitions=2, config={"max.message.bytes": "10000"}
    )
    small = [NewRecord(b"x" * 100, partition=index % 2) for index in range(40)]
    produce(source_cluster.bootstrap, topic, small)
    produce(source_cluster.bootstrap, topic, [big(20_000, partition=1)])
    produce(source_cluster.bootstrap, topic, small, settings={"linger.ms": 100})
    driver = start(topic, 2)
    reason = only_fails(driver, 1, topic)
    assert "offset 20" in reason
    assert "MESSAGE_TOO_LARGE" in reason or "too large" in reason.lower()
    other = Partition(ROUTE, topic, 0)
    eventually(
        lambda: other in driver.report and driver.report[other].committed == 40,
        20,
        "the other partition goes on",
    )
    assert len(read_all(target_cluster.bootstrap, topic)[1]) == 20


def test_a_batch_too_large_for_the_target_is_cut_smaller(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    topic: str,
    start: Start,
) -> None:
    create_topic(source_cluster.bootstrap, topic, partitions=1)
    create_topic(
        target_cluster.bootstrap, topic, partitions=1, config={"max.message.bytes": "3000"}
    )
    records = [NewRecord(b"%d" % index * 300, key=b"%d" % index) for index in range(60)]
    produce(source_cluster.bootstrap, topic, records, settings={"linger.ms": 200})
    driver = start(topic, 1)
    driver.wait_caught_up()
    driver.stop()
    assert_equal_logs(source_cluster, target_cluster, topic)


def test_a_record_is_left_out_on_the_operator_s_word_and_counted(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    topic: str,
    start: Start,
) -> None:
    create_topic(source_cluster.bootstrap, topic, partitions=1)
    create_topic(
        target_cluster.bootstrap, topic, partitions=1, config={"max.message.bytes": "3000"}
    )
    records = [NewRecord(b"x" * (5_000 if index == 7 else 50)) for index in range(20)]
    produce(source_cluster.bootstrap, topic, records, settings={"linger.ms": 200})
    settings = RouteSettings(abort_on_send_failure=False)
    driver = start(topic, 1, grant=lambda part, epoch: Grant(epoch, part.topic, settings=settings))
    driver.wait_caught_up()
    assert driver.report[Partition(ROUTE, topic, 0)].skipped == 1
    driver.stop()
    assert len(read_all(target_cluster.bootstrap, topic)[0]) == 19
