"""An unclean election: the new leader lacks records that the former one had acknowledged.

The copier alone, on a partition of two replicas, in each delivery, with and without a handler. The follower
is killed, then more is acknowledged by the leader alone, then that is killed, and the follower leads. What
is lost so is named with its offsets, and never passed over.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ureplicator_common.model import RouteSettings
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.copier.lanes import LANES, granting
from ureplicator_testkit.records.labels import labelled_records, numbers
from ureplicator_testkit.records.topics import offsets, read_all
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually
from ureplicator_testkit.servers.replicas import create_placed, in_sync, leader
from ureplicator_testkit.servers.replicated import ReplicatedServers

LEADER, FOLLOWER = 1, 2
UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
FIRST, LATER, AFTERWARDS = 50, 20, 60
EXPELLED_S = 30


@pytest.fixture
def lane(
    site: ReplicatedServers, topic: str, unique_name: str, tmp_path: Path
) -> Iterator[RealLane]:
    site.heal()
    lane = RealLane(site.source, site.target, topic, unique_name, tmp_path)
    yield lane
    lane.close()


@pytest.fixture(params=list(LANES.values()), ids=list(LANES))
def settings(request: pytest.FixtureRequest) -> RouteSettings:
    found: RouteSettings = request.param
    return found


def fill(lane: RealLane, first: int, count: int) -> None:
    lane.fill(labelled_records(lane.topic, partitions=1, count=count, first=first))


def kill_follower(cluster: KafkaCluster, topic: str) -> None:
    cluster.kill(FOLLOWER)
    eventually(
        lambda: in_sync(cluster, topic, 0) == {LEADER}, EXPELLED_S, "the follower is expelled"
    )


def elect_follower(cluster: KafkaCluster, topic: str) -> None:
    """Have the follower lead without what was acknowledged meanwhile."""
    cluster.kill(LEADER)
    cluster.restart(FOLLOWER)
    assert leader(cluster, topic, 0) == FOLLOWER


def test_a_truncated_source_is_named_with_its_offsets(
    site: ReplicatedServers, lane: RealLane, settings: RouteSettings
) -> None:
    """The source's log is longer than before when the copier sees it again (KIP-595)."""
    create_placed(site.source, lane.topic, [[LEADER, FOLLOWER]], config=UNCLEAN)
    create_placed(site.target, lane.topic, [[1, 2, 3]])
    fill(lane, 0, FIRST)
    driver = lane.start(1, grant=granting(settings))
    driver.wait_caught_up()
    kill_follower(site.source, lane.topic)
    fill(lane, FIRST, LATER)
    driver.wait_caught_up()
    driver.process.pause()
    elect_follower(site.source, lane.topic)
    fill(lane, FIRST + LATER, AFTERWARDS)
    assert offsets(site.source.bootstrap, lane.topic)[0] == (0, FIRST + AFTERWARDS)
    driver.process.resume()
    reason = lane.failure(driver, 0, deadline_s=40)
    assert re.search(
        rf"truncated: epoch \d+ ends at {FIRST}, position is {FIRST + LATER}", reason
    ), reason
    driver.stop()
    copied = numbers(read_all(site.target.bootstrap, lane.topic), lane.topic)[0]
    assert sorted(copied.elements()) == list(range(FIRST + LATER))


@pytest.mark.parametrize("lost", [1, LATER], ids=["exactly the last record", "several batches"])
def test_a_target_that_lost_records_is_named_with_its_offsets(
    site: ReplicatedServers, lane: RealLane, settings: RouteSettings, lost: int
) -> None:
    """The running copier names it, and sends nothing behind the hole; so does the next one that starts."""
    create_placed(site.source, lane.topic, [[1, 2, 3]])
    create_placed(site.target, lane.topic, [[LEADER, FOLLOWER]], config=UNCLEAN)
    fill(lane, 0, FIRST)
    driver = lane.start(1, grant=granting(settings))
    driver.wait_caught_up()
    kill_follower(site.target, lane.topic)
    fill(lane, FIRST, lost)
    driver.wait_caught_up()
    elect_follower(site.target, lane.topic)
    (_, kept), *_ = offsets(site.target.bootstrap, lane.topic).values()
    fill(lane, FIRST + lost, AFTERWARDS)
    reason = lane.failure(driver, 0, deadline_s=40)
    gone = f"target lost offsets {kept} to "
    assert gone in reason or f"does not continue before offset {FIRST + lost}" in reason, reason
    driver.stop()
    again = lane.start(1, grant=granting(settings, had_position=True))
    assert gone in lane.failure(again, 0, deadline_s=40)
    again.stop()
    copied = numbers(read_all(site.target.bootstrap, lane.topic), lane.topic)[0]
    assert sorted(copied.elements()) == list(range(FIRST))
