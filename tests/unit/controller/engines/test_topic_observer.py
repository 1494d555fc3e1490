"""Polling Kafka: gauges, differences, and unavailable clusters."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from threading import Barrier

import pytest
from prometheus_client import CollectorRegistry

from ureplicator_common.kafka import TopicInfo
from ureplicator_common.model import Route, RouteSettings, SessionId, TopicKey
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_common.znodes.paths import Paths
from ureplicator_controller.core.state.decoding import Stored
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.core.topics.rules import TopicRules
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_controller.engines.topic_observer import FIRST_WITHIN_S, TopicObserver
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.control.memory_coordination import MemoryCoordination, MemoryStore
from ureplicator_testkit.kafka.claims.memory import claims_of
from ureplicator_testkit.kafka.clients import MemoryTopicAdmin

ROUTE = Route("source", "target")


class World:
    """Two clusters, and two topics of two partitions that are whitelisted."""

    def __init__(self) -> None:
        self.clusters = {"source": MemoryTopicAdmin(), "target": MemoryTopicAdmin()}
        self.metrics = ControlMetrics(CollectorRegistry())
        self.seen: Snapshot | None = Snapshot(
            fleet="test",
            epoch=0,
            topics={
                TopicKey(ROUTE, name): Stored(
                    TopicIntent(2, 2, target_topic=name), 0, 0, SessionId(0)
                )
                for name in ("t", "gone")
            },
        )
        coordination = MemoryCoordination(MemoryStore())
        paths = Paths("test")
        coordination.ensure(paths.epoch)
        self.observer = TopicObserver(
            rules=lambda _: [TopicRules(ROUTE, RouteSettings())],
            admins=self.clusters.__getitem__,
            claims=claims_of(),
            seen=lambda: (0, self.seen) if self.seen else None,
            metrics=self.metrics,
            coordination=coordination,
            paths=paths,
            clock=ManualClock(),
        )

    def figure(self, name: str, **labels: str) -> float | None:
        full = f"ureplicator_controller_{name}"
        return self.metrics.registry.get_sample_value(full, labels or {"route": str(ROUTE)})


@pytest.fixture
def world() -> World:
    return World()


def test_missing_and_mismatched_topics_are_counted(world: World) -> None:
    world.clusters["source"].put("t", 5)
    world.observer.poll()
    assert world.figure("missing_topics") == 1
    assert world.figure("mismatched_topics") == 1
    assert world.figure("mismatched_topic_partitions") == 3


def test_a_difference_is_logged_when_it_appears_and_when_it_is_gone(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.clusters["source"].put("t", 2)
    with caplog.at_level(logging.INFO):
        world.observer.poll()
        world.observer.poll()
        assert caplog.text.count("not in the source: gone") == 1
        for cluster in world.clusters.values():
            cluster.put("gone", 2)
            cluster.put("t", 2)
        world.observer.poll()
    assert "match the whitelist" in caplog.text


def test_a_topic_that_the_source_does_not_describe_is_logged_with_the_reason(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for cluster in world.clusters.values():
        cluster.put("gone", 2)
        cluster.put("t", 2)
    world.clusters["source"].model.hidden = {"t"}
    with caplog.at_level(logging.INFO):
        world.observer.poll()
    assert world.figure("missing_topics") == 0
    assert (
        "not described by the source: t (source: TOPIC_AUTHORIZATION_FAILED:"
        " the principal lacks DESCRIBE on topic t at cluster"
    ) in caplog.text


def test_a_new_leader_polls_soon(world: World) -> None:
    """A topic of a new fleet is new from its first poll on."""
    seen, world.seen = world.seen, None
    assert 0 < world.observer.poll() <= FIRST_WITHIN_S
    world.seen = seen
    assert world.observer.poll() != FIRST_WITHIN_S


def test_an_unavailable_source_costs_only_its_gauges(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), world.clusters["source"].failing():
        world.observer.poll()
        world.observer.poll()
    assert caplog.text.count("cluster source") == 1
    assert world.figure("kafka_failures_total", cluster="source") == 2
    world.observer.poll()
    assert world.figure("missing_topics") == 2


def test_an_unavailable_target_costs_only_its_findings(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.clusters["source"].put("t", 2)
    with caplog.at_level(logging.INFO), world.clusters["target"].failing():
        world.observer.poll()
    assert world.figure("missing_topics") == 1
    assert "wrong at the target" not in caplog.text


def test_only_the_leader_exports_topic_gauges(world: World) -> None:
    world.observer.poll()
    world.seen = None
    world.observer.poll()
    assert world.figure("missing_topics") is None


class ParallelAdmin(MemoryTopicAdmin):
    """Responds after every expected admin received its request."""

    def __init__(self, barrier: Barrier) -> None:
        super().__init__({"t": 2, "gone": 2})
        self._barrier = barrier

    def topics(self) -> Mapping[str, TopicInfo]:
        self._barrier.wait(timeout=5)
        return super().topics()


def test_clusters_are_read_in_parallel(world: World) -> None:
    """Some that are away cost one time-out, not one each: what is new elsewhere is seen in time."""
    barrier = Barrier(2)
    world.clusters["source"], world.clusters["target"] = (
        ParallelAdmin(barrier),
        ParallelAdmin(barrier),
    )
    world.observer.poll()
    assert world.figure("missing_topics") == 0
