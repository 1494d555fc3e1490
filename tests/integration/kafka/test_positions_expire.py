"""A target that keeps offsets for a minute: a position that is not renewed is lost, and reported."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.records.topics import sample_records
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually

FORGETFUL = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "500"}


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[KafkaCluster]:
    with KafkaCluster(name="forgetful", folder=tmp_path / "kafka", properties=FORGETFUL) as cluster:
        yield cluster


@pytest.mark.timeout(400)
def test_an_idle_position_is_kept_by_its_owner_and_a_lost_one_is_an_error(
    source_cluster: KafkaCluster, forgetful: KafkaCluster, topic: str, fleet: str, tmp_path: Path
) -> None:
    lane = RealLane(source_cluster, forgetful, topic, fleet, tmp_path)
    try:
        _idle_for_longer_than_offsets_live(lane)
    finally:
        lane.close()


def _idle_for_longer_than_offsets_live(lane: RealLane) -> None:
    lane.make(2)
    lane.fill(sample_records(20, partitions=2))
    owner = lane.start(2, renew_s=15.0)
    owner.wait_caught_up()
    # The second one has no owner, and is not renewed.
    owner.remove(lane.at(1))
    eventually(lambda: lane.at(1) in owner.released, 20, "the second partition is released")
    eventually(lambda: lane.stored(2)[1].offset == -1, 200, "its position has faded", poll_s=2)
    assert lane.stored(2)[0].offset == 10
    owner.stop()
    successor = lane.resume(2)
    assert lane.failure(successor, 1) == "position lost: one was committed once"
    lane.fill(sample_records(20, partitions=2, seed=1))
    eventually(
        lambda: lane.at(0) in successor.report and successor.report[lane.at(0)].committed == 20,
        20,
        "the first partition continues",
    )
    successor.stop()
    assert lane.target_ends() == {0: 20, 1: 10}
