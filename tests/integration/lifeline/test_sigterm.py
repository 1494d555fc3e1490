"""SIGTERM to a copier between two real brokers: it drains and commits, with its driver or without."""

import signal

from ureplicator_testkit.copier.driver import partitions_of
from ureplicator_testkit.copier.lane import RealLane
from ureplicator_testkit.records.topics import sample_records


def test_a_copier_at_sigterm_is_stopped_by_its_driver_and_repeats_nothing(lane: RealLane) -> None:
    lane.make(2)
    lane.fill(sample_records(400, partitions=2, seed=1))
    driver = lane.start(2)
    driver.wait_online()
    driver.process.send(signal.SIGTERM)
    assert driver.process.wait(20) == 0, driver.process.log_tail()
    assert driver.stop_requests == ["its process got SIGTERM"]
    assert driver.released == set(partitions_of(lane.topic, 2))
    driver.close()
    successor = lane.start(2)
    successor.wait_caught_up()
    successor.stop()
    lane.assert_equal()


def test_a_copier_at_sigterm_drains_alone_where_the_driver_does_not_respond(lane: RealLane) -> None:
    lane.make(2)
    lane.fill(sample_records(400, partitions=2, seed=2))
    driver = lane.start(2)
    driver.wait_caught_up()
    driver.mode = "silent"
    lane.fill(sample_records(400, partitions=2, seed=3))
    driver.process.send(signal.SIGTERM)
    assert driver.process.wait(25) == 0, driver.process.log_tail()
    assert driver.stop_requests == ["its process got SIGTERM"]
    driver.close()
    successor = lane.start(2)
    successor.wait_caught_up()
    successor.stop()
    lane.assert_equal()
