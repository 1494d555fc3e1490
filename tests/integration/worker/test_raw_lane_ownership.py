"""The copier alone between two real brokers: start positions, fencing, gaps and errors.

The driver is a stub (`ureplicator_testkit.copier.driver`) that grants, refuses or stays silent.
"""

import time

import pytest
from confluent_kafka import Consumer, TopicPartition

from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.provenance import Provenance
from ureplicator_common.kafka.transactions.fencing import fence_ids
from ureplicator_common.model import (
    GapPolicy,
    OwnerEpoch,
    Partition,
    PartitionState,
    RouteSettings,
    position_group,
)
from ureplicator_testkit.copier.driver import ROUTE, partitions_of
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.records.topics import (
    delete_records,
    offsets,
    sample_records,
)
from ureplicator_testkit.servers.processes import eventually
from ureplicator_worker.lifeline.messages import Add, Grant


def test_a_copier_that_thaws_never_commits(lane: RealLane) -> None:
    """The safety argument of `kafka.positions`: the frozen owner is fenced before the new one reads."""
    lane.make(2)
    lane.fill(sample_records(200, partitions=2))
    former = lane.start(2, worker="w1")
    former.wait_caught_up()
    former.process.pause()
    fence = lane.ids("w1", slots=2)
    taking = lane.start(
        2,
        epoch=2,
        worker="w2",
        grant=lambda partition, epoch: Grant(
            epoch, partition.topic, fence=fence, had_position=True
        ),
    )
    taking.wait_online()
    lane.fill(sample_records(200, partitions=2, seed=1))
    taking.wait_caught_up()
    former.mode = "refuse"
    former.process.resume()
    lane.fill(sample_records(200, partitions=2, seed=2))
    mine = set(partitions_of(lane.topic, 2))
    eventually(lambda: former.failed.keys() == mine, 20, "w1 releases")
    assert all("not yours any more" in failed.reason for failed in former.failed.values())
    taking.wait_caught_up()
    for position in lane.stored(2).values():
        written = Provenance.decode(position.metadata)
        assert written is not None
        assert written.worker == "w2"
    former.stop()
    taking.stop()
    lane.assert_faultless()


def test_a_fenced_copier_that_still_owns_goes_on_without_repeats(lane: RealLane) -> None:
    """Another partition's new owner fences all ids of a worker; what it still owns must not stop."""
    lane.make(2)
    driver = lane.start(2)
    lane.fill(sample_records(200, partitions=2))
    driver.wait_caught_up()
    client = ClusterClient(lane.target.bootstrap)
    try:
        fence_ids(client, lane.ids("w1"))
    finally:
        client.close()
    lane.fill(sample_records(200, partitions=2, seed=1))
    eventually(lambda: len(driver.proof_requests) == 2, 20, "the copier requests the proof again")
    driver.wait_caught_up()
    driver.stop()
    lane.assert_equal()


def test_without_the_drivers_proof_nothing_is_copied(lane: RealLane) -> None:
    lane.make(1)
    lane.fill(sample_records(10))
    granting: list[Partition] = []

    def grant(partition: Partition, epoch: OwnerEpoch) -> Grant:
        granting.append(partition)
        time.sleep(1)  # the response takes its time; meanwhile nothing may have happened
        assert offsets(lane.target.bootstrap, lane.topic)[0] == (0, 0)
        assert lane.stored(1)[0].offset == -1
        return Grant(epoch, partition.topic)

    driver = lane.start(1, grant=grant)
    driver.wait_caught_up()
    assert granting
    driver.stop()


def test_a_lost_position_is_an_error_and_never_a_new_start(lane: RealLane) -> None:
    lane.make(1)
    lane.fill(sample_records(10))
    driver = lane.resume(1)
    assert "position lost" in lane.failure(driver, 0)
    assert offsets(lane.target.bootstrap, lane.topic)[0] == (0, 0)


def test_what_the_source_holds_of_positions_is_never_read(lane: RealLane) -> None:
    """It is read neither for a partition without a position, nor for one that has one."""
    lane.make(2)
    lane.fill(sample_records(20, partitions=2))
    commit_at_source(lane, {0: 7, 1: 7})
    first = lane.start(2)
    first.wait_caught_up()
    first.stop()
    commit_at_source(lane, {0: 3, 1: 0})
    lane.fill(sample_records(10, partitions=2, seed=1))
    second = lane.resume(2)
    second.wait_caught_up()
    second.stop()
    lane.assert_equal()


def commit_at_source(lane: RealLane, offsets: dict[int, int]) -> None:
    """Commit as a consumer of the group to which positions are published."""
    group = position_group(fleet=lane.fleet, route=ROUTE)
    consumer = Consumer({"bootstrap.servers": lane.source.bootstrap, "group.id": group})
    try:
        wanted = [TopicPartition(lane.topic, number, at) for number, at in offsets.items()]
        consumer.commit(offsets=wanted, asynchronous=False)
    finally:
        consumer.close()


@pytest.mark.parametrize(("start_at", "expected"), [("latest", 5), ("earliest", 15)])
def test_where_a_new_partition_begins(lane: RealLane, start_at: str, expected: int) -> None:
    lane.make(1)
    lane.fill(sample_records(10))
    settings = RouteSettings(start=start_at)
    driver = lane.start(1, grant=lambda part, epoch: Grant(epoch, part.topic, settings=settings))
    driver.wait_caught_up()
    lane.fill(sample_records(5, seed=1))
    partition = lane.at(0)
    eventually(lambda: driver.report[partition].position == 15, 20, "the rest is copied")
    driver.wait_caught_up()
    driver.stop()
    assert len(lane.copied()[0]) == expected


@pytest.mark.parametrize("policy", list(GapPolicy))
def test_a_gap_before_the_position_is_never_jumped_silently(
    lane: RealLane, policy: GapPolicy
) -> None:
    lane.make(1)
    partition = lane.at(0)
    lane.fill(sample_records(10))
    first = lane.start(1)
    first.wait_caught_up()
    first.stop()
    lane.fill(sample_records(10, seed=1))
    delete_records(lane.source.bootstrap, lane.topic, {0: 15})
    settings = RouteSettings(on_gap=policy)
    second = lane.start(
        1,
        grant=lambda part, epoch: Grant(epoch, part.topic, had_position=True, settings=settings),
    )
    if policy is GapPolicy.STOP:
        assert "out of range" in lane.failure(second, 0)
        return
    second.wait_caught_up()
    assert second.report[partition].gaps == 1
    second.stop()
    copied = 15 if policy is GapPolicy.EARLIEST else 10
    assert len(lane.copied()[0]) == copied


def test_a_missing_target_topic_is_a_temporary_error(lane: RealLane) -> None:
    lane.make_source(4)
    driver = lane.start(4)
    assert "does not exist on the target" in lane.failure(driver, 0)
    assert driver.failed[lane.at(0)].temporary


def test_sigkill_repeats_no_more_than_was_not_committed(lane: RealLane) -> None:
    lane.make(2)
    lane.fill(sample_records(20_000, partitions=2))
    first = lane.start(2)
    partitions = partitions_of(lane.topic, 2)
    eventually(
        lambda: any(row.committed > 0 for row in first.report.values()), 20, "a first commit"
    )
    first.process.kill_tree()
    sent = {number: end for number, (_, end) in offsets(lane.target.bootstrap, lane.topic).items()}
    committed = {number: position.offset for number, position in lane.stored(2).items()}
    second = lane.resume(2)
    second.wait_caught_up()
    second.stop()
    assert second.released == set(partitions)
    lane.assert_faultless()
    total = {number: end for number, (_, end) in offsets(lane.target.bootstrap, lane.topic).items()}
    for number in range(2):
        assert committed[number] <= sent[number]
        repeats = total[number] - 10_000
        assert repeats <= sent[number] - committed[number]


def test_removed_and_added_partitions_leave_the_others_alone(lane: RealLane) -> None:
    lane.make(3)
    driver = lane.start(3)
    driver.wait_online()
    last = lane.at(2)
    for turn in range(3):
        lane.fill(sample_records(300, partitions=3, seed=turn))
        driver.remove(last)
        eventually(lambda: last in driver.released, 10, "the partition is released")
        driver.released.clear()
        rest = [row for part, row in driver.report.items() if part != last]
        assert all(row.state is PartitionState.ONLINE for row in rest)
        driver.send(Add({last: OwnerEpoch(turn + 2)}))
        driver.wait_caught_up()
    driver.stop()
    lane.assert_equal()
