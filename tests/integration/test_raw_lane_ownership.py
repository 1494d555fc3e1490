"""The copier alone between two real brokers: where it begins, who may commit, what never happens silently.

The driver is a stub (`ureplicator_testkit.driver`) that grants, refuses or keeps silent as a test wants.
"""

import time
from collections.abc import Callable

import pytest

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.positions import fence_ids
from ureplicator_common.kafka.wire import ClusterClient
from ureplicator_common.model import (
    GapPolicy,
    OwnerEpoch,
    Partition,
    PartitionState,
    RouteSettings,
    WorkerId,
    transactional_ids,
)
from ureplicator_testkit.clusters import KafkaCluster
from ureplicator_testkit.driver import ROUTE, StubDriver, partitions_of
from ureplicator_testkit.processes import eventually
from ureplicator_testkit.topics import (
    compare_logs,
    create_topic,
    delete_records,
    delete_topic,
    offsets,
    produce,
    read_all,
    sample_records,
)
from ureplicator_worker.core.messages import Add, Grant

Start = Callable[..., StubDriver]


def assert_equal_logs(source: KafkaCluster, target: KafkaCluster, topic: str) -> None:
    compare_logs(source.bootstrap, target.bootstrap, topic).assert_clean()


def only_fails(driver: StubDriver, number: int, topic: str) -> str:
    """Wait until one partition was given up; its reason."""
    partition = Partition(ROUTE, topic, number)
    eventually(lambda: partition in driver.failed, 20, f"{partition} fails")
    return driver.failed[partition].reason


def test_a_copier_that_thaws_never_commits(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    topic: str,
    fleet: str,
    both: Callable[..., None],
    start: Start,
    stored: Callable[[str, int], dict[int, Position]],
) -> None:
    """The proof of `kafka.positions`: the frozen owner is fenced before the new one reads."""
    both(topic, 2)
    produce(source_cluster.bootstrap, topic, sample_records(200, partitions=2))
    former = start(topic, 2, worker="w1")
    former.wait_caught_up()
    former.process.pause()
    fence = transactional_ids(fleet=fleet, route=ROUTE, worker=WorkerId("w1"), slots=2)
    taking = start(
        topic,
        2,
        epoch=2,
        worker="w2",
        grant=lambda partition, epoch: Grant(
            epoch, partition.topic, fence=fence, had_position=True
        ),
    )
    taking.wait_online()
    produce(source_cluster.bootstrap, topic, sample_records(200, partitions=2, seed=1))
    taking.wait_caught_up()
    former.mode = "refuse"
    former.process.resume()
    produce(source_cluster.bootstrap, topic, sample_records(200, partitions=2, seed=2))
    eventually(lambda: former.released == set(partitions_of(topic, 2)), 20, "w1 lets go")
    taking.wait_caught_up()
    for position in stored(topic, 2).values():
        assert '"worker":"w2"' in position.metadata
    former.stop()
    taking.stop()
    compare_logs(source_cluster.bootstrap, target_cluster.bootstrap, topic).assert_faultless()


def test_a_fenced_copier_that_still_owns_goes_on_without_repeats(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    topic: str,
    fleet: str,
    both: Callable[..., None],
    start: Start,
) -> None:
    """Another partition's new owner fences all ids of a worker; what it still owns must not stop."""
    both(topic, 2)
    driver = start(topic, 2)
    produce(source_cluster.bootstrap, topic, sample_records(200, partitions=2))
    driver.wait_caught_up()
    client = ClusterClient(target_cluster.bootstrap)
    try:
        fence_ids(
            client, transactional_ids(fleet=fleet, route=ROUTE, worker=WorkerId("w1"), slots=1)
        )
    finally:
        client.close()
    produce(source_cluster.bootstrap, topic, sample_records(200, partitions=2, seed=1))
    eventually(lambda: len(driver.asked) == 2, 20, "the copier asks again")
    driver.wait_caught_up()
    driver.stop()
    assert_equal_logs(source_cluster, target_cluster, topic)


def test_without_the_driver_s_word_nothing_is_copied(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    topic: str,
    both: Callable[..., None],
    start: Start,
    stored: Callable[[str, int], dict[int, Position]],
) -> None:
    both(topic, 1)
    produce(source_cluster.bootstrap, topic, sample_records(10))
    granting: list[Partition] = []

    def grant(partition: Partition, epoch: OwnerEpoch) -> Grant:
        granting.append(partition)
        time.sleep(1)  # the answer takes its time; meanwhile nothing may have happened
        assert offsets(target_cluster.bootstrap, topic)[0] == (0, 0)
        assert stored(topic, 1)[0].offset == -1
        return Grant(epoch, partition.topic)

    driver = start(topic, 1, grant=grant)
    driver.wait_caught_up()
    assert granting
    driver.stop()


def test_a_lost_position_is_an_error_and_never_a_new_start(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    topic: str,
    both: Callable[..., None],
    start: Start,
) -> None:
    both(topic, 1)
    produce(source_cluster.bootstrap, topic, sample_records(10))
    driver = start(topic, 1, grant=lambda part, epoch: Grant(epoch, part.topic, had_position=True))
    assert "position lost" in only_fails(driver, 0, topic)
    assert offsets(target_cluster.bootstrap, topic)[0] == (0, 0)


@pytest.mark.parametrize(("start_at", "expected"), [("latest", 5), ("earliest", 15)])
def test_where_a_new_partition_begins(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    topic: str,
    both: Callable[..., None],
    start: Start,
    start_at: str,
    expected: int,
) -> None:
    both(topic, 1)
    produce(source_cluster.bootstrap, topic, sample_records(10))
    settings = RouteSettings(start=start_at)
    driver = start(topic, 1, grant=lambda part, epoch: Grant(epoch, part.topic, settings=settings))
    driver.wait_caught_up()
    produce(source_cluster.bootstrap, topic, sample_records(5, seed=1))
    partition = Partition(ROUTE, topic, 0)
    eventually(lambda: driver.report[partition].position == 15, 20, "the rest is copied")
    driver.wait_caught_up()
    driver.stop()
    assert len(read_all(target_cluster.bootstrap, topic)[0]) == expected


@pytest.mark.parametrize("policy", list(GapPolicy))
def test_a_hole_before_the_position_is_never_jumped_silently(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    topic: str,
    both: Callable[..., None],
    start: Start,
    policy: GapPolicy,
) -> None:
    both(topic, 1)
    partition = Partition(ROUTE, topic, 0)
    produce(source_cluster.bootstrap, topic, sample_records(10))
    first = start(topic, 1)
    first.wait_caught_up()
    first.stop()
    produce(source_cluster.bootstrap, topic, sample_records(10, seed=1))
    delete_records(source_cluster.bootstrap, topic, {0: 15})
    settings = RouteSettings(on_gap=policy)
    second = start(
        topic,
        1,
        grant=lambda part, epoch: Grant(epoch, part.topic, had_position=True, settings=settings),
    )
    if policy is GapPolicy.STOP:
        assert "out of range" in only_fails(second, 0, topic)
        return
    second.wait_caught_up()
    assert second.report[partition].gaps == 1
    second.stop()
    copied = 15 if policy is GapPolicy.EARLIEST else 10
    assert len(read_all(target_cluster.bootstrap, topic)[0]) == copied


def test_a_source_topic_made_anew_is_not_mixed_with_the_former(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    topic: str,
    both: Callable[..., None],
    start: Start,
) -> None:
    both(topic, 1)
    produce(source_cluster.bootstrap, topic, sample_records(10))
    driver = start(topic, 1)
    driver.wait_caught_up()
    delete_topic(source_cluster.bootstrap, topic)
    create_topic(source_cluster.bootstrap, topic, partitions=1)
    produce(source_cluster.bootstrap, topic, sample_records(30, seed=1))
    reason = only_fails(driver, 0, topic)
    assert "made anew" in reason or "out of range" in reason
    driver.stop()
    again = start(topic, 1, grant=lambda part, epoch: Grant(epoch, part.topic, had_position=True))
    assert "made anew" in only_fails(again, 0, topic)
    assert len(read_all(target_cluster.bootstrap, topic)[0]) == 10


def test_a_missing_target_topic_is_an_error_that_mends_itself(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    source_topic: str,
    start: Start,
) -> None:
    driver = start(source_topic, 4)
    assert "does not exist on the target" in only_fails(driver, 0, source_topic)
    assert driver.failed[Partition(ROUTE, source_topic, 0)].temporary


def test_sigkill_repeats_no_more_than_was_not_committed(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    topic: str,
    both: Callable[..., None],
    start: Start,
    stored: Callable[[str, int], dict[int, Position]],
) -> None:
    both(topic, 2)
    produce(source_cluster.bootstrap, topic, sample_records(20_000, partitions=2))
    first = start(topic, 2)
    partitions = partitions_of(topic, 2)
    eventually(
        lambda: any(row.committed > 0 for row in first.report.values()), 20, "a first commit"
    )
    first.process.kill_tree()
    sent = {number: end for number, (_, end) in offsets(target_cluster.bootstrap, topic).items()}
    committed = {number: position.offset for number, position in stored(topic, 2).items()}
    second = start(topic, 2, grant=lambda part, epoch: Grant(epoch, part.topic, had_position=True))
    second.wait_caught_up()
    second.stop()
    assert second.released == set(partitions)
    compare_logs(source_cluster.bootstrap, target_cluster.bootstrap, topic).assert_faultless()
    total = {number: end for number, (_, end) in offsets(target_cluster.bootstrap, topic).items()}
    for number in range(2):
        assert committed[number] <= sent[number]
        repeats = total[number] - 10_000
        assert repeats <= sent[number] - committed[number]


def test_removed_and_added_partitions_leave_the_others_alone(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    topic: str,
    both: Callable[..., None],
    start: Start,
) -> None:
    both(topic, 3)
    driver = start(topic, 3)
    driver.wait_online()
    last = Partition(ROUTE, topic, 2)
    for turn in range(3):
        produce(source_cluster.bootstrap, topic, sample_records(300, partitions=3, seed=turn))
        driver.remove(last)
        eventually(lambda: last in driver.released, 10, "the partition is let go")
        driver.released.clear()
        rest = [row for part, row in driver.report.items() if part != last]
        assert all(row.state is PartitionState.ONLINE for row in rest)
        driver.say(Add({last: OwnerEpoch(turn + 2)}))
        driver.wait_caught_up()
    driver.stop()
    assert_equal_logs(source_cluster, target_cluster, topic)
