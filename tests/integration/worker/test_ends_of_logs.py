"""Ends of the log and limits of the target between two real brokers: each has a reason of its own."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from ureplicator_common.model import Delivery, GapPolicy, RouteSettings
from ureplicator_testkit.copier.driver import StubDriver
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.records.topics import (
    NewRecord,
    add_partitions,
    offsets,
    sample_records,
)
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually
from ureplicator_worker.lifeline.messages import Grant

HOUR_MS = 3_600_000
LATER = 6_000
HASTY = {"log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "500"}


def start(lane: RealLane, count: int, settings: RouteSettings) -> StubDriver:
    return lane.start(count, grant=lambda part, epoch: Grant(epoch, part.topic, settings=settings))


def set_at_target(lane: RealLane, name: str, value: str) -> None:
    change = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, lane.topic, incremental_configs=[change])
    admin = lane.target.admin()
    admin.incremental_alter_configs([resource])[resource].result(timeout=20)


def test_a_limit_for_timestamps_stops_its_partition_and_skips_nothing(lane: RealLane) -> None:
    lane.make_source(2)
    lane.make_target(2, {"message.timestamp.before.max.ms": str(HOUR_MS)})
    now_ms = round(time.time() * 1_000)
    lane.fill([NewRecord(b"new", partition=n, timestamp=now_ms) for n in (0, 1, 0, 1)])
    lane.fill([NewRecord(b"old", partition=1, timestamp=now_ms - 2 * HOUR_MS)])
    driver = start(lane, 2, RouteSettings(abort_on_send_failure=False))
    assert lane.failure(driver, 1).startswith("target refused offset 2: INVALID_TIMESTAMP")
    assert not driver.failed[lane.at(1)].temporary
    eventually(lambda: driver.report[lane.at(0)].committed == 2, 20, "the other one is copied")
    set_at_target(lane, "message.timestamp.before.max.ms", str(4 * HOUR_MS))
    driver.stop()
    again = lane.resume(2)
    again.wait_caught_up()
    again.stop()
    lane.assert_equal()


@pytest.mark.parametrize("delivery", Delivery)
def test_a_limit_for_sizes_that_is_lowered_while_it_is_copied(
    lane: RealLane, delivery: Delivery
) -> None:
    """Records that the policy leaves out are reported with their offsets."""
    lane.make(1)
    lane.fill([NewRecord(b"x" * 5_000)] * 3)
    driver = start(lane, 1, RouteSettings(delivery=delivery, abort_on_send_failure=False))
    driver.wait_caught_up()
    set_at_target(lane, "max.message.bytes", "3000")
    lane.fill([NewRecord(b"y" * size) for size in (10, 5_000, 20, 5_000, 30)])
    driver.wait_caught_up()
    eventually(lambda: driver.gaps, 20, "the records left out are reported")
    gaps = [gap for _, gap in driver.gaps]
    assert (gaps[0].first_offset, gaps[-1].next_offset) == (4, 7)
    assert "target refused offset" in gaps[0].reason
    assert "MESSAGE_TOO_LARGE" in gaps[0].reason
    assert driver.report[lane.at(0)].skipped == 2
    driver.stop()
    assert [len(record.value or b"") for record in lane.copied()[0]] == [5_000] * 3 + [10, 20, 30]


def test_a_target_with_fewer_partitions(lane: RealLane) -> None:
    lane.make_source(3)
    lane.make_target(2)
    lane.fill(sample_records(30, partitions=3))
    driver = start(lane, 3, RouteSettings())
    reason = f"topic {lane.topic} has no partition 2 on the target"
    assert lane.failure(driver, 2) == reason
    assert driver.failed[lane.at(2)].temporary
    others = [lane.at(number) for number in (0, 1)]
    eventually(
        lambda: all(
            part in driver.report and driver.report[part].committed == 10 for part in others
        ),
        20,
        "the others are copied",
    )
    driver.stop()
    add_partitions(lane.target.bootstrap, lane.topic, 3)
    again = start(lane, 3, RouteSettings())
    again.wait_caught_up()
    again.stop()
    lane.assert_equal()


@pytest.fixture
def hasty(
    target_cluster: KafkaCluster, topic: str, fleet: str, tmp_path: Path
) -> Iterator[RealLane]:
    """A lane from a source that looks for expired segments all the time, not every five minutes."""
    with KafkaCluster(name="hasty", properties=HASTY) as source:
        lane = RealLane(source, target_cluster, topic, fleet, tmp_path)
        yield lane
        lane.close()


def test_retention_that_passes_the_position(hasty: RealLane) -> None:
    """The broker deletes segments by itself; the gap is counted and reported."""
    hasty.make_source(1, {"retention.bytes": "1", "segment.bytes": str(1 << 20)})
    hasty.make_target(1)
    hasty.fill(sample_records(10))
    first = hasty.start(1)
    first.wait_caught_up()
    first.stop()
    hasty.fill(sample_records(LATER, seed=1, value_bytes=1_000))
    eventually(
        lambda: offsets(hasty.source.bootstrap, hasty.topic)[0][0] > 10,
        60,
        "retention has deleted segments",
    )
    settings = RouteSettings(on_gap=GapPolicy.EARLIEST)
    second = hasty.start(
        1,
        grant=lambda part, epoch: Grant(epoch, part.topic, had_position=True, settings=settings),
    )
    second.wait_caught_up()
    report = second.report[hasty.at(0)]
    second.stop()
    passed = [gap for _, gap in second.gaps]
    assert passed[0].reason.startswith("offset 10 is out of range at the source: deleted there")
    assert (passed[0].first_offset, report.gaps) == (10, len(passed))
    assert report.gap_offsets == sum(gap.next_offset - gap.first_offset for gap in passed) > 0
    assert len(hasty.copied()[0]) == 10 + LATER - report.gap_offsets
