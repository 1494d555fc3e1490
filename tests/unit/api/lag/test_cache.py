"""Looks over twins of the clusters: how many, for whom, and what a silent cluster may hold up."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

import pytest

from ureplicator_common.clock import ManualClock
from ureplicator_common.coordination import Unavailable
from ureplicator_common.kafka import BatchTime, Lifetime, Position
from ureplicator_common.model import Route, TopicIntent, TopicKey, position_group
from ureplicator_controller.api.lag import cluster_reader as readers
from ureplicator_controller.api.lag import collector as looks
from ureplicator_controller.api.lag.cache import ANSWER_S, FRESH_S, LagCache
from ureplicator_controller.api.lag.cluster_reader import ClusterReader
from ureplicator_controller.api.lag.collector import LagCollector, LagReport
from ureplicator_testkit.kafka.clients import MemoryLogReader, MemoryPositionReader

AB, AC = Route("a", "b"), Route("a", "c")
KEY = TopicKey(AB, "orders")


class SlowPositions(MemoryPositionReader):
    """Answers only while it may; remembers from which threads it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.may = threading.Event()
        self.may.set()
        self.threads: set[int] = set()

    def read(
        self, group: str, wanted: Mapping[str, Sequence[int]]
    ) -> Mapping[tuple[str, int], Position]:
        self.threads.add(threading.get_ident())
        self.may.wait(20)
        return super().read(group, wanted)


class LagFixture:
    """Topics that are whitelisted, a source `a`, and targets."""

    def __init__(self) -> None:
        self.topics = {KEY: TopicIntent(2, 2, target_topic="copy")}
        self.source = MemoryLogReader()
        self.targets = {"b": SlowPositions(), "c": SlowPositions()}
        self.clock = ManualClock()
        self.connected: list[str] = []
        self.away = False
        collector = LagCollector(
            fleet="f", positions=self._target, logs=lambda name: self.source, clock=self.clock
        )
        self.progress = LagCache(collector, wanted=self._wanted, clock=self.clock)

    def _wanted(self) -> Mapping[TopicKey, TopicIntent]:
        if self.away:
            raise Unavailable("gone")
        return dict(self.topics)

    def _target(self, name: str) -> MemoryPositionReader:
        self.connected.append(name)
        return self.targets[name]

    def put(self, number: int, position: int, end: int, *, route: Route = AB) -> None:
        group = position_group(fleet="f", route=route)
        target = self.targets[route.target]
        target.put(group, "copy" if route == AB else "orders", number, position)
        self.source.hold("orders", number, 0, end)

    def report(self) -> LagReport:
        report = self.progress.report()
        assert report is not None
        return report


@pytest.fixture
def fleet() -> Iterator[LagFixture]:
    fleet = LagFixture()
    fleet.put(0, 5, 9)
    fleet.put(1, 9, 9)
    yield fleet
    for target in fleet.targets.values():
        target.may.set()
    fleet.progress.close()


def test_a_look_is_shared_until_it_is_old(fleet: LagFixture) -> None:
    first = fleet.report()
    assert [fleet.report() for _ in range(50)] == [first] * 50
    assert fleet.source.requests["extents"] == 1
    fleet.clock.advance(FRESH_S)
    assert fleet.report() is not first
    assert fleet.source.requests["extents"] == 2
    assert fleet.source.requests["lifetimes"] == 1
    assert len(fleet.targets["b"].threads) == 1


def test_those_who_come_at_once_share_a_look(fleet: LagFixture) -> None:
    fleet.targets["b"].may.clear()
    found: list[LagReport | None] = []
    askers = [
        threading.Thread(target=lambda: found.append(fleet.progress.report())) for _ in range(20)
    ]
    for asker in askers:
        asker.start()
    fleet.targets["b"].may.set()
    for asker in askers:
        asker.join()
    assert len(found) == 20
    assert fleet.source.requests["extents"] == 1


def test_a_silent_cluster_holds_nobody_up(fleet: LagFixture) -> None:
    first = fleet.report()
    fleet.clock.advance(FRESH_S)
    fleet.targets["b"].may.clear()
    began_s = time.monotonic()
    assert fleet.progress.report() is first
    assert time.monotonic() - began_s < ANSWER_S + 10
    fleet.targets["b"].may.set()


def test_before_the_first_look_there_is_nothing_to_show(fleet: LagFixture) -> None:
    fleet.targets["b"].may.clear()
    assert fleet.progress.report() is None


def test_a_silent_cluster_leaves_others_their_figures(
    fleet: LagFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "CLUSTER_S", 0.2)
    fleet.topics[TopicKey(AC, "orders")] = TopicIntent(1, 1)
    fleet.put(0, 7, 9, route=AC)
    fleet.targets["b"].may.clear()
    for reason in ("b: no answer within 0.2 s", "b: still no answer"):
        report = fleet.report()
        assert report.topics[KEY][0].reason == reason
        assert report.topics[KEY][0].lag_records is None
        assert report.topics[TopicKey(AC, "orders")][0].lag_records == 2
        fleet.clock.advance(FRESH_S)
    assert fleet.connected == ["b", "c"] or fleet.connected == ["c", "b"]


def test_routes_from_one_source_share_its_requests(fleet: LagFixture) -> None:
    fleet.topics[TopicKey(AC, "orders")] = TopicIntent(2, 2)
    for number in (0, 1):
        fleet.put(number, 3, 9, route=AC)
    fleet.source.logs["orders", 0].times = [BatchTime(0, 8, fleet.clock.wall_ms() - 1_000)]
    report = fleet.report()
    assert fleet.source.requests["extents"] == 1
    assert report.topics[KEY][0].lag_records == 4
    assert report.topics[TopicKey(AC, "orders")][0].lag_records == 6
    assert report.topics[TopicKey(AC, "orders")][0].lag_s == 1


def test_a_time_is_read_once_for_each_place(fleet: LagFixture) -> None:
    fleet.source.logs["orders", 0].times = [BatchTime(5, 6, fleet.clock.wall_ms() - 1_000)]
    for waited_s in (1, 1 + FRESH_S, 1 + 2 * FRESH_S):
        assert fleet.report().topics[KEY][0].lag_s == waited_s
        fleet.clock.advance(FRESH_S)
    assert fleet.source.requests["batch_times"] == 1
    fleet.put(0, 7, 9)
    fleet.source.logs["orders", 0].times.append(BatchTime(7, 8, fleet.clock.wall_ms() - 2_000))
    assert fleet.report().topics[KEY][0].lag_s == 2
    assert fleet.source.requests["batch_times"] == 2


def test_times_of_another_log_are_forgotten(fleet: LagFixture) -> None:
    """Deleted and made again: what lies at the same offset is another record."""
    fleet.source.logs["orders", 0].times = [BatchTime(5, 6, fleet.clock.wall_ms() - 1_000)]
    fleet.report()
    fleet.put(0, 5, 7)
    fleet.clock.advance(FRESH_S)
    fleet.source.logs["orders", 0].times = [BatchTime(5, 6, fleet.clock.wall_ms())]
    assert fleet.report().topics[KEY][0].lag_s is None
    fleet.clock.advance(FRESH_S)
    assert fleet.report().topics[KEY][0].lag_s == FRESH_S


def test_the_number_of_readings_is_bounded(
    fleet: LagFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "READINGS", 1)
    fleet.put(1, 8, 9)
    for number in (0, 1):
        fleet.source.logs["orders", number].times = [BatchTime(0, 9, fleet.clock.wall_ms())]
    assert sum(each.lag_s is None for each in fleet.report().topics[KEY].values()) == 1
    fleet.clock.advance(FRESH_S)
    assert sum(each.lag_s is None for each in fleet.report().topics[KEY].values()) == 0


def test_a_warning_before_retention_passes_a_position(
    fleet: LagFixture, caplog: pytest.LogCaptureFixture
) -> None:
    fleet.source.logs["orders", 0].times = [BatchTime(5, 8, fleet.clock.wall_ms() - 60_000)]
    fleet.source.lives["orders"] = Lifetime(retention_ms=3_000_000)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            fleet.report()
            fleet.clock.advance(FRESH_S)
        assert [record.getMessage() for record in caplog.records] == [
            "a.b/orders: retention at the source passes the position of partition 0 in 49 min"
            " (1 partitions within an hour)"
        ]


def test_what_is_no_longer_whitelisted_is_forgotten(fleet: LagFixture) -> None:
    fleet.report()
    del fleet.topics[KEY]
    fleet.clock.advance(FRESH_S)
    assert fleet.report().topics == {}
    fleet.topics[KEY] = TopicIntent(2, 2, target_topic="copy")
    fleet.clock.advance(FRESH_S)
    assert fleet.report().topics[KEY][0].records_per_s is None


def test_without_zookeeper_nobody_knows_what_is_whitelisted(fleet: LagFixture) -> None:
    fleet.away = True
    with pytest.raises(Unavailable):
        fleet.progress.report()
    fleet.away = False
    assert fleet.report().topics[KEY][0].lag_records == 4


def test_a_connection_is_not_used_after_a_long_pause() -> None:
    clock = ManualClock()
    made: list[MemoryLogReader] = []

    def connect() -> MemoryLogReader:
        made.append(MemoryLogReader())
        return made[-1]

    desk = ClusterReader(connect, name="logs", clock=clock)
    for wait_s in (0, readers.IDLE_S - 1, readers.IDLE_S + 1):
        clock.advance(wait_s)
        desk.ask(lambda reader: reader.extents({})).result(5)
    desk.close()
    assert len(made) == 2
