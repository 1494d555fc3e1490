"""The copier alone, exactly once, between two real brokers of each transaction protocol.

What is sent, read and committed is recorded, and the history is judged at the end (`histories`).
"""

import json
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.features import transaction_support
from ureplicator_common.kafka.transactions.producers import TransactionProtocol
from ureplicator_common.model import (
    Delivery,
    HandlerSettings,
    OwnerEpoch,
    Partition,
    RouteSettings,
)
from ureplicator_testkit.copier.driver import StubDriver
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.copier.observed import Observed
from ureplicator_testkit.copier.sample_handlers import MODULE
from ureplicator_testkit.records.topics import ConsumedRecord, create_topic, read_all
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
        assert transaction_support(client).protocol is VERSIONS[request.param]
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


@pytest.fixture
def observed(lane: RealLane) -> Iterator[Observed]:
    observed = Observed(lane, partitions=PARTITIONS)
    yield observed
    observed.close()


def test_a_backlog_and_what_follows(lane: RealLane, observed: Observed) -> None:
    """The copier starts behind a batch of 16,000 records and two long transactions."""
    observed.start()
    driver = start(lane)
    driver.wait_caught_up(60)
    observed.follow(300, driver)
    observed.load.stop()
    driver.wait_caught_up()
    driver.stop()
    observed.judge()


def test_a_copier_killed_again_and_again_repeats_nothing(
    lane: RealLane, observed: Observed
) -> None:
    observed.start()
    for turn in range(KILLS):
        driver = start(lane)
        driver.wait_online()
        observed.follow(300 * (turn + 1), driver)
        observed.fault("SIGKILL: copier")
        driver.process.kill_tree()
        driver.close()
    observed.load.stop()
    driver = start(lane)
    driver.wait_caught_up(60)
    driver.stop()
    observed.judge()


def test_what_a_handler_emits_is_there_once_whatever_is_killed(
    lane: RealLane, observed: Observed
) -> None:
    """All source partitions share the partition of one topic; the broker is the coordinator, too."""
    other, shared = f"{lane.topic}-copy", f"{lane.topic}-shared"
    create_topic(lane.target.bootstrap, other, partitions=PARTITIONS)
    create_topic(lane.target.bootstrap, shared)
    handler = HandlerSettings(
        ".*", f"{MODULE}:three", json.dumps({"others": [other, shared]}), timeout_s=5.0
    )
    settings = RouteSettings(delivery=Delivery.EXACTLY_ONCE, handlers=(handler,))
    observed.start()
    for turn, what in enumerate(("copier", "handler", "broker", "copier", "handler")):
        driver = start(lane, settings=settings)
        driver.wait_online()
        observed.follow(300 * (turn + 1), driver)
        observed.fault(f"SIGKILL: {what}")
        harm(what, lane, driver.process)
        observed.follow(0 if what == "copier" else 300, driver)
        driver.process.kill_tree()
        driver.close()
    observed.load.stop()
    driver = start(lane, settings=settings)
    driver.wait_caught_up(60)
    driver.stop()
    observed.judge()
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


def values(log: Mapping[int, Sequence[ConsumedRecord]]) -> dict[int, list[bytes]]:
    return {number: [each.value or b"" for each in found] for number, found in log.items()}
