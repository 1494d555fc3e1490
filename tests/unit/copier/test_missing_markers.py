"""Markers that are missing at the target: on their way, or lost."""

from __future__ import annotations

import pytest

from ureplicator_testkit.kafka.clients import MemoryCluster
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_testkit.records import batches
from ureplicator_worker.copier.ownership.joining import CheckedEnds, check_ends
from ureplicator_worker.copier.ownership.missing_markers import (
    MARKER_WAIT_S,
    UNSEEN_S,
    MissingMarkers,
)
from ureplicator_worker.copier.position_values import AcknowledgedEnd

KEY = ("t", 0)


class Log:
    """One record, whose transaction's marker is missing."""

    def __init__(self) -> None:
        kafka = MemoryKafka("target", {"t": 1})
        kafka.logs[KEY].put(batches.batch([(0, None, b"t/0/0", ())]))
        self.cluster = MemoryCluster(kafka)
        self.markers = MissingMarkers()

    def look(self, now_s: float) -> CheckedEnds:
        return check_ends(self.cluster, {KEY: AcknowledgedEnd(1, 1)}, self.markers, now_s)


@pytest.fixture
def log() -> Log:
    return Log()


def test_a_marker_that_stays_missing_is_lost(log: Log) -> None:
    for now_s in range(int(MARKER_WAIT_S)):
        assert not log.look(now_s).gone
    assert log.look(MARKER_WAIT_S).gone == {KEY: range(1, 2)}
    assert log.look(MARKER_WAIT_S + 2 * UNSEEN_S).gone  # a partition in ERROR looks seldom


def test_time_in_which_the_log_has_no_leader_does_not_count(log: Log) -> None:
    """The coordinator can write the marker only when the leader is back."""
    log.look(0)
    log.cluster.leaderless.add(KEY)
    assert log.look(1).unknown.keys() == {KEY}
    log.cluster.leaderless.clear()
    for now_s in range(10, 10 + int(MARKER_WAIT_S)):
        assert not log.look(now_s).gone
    assert log.look(10 + MARKER_WAIT_S).gone


def test_time_in_which_nobody_looked_does_not_count(log: Log) -> None:
    """All of the target was away, its coordinators too."""
    log.look(0)
    late_s = MARKER_WAIT_S + UNSEEN_S
    assert not log.look(late_s).gone
    for now_s in range(int(MARKER_WAIT_S)):
        assert not log.look(late_s + now_s).gone
    assert log.look(late_s + MARKER_WAIT_S).gone
