"""The copier alone, exactly once, between two real brokers of each transaction protocol."""

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.positions import TransactionProtocol, transaction_protocol
from ureplicator_common.model import Delivery, HandlerSettings, OwnerEpoch, Partition, RouteSettings
from ureplicator_testkit.copier.driver import StubDriver
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.copier.sample_handlers import MODULE
from ureplicator_testkit.records.labels import assert_holds, numbers
from ureplicator_testkit.records.load import Load
from ureplicator_testkit.records.topics import (
    ConsumedRecord,
    compare_logs,
    create_topic,
    read_all,
    sample_records,
)
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import Process
from ureplicator_testkit.servers.versions import kafka_of_version
from ureplicator_worker.lifeline.messages import Grant

PARTITIONS = 3
KILLS = 8
EXACTLY_ONCE = RouteSettings(delivery=Delivery.EXACTLY_ONCE)
VERSIONS = {"3.9.2": TransactionProtocol.ADDED, "4.1.0": TransactionProtocol.IMPLICIT}


@pytest.fixture(scope="module", params=VERSIONS)
def target(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with kafka_of_version(request.param, name="target") as cluster:
        client = ClusterClient(cluster.bootstrap)
        assert transaction_protocol(client) is VERSIONS[request.param]
        client.close()
        yield cluster


@pytest.fixture
def lane(
    source_cluster: KafkaCluster, target: KafkaCluster, topic: str, fleet: str, tmp_path: Path
) -> Iterator[RealLane]:
    lane = RealLane(source_cluster, target, topic, fleet, tmp_path)
    yield lane
    lane.close()


def start(
    lane: RealLane,
    *,
    epoch: int = 1,
    worker: str = "w1",
    fence: tuple[str, ...] = (),
    settings: RouteSettings = EXACTLY_ONCE,
) -> StubDriver:
    def grant(partition: Partition, epoch: OwnerEpoch) -> Grant:
        return Grant(epoch, partition.topic, fence=fence, settings=settings)

    return lane.start(PARTITIONS, epoch=epoch, worker=worker, grant=grant)


def assert_same_once(lane: RealLane) -> None:
    compare_logs(lane.source.bootstrap, lane.target.bootstrap, lane.topic).assert_clean()


def test_a_backlog_and_what_follows(lane: RealLane) -> None:
    lane.make(PARTITIONS)
    lane.fill(sample_records(3_000, partitions=PARTITIONS))
    driver = start(lane)
    driver.wait_caught_up()
    lane.fill(sample_records(300, partitions=PARTITIONS, seed=1))
    driver.wait_caught_up()
    driver.stop()
    assert_same_once(lane)


def test_a_copier_killed_again_and_again_repeats_nothing(lane: RealLane) -> None:
    lane.make(PARTITIONS)
    with Load(lane.source.bootstrap, lane.topic, partitions=PARTITIONS) as load:
        for turn in range(KILLS):
            driver = start(lane)
            driver.wait_online()
            load_before = load.count
            while load.count < load_before + 300 * (turn + 1):
                driver.process.assert_running()
            driver.process.kill_tree()
            driver.close()
    driver = start(lane)
    driver.wait_caught_up(60)
    driver.stop()
    target = read_all(lane.target.bootstrap, lane.topic)
    assert_holds(target, lane.topic, load.acknowledged)
    assert all(
        count == 1 for found in numbers(target, lane.topic).values() for count in found.values()
    )
    assert_same_once(lane)


def test_what_a_handler_emits_is_there_once_whatever_is_killed(lane: RealLane) -> None:
    """All source partitions share the partition of one topic; the broker is the coordinator, too."""
    lane.make(PARTITIONS)
    other, shared = f"{lane.topic}-copy", f"{lane.topic}-shared"
    create_topic(lane.target.bootstrap, other, partitions=PARTITIONS)
    create_topic(lane.target.bootstrap, shared)
    handler = HandlerSettings(
        ".*", f"{MODULE}:three", json.dumps({"others": [other, shared]}), timeout_s=5.0
    )
    settings = RouteSettings(delivery=Delivery.EXACTLY_ONCE, handlers=(handler,))
    with Load(lane.source.bootstrap, lane.topic, partitions=PARTITIONS) as load:
        for turn, what in enumerate(("copier", "handler", "broker", "copier", "handler")):
            driver = start(lane, settings=settings)
            driver.wait_online()
            follow(load, 300 * (turn + 1), driver)
            harm(what, lane, driver.process)
            follow(load, 0 if what == "copier" else 300, driver)
            driver.process.kill_tree()
            driver.close()
    driver = start(lane, settings=settings)
    driver.wait_caught_up(60)
    driver.stop()
    assert_same_once(lane)
    wanted = values(read_all(lane.source.bootstrap, lane.topic))
    assert values(read_all(lane.target.bootstrap, other)) == wanted
    (mixed,) = values(read_all(lane.target.bootstrap, shared)).values()
    assert sorted(mixed) == sorted(value for found in wanted.values() for value in found)
    for of_partition in wanted.values():
        labelled = [value for value in of_partition if value]
        known = set(labelled)
        assert [value for value in mixed if value in known] == labelled


def harm(what: str, lane: RealLane, copier: Process) -> None:
    """Kill something that the copier goes on without."""
    if what == "broker":
        lane.target.restart(clean=False)
    elif what == "handler":
        for pid in set(copier.tree()) - {copier.pid}:
            os.kill(pid, signal.SIGKILL)


def follow(load: Load, count: int, driver: StubDriver) -> None:
    """Wait for so many records more."""
    before = load.count
    while load.count < before + count:
        driver.process.assert_running()
        time.sleep(0.01)


def values(log: Mapping[int, Sequence[ConsumedRecord]]) -> dict[int, list[bytes]]:
    return {number: [each.value or b"" for each in found] for number, found in log.items()}
