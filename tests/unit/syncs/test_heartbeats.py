"""Heartbeats of a route between two clusters in memory: sent, read, reported, and never copied back."""

from __future__ import annotations

import re

import pytest
from prometheus_client import CollectorRegistry

from ureplicator_common.config.route import HeartbeatSettings, RouteConfig
from ureplicator_common.heartbeats import heartbeat_topic
from ureplicator_common.kafka import ClusterUnavailable, TopicInfo
from ureplicator_common.model import Route, RouteSettings, SessionId, TopicKey
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_controller.core.state.decoding import Stored
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.topics.reconcile import reconcile_topics
from ureplicator_controller.core.topics.rules import AutoWhitelist, TopicRules
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_controller.engines.syncs.heartbeats import (
    LATE_S,
    HeartbeatClusters,
    HeartbeatThread,
)
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.control.memory_reports import MemoryReports
from ureplicator_testkit.kafka.clients import MemoryTopicAdmin
from ureplicator_testkit.kafka.memory_heartbeats import MemoryHeartbeats

ROUTE = Route("a", "b")
TOPIC = heartbeat_topic(fleet="f", route=ROUTE)
KEY = TopicKey(ROUTE, TOPIC)
CONFIG = RouteConfig(source="a", target="b", heartbeats=HeartbeatSettings(enabled=True))


class World:
    """Two clusters, a controller that leads, and a copy that a test carries out."""

    def __init__(self) -> None:
        self.admin = MemoryTopicAdmin()
        self.source, self.target = MemoryHeartbeats(), MemoryHeartbeats()
        self.clock = ManualClock()
        self.epoch: int | None = 3
        self.metrics = ControlMetrics(CollectorRegistry())
        self.reports = MemoryReports()
        self.thread = HeartbeatThread(
            fleet="f",
            config=CONFIG,
            clusters=HeartbeatClusters(
                admin=lambda: self.admin, source=lambda: self.source, target=lambda: self.target
            ),
            seen=lambda: None if self.epoch is None else (self.epoch, self.snapshot()),
            clock=self.clock,
            metrics=self.metrics,
            reports=self.reports,
        )

    def snapshot(self) -> Snapshot:
        intent = TopicIntent(1, 0, target_topic=f"x.{TOPIC}")
        return Snapshot(fleet="f", epoch=3, topics={KEY: Stored(intent, 0, 0, SessionId(0))})

    def copy(self) -> None:
        self.target.times_ms[f"x.{TOPIC}"] = list(self.source.times_ms[TOPIC])

    def beat(self, *, after_s: float = 1.0) -> tuple[dict[str, int], str]:
        self.clock.advance(after_s)
        self.thread.run_once()
        return self.reports.passes[-1]

    def age_s(self) -> float | None:
        name = "ureplicator_controller_heartbeat_age_seconds"
        return self.metrics.registry.get_sample_value(name, {"route": str(ROUTE)})


@pytest.fixture
def world() -> World:
    return World()


def test_the_age_of_the_newest_at_the_target(world: World) -> None:
    assert world.beat() == ({"not at the target yet": 1}, "")
    assert world.age_s() is None
    world.copy()
    assert world.beat() == ({"on time": 1}, "")
    assert (world.age_s(), world.reports.ages_s[-1]) == (1.0, 1.0)
    assert world.admin.find([TOPIC])[TOPIC].partitions == 1
    assert len(world.source.times_ms[TOPIC]) == 2


def test_a_copy_that_stands_still_is_late(world: World) -> None:
    world.beat()
    world.copy()
    assert world.beat(after_s=LATE_S)[0] == {"on time": 1}
    assert world.beat()[0] == {"late": 1}
    assert world.age_s() == LATE_S + 1


@pytest.mark.parametrize("end", ["source", "target"])
def test_the_age_grows_while_an_end_does_not_respond(world: World, end: str) -> None:
    world.beat()
    world.copy()
    world.beat()
    getattr(world, end).failure = ClusterUnavailable("no response")
    for number in range(2, 5):
        assert world.beat() == ({"on time": 1}, "no response")
        assert world.age_s() == number


def test_only_the_leader_sends_and_exports(world: World) -> None:
    world.beat()
    world.copy()
    world.beat()
    world.epoch = None
    assert world.thread.run_once() == CONFIG.heartbeats.interval_s
    assert (len(world.source.times_ms[TOPIC]), world.age_s()) == (2, None)
    world.epoch = 4
    world.beat()
    assert len(world.source.times_ms[TOPIC]) == 3


def changes(rules: TopicRules, topic: str) -> list[TopicKey]:
    infos = {"a": {topic: TopicInfo(1, "id")}, "b": {}}
    return [
        change.key
        for change in reconcile_topics([rules], Snapshot("f", 3), infos, {}, 0.0, wall_ms=0).changes
    ]


def test_the_own_topic_is_whitelisted_without_patterns() -> None:
    assert changes(TopicRules.of(CONFIG, fleet="f"), TOPIC) == [KEY]
    without = CONFIG.model_copy(update={"heartbeats": HeartbeatSettings()})
    assert changes(TopicRules.of(without, fleet="f"), TOPIC) == []


@pytest.mark.parametrize("prefix", ["", "x."])
def test_no_pattern_matches_the_heartbeats_of_a_route(prefix: str) -> None:
    everything = AutoWhitelist((re.compile(".*"),))
    other = heartbeat_topic(fleet="f", route=Route("b", "a"))
    assert not everything.matches(prefix + other)
    rules = TopicRules(ROUTE, RouteSettings(), everything, heartbeat_topic=TOPIC)
    assert changes(rules, prefix + other) == []


def test_a_topic_that_was_deleted_is_created_again(world: World) -> None:
    world.beat()
    world.admin.remove(TOPIC)
    world.source.failure = ClusterUnavailable("no leader, or does not exist")
    world.beat()
    world.source.failure = None
    world.beat()
    assert world.admin.find([TOPIC])[TOPIC].partitions == 1
