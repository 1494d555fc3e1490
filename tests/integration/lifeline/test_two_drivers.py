"""Two drivers under one id of a worker: the older one's copiers copy nothing more."""

from ureplicator_testkit.copier.driver import partitions_of
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.records.topics import sample_records
from ureplicator_testkit.servers.processes import eventually

COUNT = 400


def copied(lane: RealLane) -> int:
    return sum(map(len, lane.copied().values()))


def test_copiers_of_the_older_of_two_drivers_copy_nothing_more(lane: RealLane) -> None:
    """The newer one's copier takes over the transactional id; the older one's proof is refused then,
    since another process has registered (`engines.ownership_proof`)."""
    lane.make(2)
    lane.fill(sample_records(COUNT, partitions=2, seed=1))
    older = lane.start(2)
    older.wait_caught_up()
    older.mode = "refuse"
    newer = lane.start(2)
    newer.wait_online()
    lane.fill(sample_records(COUNT, partitions=2, seed=2))
    newer.wait_caught_up()
    all_partitions = set(partitions_of(lane.topic, 2))
    eventually(lambda: set(older.failed) == all_partitions, 30, "the older copier gave all up")
    before = copied(lane)
    lane.fill(sample_records(COUNT, partitions=2, seed=3))
    newer.wait_caught_up()
    assert older.process.running
    assert copied(lane) - before == COUNT
    newer.stop()
    older.stop()
    lane.assert_faultless()
