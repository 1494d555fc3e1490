"""Lag collected from in-memory clusters: how often, for which requests, and with one that hangs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence

import pytest

from ureplicator_common.coordination import Unavailable
from ureplicator_common.kafka import BatchTime, Lifetime, PositionOrError
from ureplicator_common.model import Route, TopicKey, position_group
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_controller.api.lag_collection import cluster_reader
from ureplicator_controller.api.lag_collection import collector as collector_module
from ureplicator_controller.api.lag_collection.cache import FRESH_S, LagCache
from ureplicator_controller.api.lag_collection.cluster_reader import ClusterReader
from ureplicator_controller.api.lag_collection.collector import LagCollector, LagReport
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.kafka.clients import MemoryLogReader, MemoryPositionReader

AB, AC = Route("a", "b"), Route("a", "c")
KEY = TopicKey(AB, "orders")


class SlowPositions(MemoryPositionReader):
    """Responds only while `may` is set; records the threads that called it."""

    def __init__(self) -> None:
        super().__init__()
        self.may = threading.Event()
        self.may.set()
        self.threads: set[int] = set()

    def read(
        self, group: str, wanted: Mapping[str, Sequence[int]]
    ) -> Mapping[tuple[str, int], PositionOrError]:
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
        self.unavailable = False
        collector = LagCollector(
            fleet="f", positions=self._target, logs=lambda name: self.source, clock=self.clock
        )
        self.cache = LagCache(collector, whitelisted=self._whitelisted, clock=self.clock)

    def _whitelisted(self) -> Mapping[TopicKey, TopicIntent]:
        if self.unavailable:
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
        report = self.cache.report()
        assert report is not None
        return report


@pytest.fixture
def lag() -> Iterator[LagFixture]:
    lag = LagFixture()
    lag.put(0, 5, 9)
    lag.put(1, 9, 9)
    yield lag
    for target in lag.targets.values():
        target.may.set()
    lag.cache.close()


def test_a_report_is_shared_until_it_is_old(lag: LagFixture) -> None:
    first = lag.report()
    assert [lag.report() for _ in range(50)] == [first] * 50
    assert lag.source.requests["extents"] == 1
    lag.clock.advance(FRESH_S)
    assert lag.report() is not first
    assert lag.source.requests["extents"] == 2
    assert lag.source.requests["lifetimes"] == 1
    assert len(lag.targets["b"].threads) == 1


def test_concurrent_requests_share_a_collection(lag: LagFixture) -> None:
    lag.targets["b"].may.clear()
    found: list[LagReport | None] = []
    threads = [threading.Thread(target=lambda: found.append(lag.cache.report())) for _ in range(20)]
    for thread in threads:
        thread.start()
    lag.targets["b"].may.set()
    for thread in threads:
        thread.join()
    assert len(found) == 20
    assert lag.source.requests["extents"] == 1


def test_a_topic_whose_positions_are_not_shown_is_unknown_alone(lag: LagFixture) -> None:
    other = TopicKey(AB, "hidden")
    lag.topics[other] = TopicIntent(1, 1, target_topic="hidden")
    lag.source.hold("hidden", 0, 0, 9)
    group = position_group(fleet="f", route=AB)
    lag.targets["b"].groups[group].unreadable["hidden"] = "TOPIC_AUTHORIZATION_FAILED"
    topics = lag.report().topics
    assert [topics[KEY][number].lag_records for number in range(2)] == [4, 0]
    shown = topics[other][0]
    assert (shown.lag_records, shown.end) == (None, 9)
    assert shown.reason == "b: hidden/0: TOPIC_AUTHORIZATION_FAILED"


def test_requests_do_not_wait_for_a_cluster_that_does_not_respond(lag: LagFixture) -> None:
    first = lag.report()
    lag.clock.advance(FRESH_S)
    lag.targets["b"].may.clear()
    assert lag.cache.report() is first
    lag.targets["b"].may.set()


def test_no_report_before_the_first_collection(lag: LagFixture) -> None:
    lag.targets["b"].may.clear()
    assert lag.cache.report() is None


def test_a_cluster_that_does_not_respond_leaves_others_their_figures(
    lag: LagFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector_module, "CLUSTER_TIMEOUT_S", 0.2)
    lag.topics[TopicKey(AC, "orders")] = TopicIntent(1, 1, target_topic="orders")
    lag.put(0, 7, 9, route=AC)
    lag.targets["b"].may.clear()
    for reason in ("b: no response within 0.2 s", "b: an earlier request is still outstanding"):
        report = lag.report()
        assert report.topics[KEY][0].reason == reason
        assert report.topics[KEY][0].lag_records is None
        assert report.topics[TopicKey(AC, "orders")][0].lag_records == 2
        lag.clock.advance(FRESH_S)
    assert lag.connected == ["b", "c"] or lag.connected == ["c", "b"]


def test_partitions_share_the_reason_when_neither_cluster_responds(lag: LagFixture) -> None:
    lag.report()
    lag.clock.advance(FRESH_S)
    with lag.source.failing(), lag.targets["b"].failing():
        unknown = lag.report().topics[KEY]
    assert unknown.keys() == {0, 1}
    assert unknown[0] is unknown[1]
    assert unknown[0].reason == "b: no broker responds; a: no broker responds"
    lag.clock.advance(FRESH_S)
    assert lag.report().topics[KEY][0].lag_records == 4


def test_routes_from_one_source_share_its_requests(lag: LagFixture) -> None:
    lag.topics[TopicKey(AC, "orders")] = TopicIntent(2, 2, target_topic="orders")
    for number in (0, 1):
        lag.put(number, 3, 9, route=AC)
    lag.source.logs["orders", 0].times = [BatchTime(0, 8, lag.clock.wall_ms() - 1_000)]
    report = lag.report()
    assert lag.source.requests["extents"] == 1
    assert report.topics[KEY][0].lag_records == 4
    assert report.topics[TopicKey(AC, "orders")][0].lag_records == 6
    assert report.topics[TopicKey(AC, "orders")][0].lag_s == 1


def test_a_timestamp_is_read_once_for_each_position(lag: LagFixture) -> None:
    lag.source.logs["orders", 0].times = [BatchTime(5, 6, lag.clock.wall_ms() - 1_000)]
    for waited_s in (1, 1 + FRESH_S, 1 + 2 * FRESH_S):
        assert lag.report().topics[KEY][0].lag_s == waited_s
        lag.clock.advance(FRESH_S)
    assert lag.source.requests["batch_times"] == 1
    lag.put(0, 7, 9)
    lag.source.logs["orders", 0].times.append(BatchTime(7, 8, lag.clock.wall_ms() - 2_000))
    assert lag.report().topics[KEY][0].lag_s == 2
    assert lag.source.requests["batch_times"] == 2


def test_timestamps_of_a_recreated_topic_are_dropped(lag: LagFixture) -> None:
    """Deleted and recreated: the same offset is another record."""
    lag.source.logs["orders", 0].times = [BatchTime(5, 6, lag.clock.wall_ms() - 1_000)]
    lag.report()
    lag.put(0, 5, 7)
    lag.clock.advance(FRESH_S)
    lag.source.logs["orders", 0].times = [BatchTime(5, 6, lag.clock.wall_ms())]
    assert lag.report().topics[KEY][0].lag_s is None
    lag.clock.advance(FRESH_S)
    assert lag.report().topics[KEY][0].lag_s == FRESH_S


def test_the_number_of_timestamp_reads_is_bounded(
    lag: LagFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector_module, "MAX_TIMESTAMP_READS", 1)
    lag.put(1, 8, 9)
    for number in (0, 1):
        lag.source.logs["orders", number].times = [BatchTime(0, 9, lag.clock.wall_ms())]
    assert sum(partition.lag_s is None for partition in lag.report().topics[KEY].values()) == 1
    lag.clock.advance(FRESH_S)
    assert sum(partition.lag_s is None for partition in lag.report().topics[KEY].values()) == 0


def test_a_warning_before_retention_passes_a_position(
    lag: LagFixture, caplog: pytest.LogCaptureFixture
) -> None:
    lag.source.logs["orders", 0].times = [BatchTime(5, 8, lag.clock.wall_ms() - 60_000)]
    lag.source.lives["orders"] = Lifetime(retention_ms=3_000_000)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            lag.report()
            lag.clock.advance(FRESH_S)
        assert [record.getMessage() for record in caplog.records] == [
            "a.b/orders: retention at the source passes the position of partition 0 in 49 min"
            " (1 partitions within an hour)"
        ]


def test_what_is_no_longer_whitelisted_is_dropped(lag: LagFixture) -> None:
    lag.report()
    del lag.topics[KEY]
    lag.clock.advance(FRESH_S)
    assert lag.report().topics == {}
    lag.topics[KEY] = TopicIntent(2, 2, target_topic="copy")
    lag.clock.advance(FRESH_S)
    assert lag.report().topics[KEY][0].records_per_s is None


def test_without_zookeeper_there_is_no_report(lag: LagFixture) -> None:
    lag.unavailable = True
    with pytest.raises(Unavailable):
        lag.cache.report()
    lag.unavailable = False
    assert lag.report().topics[KEY][0].lag_records == 4


def test_a_connection_is_not_used_after_a_long_pause() -> None:
    clock = ManualClock()
    made: list[MemoryLogReader] = []

    def connect() -> MemoryLogReader:
        made.append(MemoryLogReader())
        return made[-1]

    reader_thread = ClusterReader(connect, name="logs", clock=clock)
    for wait_s in (0, cluster_reader.MAX_IDLE_S - 1, cluster_reader.MAX_IDLE_S + 1):
        clock.advance(wait_s)
        reader_thread.submit(lambda reader: reader.extents({})).result(5)
    reader_thread.close()
    assert len(made) == 2
