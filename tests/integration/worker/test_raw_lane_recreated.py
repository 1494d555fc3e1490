"""Topics that are deleted and recreated on real brokers while they are copied: never mixed."""

import time
from contextlib import AbstractContextManager

import pytest
from confluent_kafka.cimpl import NewTopic

from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.records.load import repeating
from ureplicator_testkit.records.topics import NewRecord, delete_topic, produce
from ureplicator_testkit.servers.clusters import KafkaCluster
from ureplicator_testkit.servers.processes import eventually

FORMER, LATTER = b"former", b"latter"


def records(value: bytes, count: int) -> list[NewRecord]:
    return [NewRecord(value + b"-%d" % index) for index in range(count)]


def recreate_at_once(cluster: KafkaCluster, topic: str) -> None:
    """Deleted and created at once, too fast for a periodic check to notice."""
    admin = cluster.admin()
    admin.delete_topics([topic])[topic].result(timeout=20)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(timeout=20)


def steadily(bootstrap: str, topic: str) -> AbstractContextManager[None]:
    """Records come all the time, until the topic goes."""
    return repeating(lambda: produce(bootstrap, topic, records(FORMER, 5)), pause_s=0.002)


@pytest.mark.parametrize("turn", [0, 3])
def test_nothing_of_a_recreated_source_topic_arrives(lane: RealLane, turn: int) -> None:
    """The new topic has more records than the old one, so that the old position is one of the new topic's,
    too."""
    lane.make(1)
    lane.fill(records(FORMER, 50))
    driver = lane.start(1)
    driver.wait_caught_up()
    with steadily(lane.source.bootstrap, lane.topic):
        lane.fill(records(FORMER, 100 * turn))
    recreate_at_once(lane.source, lane.topic)
    lane.fill(records(LATTER, 20_000))
    reason = lane.failure(driver, 0)
    assert f"source topic {lane.topic} was" in reason
    driver.stop()
    assert all(record.value.startswith(FORMER) for record in lane.copied()[0] if record.value)
    again = lane.resume(1)
    assert "source topic was recreated" in lane.failure(again, 0)


def test_a_copier_that_was_away_meanwhile_reads_nothing_of_the_new_topic(lane: RealLane) -> None:
    """It freezes with no fetch in flight: so no response reports that the topic was deleted."""
    lane.make(1)
    lane.fill(records(FORMER, 50))
    driver = lane.start(1)
    driver.wait_caught_up()
    driver.process.pause()
    time.sleep(0.5)  # longer than a broker holds a fetch for which it has nothing
    recreate_at_once(lane.source, lane.topic)
    lane.fill(records(LATTER, 20_000))
    driver.process.resume()
    reason = lane.failure(driver, 0)
    driver.stop()
    assert f"source topic {lane.topic} was recreated" in reason
    assert all(record.value.startswith(FORMER) for record in lane.copied()[0] if record.value)
    assert lane.stored(1)[0].offset == 50


def test_a_deleted_source_topic_is_called_so(lane: RealLane) -> None:
    lane.make(1)
    lane.fill(records(FORMER, 10))
    driver = lane.start(1)
    driver.wait_caught_up()
    delete_topic(lane.source.bootstrap, lane.topic)
    assert lane.failure(driver, 0) == f"source topic {lane.topic} was deleted"
    driver.stop()
    again = lane.resume(1)
    assert lane.failure(again, 0) == f"source topic {lane.topic} was deleted"


def test_a_quiet_recreated_target_topic_is_noticed(lane: RealLane) -> None:
    lane.make(1)
    lane.fill(records(FORMER, 10))
    driver = lane.start(1)
    driver.wait_caught_up()
    recreate_at_once(lane.target, lane.topic)
    assert f"target topic {lane.topic} was" in lane.failure(driver, 0)
    lane.fill(records(LATTER, 10))
    driver.stop()
    assert lane.target_ends() == {0: 0}


def test_a_recreated_target_topic_gets_nothing_of_what_was_on_its_way(lane: RealLane) -> None:
    """Produce names the topic's id. The metadata may show the moment between the two topics."""
    lane.make(1)
    lane.fill(records(FORMER, 100))
    driver = lane.start(1)
    driver.wait_caught_up()
    with steadily(lane.source.bootstrap, lane.topic):
        eventually(lambda: lane.target_ends()[0] > 150, 20, "some more are copied")
        recreate_at_once(lane.target, lane.topic)
        reason = lane.failure(driver, 0)
        assert reason.startswith(f"target topic {lane.topic} was ")
        assert "recreated" in reason or "deleted" in reason
    driver.stop()
    assert lane.target_ends() == {0: 0}
