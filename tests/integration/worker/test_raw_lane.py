"""The copier alone between two real brokers: what arrives, and what is split, skipped or refused.

The driver is a stub (`ureplicator_testkit.copier.driver`): these tests are about bytes, not about Spark or
ZooKeeper.
"""

import itertools
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from ureplicator_common.kafka.admin import ConfluentTopicAdmin
from ureplicator_common.model import RouteSettings
from ureplicator_controller.engines.target_topics import ensure_target
from ureplicator_testkit.copier.driver import partitions_of
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.records.topics import (
    CODECS,
    NewRecord,
    delete_records,
    produce_in_transaction,
    read_all,
    sample_records,
)
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually
from ureplicator_worker.lifeline.messages import Grant

STAMPING = {
    "log.message.timestamp.type": "LogAppendTime",
    "log.retention.ms": "3600000",
    "log.retention.bytes": "1000",
}


@pytest.fixture(scope="module")
def stamping_cluster() -> Iterator[KafkaCluster]:
    """Its brokers change the time of records by default, and keep few."""
    with KafkaCluster(name="stamping", properties=STAMPING) as cluster:
        yield cluster


def big(size: int, *, partition: int = 0) -> NewRecord:
    return NewRecord(value=bytes(index % 251 for index in range(size)), partition=partition)


def test_every_record_arrives_once_in_order_byte_for_byte(lane: RealLane) -> None:
    lane.make(4)
    for codec in CODECS:
        for seed, settings in enumerate(
            ({"linger.ms": 0, "batch.num.messages": 1}, {"linger.ms": 50})
        ):
            records = sample_records(400, partitions=4, seed=seed)
            lane.fill(records, codec=codec, settings=settings)
        lane.fill([big(950_000, partition=1)], codec=codec)
    driver = lane.start(4)
    driver.wait_caught_up()
    driver.stop()
    assert driver.released == set(partitions_of(lane.topic, 4))
    lane.assert_equal()


def test_only_committed_records_of_transactions_arrive(lane: RealLane) -> None:
    lane.make(2)
    for number in range(12):
        produce_in_transaction(
            lane.source.bootstrap,
            lane.topic,
            sample_records(20, partitions=2, seed=number),
            transactional_id=f"{lane.topic}-{number % 2}",
            commit=bool(number % 3),
        )
    driver = lane.start(2)
    driver.wait_caught_up()
    driver.stop()
    lane.assert_equal()
    copied = lane.copied()
    assert sum(map(len, copied.values())) == 8 * 20


def test_records_of_a_compacted_topic_arrive_without_its_holes(lane: RealLane) -> None:
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "500",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "500",
    }
    lane.make(1, config)

    fills = itertools.count()

    def fill() -> None:
        """Every third record stays; the others are overwritten by the next fill."""
        turn = next(fills)
        keys = (b"%d" % index + (b"" if index % 3 else b"-%d" % turn) for index in range(300))
        records = [NewRecord(value=b"v", key=key) for key in keys]
        lane.fill(records, settings={"linger.ms": 20})

    def has_holes() -> bool:
        fill()
        time.sleep(0.6)  # lets the segment grow old enough to be rolled and cleaned
        kept = read_all(lane.source.bootstrap, lane.topic)[0]
        return len(kept) < kept[-1].offset - kept[0].offset + 1

    eventually(has_holes, 60, "the cleaner has run", poll_s=0.5)
    driver = lane.start(1)
    driver.wait_caught_up()
    driver.stop()
    lane.assert_equal()


def test_times_stamped_by_the_source_broker_are_kept(lane: RealLane) -> None:
    lane.make(1, {"message.timestamp.type": "LogAppendTime"})
    lane.fill([NewRecord(b"x", timestamp=5) for _ in range(10)])
    driver = lane.start(1)
    driver.wait_caught_up()
    driver.stop()
    source = read_all(lane.source.bootstrap, lane.topic)[0]
    target = lane.copied()[0]
    assert [record.timestamp for record in target] == [record.timestamp for record in source]
    assert min(record.timestamp for record in target) > 5


@pytest.mark.parametrize("stamps", [False, True], ids=["times of producers", "times of brokers"])
def test_a_target_whose_brokers_stamp_records_and_keep_them_for_an_hour_gets_them_as_they_are(
    source_cluster: KafkaCluster,
    stamping_cluster: KafkaCluster,
    topic: str,
    fleet: str,
    tmp_path: Path,
    stamps: bool,
) -> None:
    """Its topic is made with what is in force at the source: brokers delete by time what is older."""
    lane = RealLane(source_cluster, stamping_cluster, topic, fleet, tmp_path)
    with ExitStack() as opened:
        opened.callback(lane.close)
        source, target = (
            opened.enter_context(closing(ConfluentTopicAdmin({"bootstrap.servers": servers})))
            for servers in (source_cluster.bootstrap, stamping_cluster.bootstrap)
        )
        kind = "LogAppendTime" if stamps else "CreateTime"
        lane.make_source(1, {"message.timestamp.type": kind, "retention.ms": "-1"})
        ensure_target(
            topic,
            wanted=1,
            source_topic=topic,
            source_partitions=1,
            source=source,
            target=target,
            replication_factor=1,
        )
        found = {name: setting.value for name, setting in target.settings_of(topic).items()}
        assert (found["retention.ms"], found["retention.bytes"]) == ("-1", "-1")
        assert found["message.timestamp.type"] == "CreateTime"
        lane.fill([NewRecord(b"%d" % index, timestamp=1_700_000_000_000) for index in range(10)])
        driver = lane.start(1)
        driver.wait_caught_up()
        driver.stop()
        times = [record.timestamp for record in read_all(source_cluster.bootstrap, topic)[0]]
        assert [record.timestamp for record in lane.copied()[0]] == times


def test_deleted_records_do_not_come_back_with_the_rest_of_their_batch(lane: RealLane) -> None:
    lane.make(1)
    records = [NewRecord(b"%d" % index) for index in range(100)]
    lane.fill(records, settings={"linger.ms": 200})
    delete_records(lane.source.bootstrap, lane.topic, {0: 37})
    driver = lane.start(1)
    driver.wait_caught_up()
    driver.stop()
    assert [record.value for record in lane.copied()[0]] == [
        b"%d" % index for index in range(37, 100)
    ]


def test_a_record_too_large_for_the_target_stops_its_partition_only(lane: RealLane) -> None:
    lane.make_source(2)
    lane.make_target(2, {"max.message.bytes": "10000"})
    small = [NewRecord(b"x" * 100, partition=index % 2) for index in range(40)]
    lane.fill(small)
    lane.fill([big(20_000, partition=1)])
    lane.fill(small, settings={"linger.ms": 100})
    driver = lane.start(2)
    reason = lane.failure(driver, 1)
    assert "offset 20" in reason
    assert "MESSAGE_TOO_LARGE" in reason or "too large" in reason.lower()
    other = lane.at(0)
    eventually(
        lambda: other in driver.report and driver.report[other].committed == 40,
        20,
        "the other partition goes on",
    )
    assert len(lane.copied()[1]) == 20


def test_a_batch_too_large_for_the_target_is_cut_smaller(lane: RealLane) -> None:
    lane.make_source(1)
    lane.make_target(1, {"max.message.bytes": "3000"})
    records = [NewRecord(b"%d" % index * 300, key=b"%d" % index) for index in range(60)]
    lane.fill(records, settings={"linger.ms": 200})
    driver = lane.start(1)
    driver.wait_caught_up()
    driver.stop()
    lane.assert_equal()


def test_a_record_is_skipped_under_the_operators_policy_and_counted(lane: RealLane) -> None:
    lane.make_source(1)
    lane.make_target(1, {"max.message.bytes": "3000"})
    records = [NewRecord(b"x" * (5_000 if index == 7 else 50)) for index in range(20)]
    lane.fill(records, settings={"linger.ms": 200})
    settings = RouteSettings(abort_on_send_failure=False)
    driver = lane.start(1, grant=lambda part, epoch: Grant(epoch, part.topic, settings=settings))
    driver.wait_caught_up()
    assert driver.report[lane.at(0)].skipped == 1
    driver.stop()
    assert len(lane.copied()[0]) == 19
