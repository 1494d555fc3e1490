"""Takeovers from an owner that was lost, exactly once without transactions, between two real brokers.

The former owner has committed nothing but where it began, so all that it copied is counted by the next one.
The target forgets a producer five seconds after its last batch, by the time of the records, and closes an
idle connection after two: so all that a day does to a takeover takes seconds.

Every test ends with both logs: readers of committed and of all records find each record once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from ureplicator_common.model import Delivery, GapPolicy, RouteSettings
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.copier.lanes import LANES
from ureplicator_testkit.copier.owners import COPIED_S, COUNT, EXACTLY_ONCE, NEVER_S, Takeover
from ureplicator_testkit.histories.events import READ_COMMITTED
from ureplicator_testkit.records.topics import NewRecord, delete_records, read_all
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.java import KAFKA_VERSION, KAFKA_VERSIONS
from ureplicator_testkit.servers.processes import eventually
from ureplicator_testkit.servers.versions import kafka_of_version

VERSIONS = KAFKA_VERSIONS[1:] if os.environ.get("UREPLICATOR_KILLS") else (KAFKA_VERSION,)
EXPIRATION_S, IDLE_S, SWEEP_S = 5.0, 2.0, 1.0
FORGETFUL = {
    "producer.id.expiration.ms": f"{EXPIRATION_S * 1_000:.0f}",
    "producer.id.expiration.check.interval.ms": f"{SWEEP_S * 1_000:.0f}",
    "connections.max.idle.ms": f"{IDLE_S * 1_000:.0f}",
}
AT_LEAST_ONCE = RouteSettings(delivery=Delivery.AT_LEAST_ONCE)
IN_TRANSACTIONS = LANES["exactly_once-handled"]
"""Its positions are those of a build that sends everything exactly once in transactions."""
COMPARED = "count and bytes disagree: all that was copied is compared by the second try"
MORE = 50
YEAR_MS = 365 * 24 * 3_600_000
ANY_TIME = {
    "retention.ms": "-1",
    "message.timestamp.before.max.ms": str(2 * YEAR_MS),
    "message.timestamp.after.max.ms": str(2 * YEAR_MS),
}
STAMPED = {"message.timestamp.type": "LogAppendTime"}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "500",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "500",
    "delete.retention.ms": "100",
}
ROLLED_S = 0.6
"""A segment is older than `segment.ms` then, and the next batch begins another one."""
KEYS = 50


@pytest.fixture(scope="module", params=VERSIONS)
def target(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with kafka_of_version(request.param, name="forgetful", properties=FORGETFUL) as cluster:
        yield cluster


@pytest.fixture
def takeover(
    source_cluster: KafkaCluster, target: KafkaCluster, topic: str, fleet: str, tmp_path: Path
) -> Iterator[Takeover]:
    lane = RealLane(source_cluster, target, topic, fleet, tmp_path)
    yield Takeover(lane)
    lane.close()


def at_any_time(record: NewRecord) -> NewRecord:
    """Partition 0 holds records of last year, partition 1 of next year, partition 2 of today."""
    now_ms = round(time.time() * 1_000)
    return replace(record, timestamp=now_ms + (-YEAR_MS, YEAR_MS, 0)[record.partition])


def test_several_owners_in_a_row_are_lost(takeover: Takeover) -> None:
    """Records of any time: brokers forget the producer of old ones between any two batches."""
    takeover.make(3, source=ANY_TIME, target=ANY_TIME)
    takeover.fill(COUNT, at_any_time)
    takeover.lose()
    for _ in range(3):
        takeover.fill(MORE, at_any_time)
        driver = takeover.own()
        driver.wait_online()
        driver.process.kill_tree()
        driver.close()
    takeover.fill(MORE, at_any_time)
    takeover.finish()
    takeover.assert_once()


@pytest.mark.parametrize("frozen_s", [0.0, EXPIRATION_S + SWEEP_S], ids=["short", "long"])
def test_an_owner_thaws_behind_its_successor(takeover: Takeover, frozen_s: float) -> None:
    """It has records in its hands when it thaws: they are refused by its epoch; or, when brokers have
    forgotten the fence, it finds its connections closed, and is no owner any more."""
    takeover.make(3, source=ANY_TIME, target=ANY_TIME)
    takeover.fill(COUNT, at_any_time)
    former = takeover.copy_uncommitted()
    former.process.pause()
    takeover.fill(MORE, at_any_time)
    successor = takeover.own()
    successor.wait_caught_up(COPIED_S)
    time.sleep(frozen_s)
    former.mode = "refuse"
    former.process.resume()
    mine = {takeover.lane.at(number) for number in range(3)}
    eventually(lambda: former.failed.keys() == mine, COPIED_S, "the former owner gives up")
    takeover.fill(MORE, at_any_time)
    successor.wait_caught_up(COPIED_S)
    successor.stop()
    former.close()
    takeover.assert_once()


def test_a_target_that_stamps_records_itself(takeover: Takeover) -> None:
    takeover.make(2, target=STAMPED)
    takeover.fill(COUNT)
    takeover.lose()
    takeover.fill(MORE)
    takeover.finish()
    takeover.assert_once(stamped=True)


def test_an_empty_log_is_restarted_before_the_takeover(takeover: Takeover, fleet: str) -> None:
    """A broker knows no producer of a log without a batch behind its restart. What lay behind the position is
    unknown then, and stops the partition; a position at the end has nothing behind it."""
    lane = takeover.lane
    behind = Takeover(RealLane(lane.source, lane.target, f"{lane.topic}-2", fleet, lane.folder))
    for made in (takeover, behind):
        made.make(1)
        made.fill(COUNT)
    behind.lose()
    driver = takeover.own()
    driver.wait_caught_up(COPIED_S)
    driver.process.kill_tree()
    driver.close()
    (at,), (end,) = (made.source_ends().values() for made in (takeover, behind))
    for made in (takeover, behind):
        delete_records(lane.target.bootstrap, made.topic, made.source_ends())
    lane.target.restart()
    takeover.fill(MORE)
    takeover.finish()
    rest = read_all(lane.source.bootstrap, takeover.topic)[0][at:]
    takeover.assert_values(0, [row.value for row in rest])
    stopped = behind.own()
    reason = behind.lane.failure(stopped, 0)
    assert f"the target's log begins at {end:,}, behind what was sent after the position" in reason
    assert not stopped.failed[behind.lane.at(0)].temporary
    behind.lane.close()
    assert behind.lane.copied() == {0: ()}


def test_records_are_deleted_before_the_takeover(takeover: Takeover) -> None:
    """A part of what was copied is deleted at the source (0), or all of it and more (1); at the target a part
    (2)."""
    takeover.make(3)
    takeover.fill(COUNT)
    takeover.lose()
    end = takeover.source_ends()[0]
    takeover.fill(MORE)
    source = read_all(takeover.lane.source.bootstrap, takeover.topic)
    values = {number: [row.value for row in rows] for number, rows in source.items()}
    delete_records(takeover.lane.source.bootstrap, takeover.topic, {0: end - 200, 1: end + 10})
    delete_records(takeover.lane.target.bootstrap, takeover.topic, {2: end - 10})
    driver = takeover.own(settings=replace(EXACTLY_ONCE, on_gap=GapPolicy.EARLIEST))
    compared = {takeover.lane.at(0), takeover.lane.at(1)}
    eventually(lambda: driver.failed.keys() == compared, COPIED_S, COMPARED)
    takeover.retry(driver, 0, 1)
    driver.wait_caught_up(COPIED_S)
    driver.stop()
    takeover.assert_values(0, values[0])
    takeover.assert_values(1, [*values[1][:end], *values[1][end + 10 :]])
    takeover.assert_values(2, values[2][end - 10 :])
    assert [(p.number, gap.first_offset, gap.next_offset) for p, gap in driver.gaps] == [
        (1, end, end + 10)
    ]


def keyed(first: int, count: int) -> list[NewRecord]:
    return [NewRecord(b"%d" % n, key=b"%d" % (n % KEYS)) for n in range(first, first + count)]


def fewer_than(cluster: KafkaCluster, topic: str, count: int) -> bool:
    return len(read_all(cluster.bootstrap, topic)[0]) < count


@pytest.mark.parametrize(
    ("both", "last"),
    [(False, "a value"), (True, "a tombstone")],
    ids=["source", "source and target"],
)
def test_compacted_logs(takeover: Takeover, both: bool, last: str) -> None:
    """The cleaner has been at the source, or at both ends, since the copy: counts of records say nothing. Of
    the last copied records the source has only some; a tombstone is gone from both ends."""
    lane, topic = takeover.lane, takeover.topic
    takeover.make(1, source=COMPACTED, target=COMPACTED if both else None)
    lane.fill(keyed(0, COUNT // 2))
    driver = takeover.own(commit_interval_s=NEVER_S)
    eventually(lambda: lane.target_ends()[0] == COUNT // 2, COPIED_S, "the first half is copied")
    time.sleep(ROLLED_S)
    tombstone = [NewRecord(None, key=b"gone")] if last == "a tombstone" else keyed(COUNT - 1, 1)
    lane.fill([*keyed(COUNT // 2, COUNT // 2 - 1), *tombstone])
    eventually(lambda: lane.target_ends()[0] == COUNT, COPIED_S, "the second half is copied")
    driver.process.kill_tree()
    driver.close()
    time.sleep(ROLLED_S)
    lane.fill(keyed(COUNT, KEYS // 2))
    for cluster in (lane.source, lane.target)[: 1 + both]:
        few = partial(fewer_than, cluster, topic, COUNT // 2 + KEYS + 1)
        eventually(few, COPIED_S, f"{cluster.name} is compacted")
    is_behind = lane.stored(1)[0].offset < COUNT  # unless a new connection had it committed
    driver = takeover.own()
    if is_behind:
        eventually(lambda: lane.at(0) in driver.failed, COPIED_S, COMPARED)
        takeover.retry(driver, 0)
    driver.wait_caught_up(COPIED_S)
    driver.stop()
    tries = len(driver.proof_requests)
    assert lane.target_ends()[0] == COUNT + KEYS // 2 + tries, "a control record for each try"
    kept = [row.value for row in lane.copied()[0]]
    wanted = [record.value for record in keyed(COUNT, KEYS // 2)]
    assert kept[-len(wanted) :] == wanted


def test_delivery_is_changed_from_owner_to_owner(takeover: Takeover) -> None:
    """All are killed but those that copy at least once, each with records that it has not committed."""
    takeover.make(2)
    for settings in (
        *(AT_LEAST_ONCE, EXACTLY_ONCE, AT_LEAST_ONCE),
        *(IN_TRANSACTIONS, EXACTLY_ONCE),
    ):
        takeover.fill(COUNT)
        driver = takeover.own(settings=settings)
        driver.wait_caught_up(COPIED_S)
        if settings is AT_LEAST_ONCE:
            driver.stop()
            continue
        takeover.fill(MORE)
        takeover.wait_copied()
        driver.process.kill_tree()
        driver.close()
    takeover.finish(settings=AT_LEAST_ONCE)
    takeover.assert_once(isolations=[READ_COMMITTED])
