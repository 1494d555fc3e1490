"""Reading of a log until what is looked for is found: for as long as that comes nearer."""

from __future__ import annotations

from typing import Any

import pytest

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import READ_COMMITTED, Broker
from ureplicator_common.kafka.positions import COMMAND_S
from ureplicator_testkit.kafka.clients import MemoryCluster
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_testkit.records import batches
from ureplicator_worker.copier.behind import Behind, Place, Span
from ureplicator_worker.copier.takeover import reading
from ureplicator_worker.copier.takeover.reading import read_logs
from ureplicator_worker.copier.takeover.source_place import SourcePlace
from ureplicator_worker.copier.takeover.witness import witness_of

COUNT = 12
REQUEST_S = COMMAND_S / 4
KEY = ("t", 0)


class SlowCluster(MemoryCluster):
    """Each request takes a while."""

    def _request(self, name: str) -> None:
        self._paused_s += REQUEST_S
        super()._request(name)


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> SlowCluster:
    """A source with one batch in each response."""
    monkeypatch.setattr(reading, "FETCH_BYTES", 1)
    kafka = MemoryKafka("A", {"t": 1})
    for number in range(COUNT):
        kafka.logs[KEY].put(batches.batch([(number, None, b"%d" % number, ())]))
    return SlowCluster(kafka)


def place_behind(count: int) -> SourcePlace:
    last = witness_of(count - 1, None, b"%d" % (count - 1))
    return SourcePlace(position=0, behind=Behind(count, 0, last=last), end=COUNT)


def test_what_takes_long_is_read_to_its_end(source: SlowCluster) -> None:
    place = place_behind(COUNT)
    errors = read_logs(source, source.view(["t"]), {KEY: place}, isolation=READ_COMMITTED)
    assert errors == {}
    assert place.place == Place(COUNT, 0, (Span(0, COUNT),))


class Waiting:
    """Looks for what never comes."""

    offset = COUNT
    done = False

    def add(self, records: bytes, row: Any) -> None:
        assert not records

    def out_of_range(self, log_start: int) -> None:
        raise AssertionError(log_start)


def test_what_does_not_come_is_given_up(source: SlowCluster) -> None:
    errors = read_logs(source, source.view(["t"]), {KEY: Waiting()}, isolation=READ_COMMITTED)
    assert str(errors[KEY]) == "t/0 not read in 5 s: its end is not there yet"


class Counted(Waiting):
    """Reading of which a later response, without records, brings what it looks for."""

    def __init__(self, responses: int) -> None:
        self._left = responses

    def add(self, records: bytes, row: Any) -> None:
        self._left -= 1
        self.done = not self._left
        self.offset += self.done


def test_a_broker_that_has_nothing_is_asked_after_growing_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pauses grow also if the ends of some logs come one after the other, as control records do."""
    pauses_s: list[float] = []
    cluster = MemoryCluster(MemoryKafka("A", {"t": COUNT}))
    monkeypatch.setattr(cluster, "pause", pauses_s.append)
    readings = {("t", number): Counted(number + 1) for number in range(6)}
    monkeypatch.setattr(Counted, "offset", 0)
    assert read_logs(cluster, cluster.view(["t"]), readings) == {}
    assert pauses_s == [0.01, 0.02, 0.04, 0.08, 0.1]


class OneSilent(MemoryCluster):
    """A broker of it takes requests and never responds: each costs half of a command's time."""

    asked = 0

    def call(self, broker: Broker, request: Any, response: Any) -> Any:
        if broker.node_id != 1:
            return super().call(broker, request, response)
        self.asked += 1
        self._paused_s += COMMAND_S / 2
        raise ClusterUnavailable("silent")


def test_logs_of_a_silent_broker_hold_up_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control records of the others come with the fifth response."""
    cluster = OneSilent(MemoryKafka("A", {"t": 4}, nodes=2))
    view = cluster.view(["t"])
    monkeypatch.setattr(Counted, "offset", 0)
    readings = {key: Counted(5) for key in view.leaders}
    errors = read_logs(cluster, view, readings)
    silent = [key for key, leader in view.leaders.items() if leader.node_id == 1]
    assert len(silent) == 2
    assert {key: str(error) for key, error in errors.items()} == {
        (topic, number): f"{topic}/{number} not read: silent" for topic, number in silent
    }
    assert all(reading.done for key, reading in readings.items() if key not in errors)
    assert cluster.asked == 1
