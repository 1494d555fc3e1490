"""Settings of topics that follow between two clusters in memory: what is changed, and what prevents it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from prometheus_client import CollectorRegistry

from ureplicator_common.config.route import ConfigSyncSettings, RouteConfig
from ureplicator_common.coordination import Set
from ureplicator_common.model import Route, RouteSettings, SessionId, TopicKey
from ureplicator_common.znode_contents import SyncKind, TopicIntent
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.routes import decode_sync
from ureplicator_controller.core.state.decoding import Stored
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_controller.engines.syncs.opening import (
    CHECK_INTERVAL_S,
    SyncNeeds,
    open_syncs,
)
from ureplicator_controller.engines.syncs.thread import (
    MAX_AGE_S,
    NOT_LEADING_S,
    RETRY_DELAYS_S,
    SyncThread,
)
from ureplicator_controller.engines.syncs.topic_sync import TopicSyncState
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.control.memory_coordination import MemoryCoordination, MemoryStore
from ureplicator_testkit.kafka.claims.memory import MemoryClaimTopic
from ureplicator_testkit.kafka.clients import MemoryTopicAdmin
from ureplicator_testkit.kafka.memory_acls import MemoryAclAdmin

ROUTE = Route("a", "b")
INTERVAL_S = 60.0
TOPIC = "orders"
RETENTION = {"retention.ms": "9"}


class World:
    """Two clusters with a topic, and a controller that leads."""

    def __init__(self) -> None:
        self.clusters = {"a": MemoryTopicAdmin(), "b": MemoryTopicAdmin()}
        self.source, self.target = self.clusters.values()
        for admin in self.clusters.values():
            admin.defaults = {"retention.ms": "7", "segment.bytes": "5"}
            admin.put(TOPIC, 1)
        self.opened: list[str] = []
        self.clock = ManualClock()
        self.epoch: int | None = 3
        self.paths = Paths("f")
        self.coordination = MemoryCoordination(MemoryStore())
        for path in self.paths.skeleton:
            self.coordination.ensure(path)
        for version in range(self.epoch):
            self.coordination.transact([Set(self.paths.epoch, b"", version)])
        self.metrics = ControlMetrics(CollectorRegistry())
        (self.sync,) = self.threads(ConfigSyncSettings(enabled=True))

    def threads(self, settings: ConfigSyncSettings) -> list[SyncThread]:
        return list(
            open_syncs(
                RouteConfig(source="a", target="b", sync_topic_configs=settings),
                SyncNeeds(
                    topics=self.admin,
                    acls=lambda name: MemoryAclAdmin(),
                    claims=lambda name: MemoryClaimTopic(name).log(),
                    fleet="f",
                    routes=[ROUTE],
                    coordination=self.coordination,
                    paths=self.paths,
                    seen=lambda: None if self.epoch is None else (self.epoch, self.snapshot()),
                    clock=self.clock,
                    metrics=self.metrics,
                ),
            )
        )

    def admin(self, name: str) -> MemoryTopicAdmin:
        self.opened.append(name)
        return self.clusters[name]

    def snapshot(self) -> Snapshot:
        def stored(intent: TopicIntent) -> Stored[TopicIntent]:
            return Stored(intent, 0, 0, SessionId(0))

        return Snapshot(
            fleet="f",
            epoch=3,
            routes={ROUTE: Stored(RouteSettings(), 0, 0, SessionId(0))},
            topics={
                TopicKey(ROUTE, name): stored(TopicIntent(1, 1, target_topic=name))
                for name in self.source.model.topic_ids
            },
        )

    def configure(self, configs: dict[str, str], *, topic: str = TOPIC) -> None:
        """Settings of the source topic."""
        self.source.alter_settings({topic: configs})

    def state(self, state: TopicSyncState) -> float | None:
        labels = {"route": str(ROUTE), "kind": "configs", "state": state.value}
        name = "ureplicator_controller_followed_topics"
        return self.metrics.registry.get_sample_value(name, labels)

    def harm(self) -> Mapping[str, str]:
        """Harm that the last round reported, by topic."""
        node = self.coordination.get(self.paths.sync(SyncKind.CONFIGS, ROUTE))
        return decode_sync(node.data).harm if node is not None else {}

    def count(self, what: str) -> float | None:
        name = f"ureplicator_controller_follow_{what}_total"
        labels = {"route": str(ROUTE), "kind": "configs"}
        return self.metrics.registry.get_sample_value(name, labels)


@pytest.fixture
def world() -> World:
    return World()


def test_settings_follow(world: World) -> None:
    world.configure(RETENTION)
    assert world.sync.run_once() == INTERVAL_S
    assert world.target.configs(TOPIC) == RETENTION
    assert (world.state(TopicSyncState.CHANGED), world.count("changes")) == (1, 1)
    world.source.alter_settings({TOPIC: {"retention.ms": None}})
    world.sync.run_once()
    assert world.target.configs(TOPIC) == {"retention.ms": "7"}
    world.sync.run_once()
    assert (world.state(TopicSyncState.EQUAL), world.count("changes")) == (1, 2)


def test_a_route_that_changes_no_settings_says_which_harm_records(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The target topic existed, and its brokers stamp records."""
    (check,) = world.threads(ConfigSyncSettings())
    world.configure(RETENTION)
    stamping = {"message.timestamp.type": "LogAppendTime", "retention.ms": "9"}
    world.target.alter_settings({TOPIC: stamping})
    for _ in range(2):
        assert check.run_once() == CHECK_INTERVAL_S
    assert world.target.configs(TOPIC) == stamping
    assert (world.state(TopicSyncState.HARMFUL), world.count("changes")) == (1, 0)
    assert caplog.text.count("message.timestamp.type is LogAppendTime") == 1
    world.target.alter_settings({TOPIC: {"message.timestamp.type": "CreateTime"}})
    check.run_once()
    assert world.state(TopicSyncState.EQUAL) == 1


def test_the_report_names_settings_that_do_harm_until_they_are_mended(world: World) -> None:
    """They are named also where the target refuses to mend them."""
    (check,) = world.threads(ConfigSyncSettings())
    world.target.alter_settings({TOPIC: {"retention.ms": "6"}})
    harm = "target topic orders: retention.ms is 6, it deletes records that the source keeps (set it to 7)"
    check.run_once()
    assert world.harm() == {TOPIC: harm}
    world.target.known_configs = {"segment.bytes"}
    world.sync.run_once()
    assert world.state(TopicSyncState.REFUSED) == 1
    assert world.harm() == {TOPIC: harm}
    world.target.known_configs = set()
    world.sync.run_once()
    check.run_once()
    assert world.harm() == {}


def test_nothing_is_connected_while_another_controller_leads(world: World) -> None:
    world.configure(RETENTION)
    world.epoch = None
    assert world.sync.run_once() == NOT_LEADING_S
    assert world.opened == []
    assert world.state(TopicSyncState.EQUAL) == 0
    world.sync.close()


def lose_leadership(world: World) -> None:
    world.epoch = 4


def be_suspended(world: World) -> None:
    world.clock.advance(MAX_AGE_S + 1)


@pytest.mark.parametrize("fault", [lose_leadership, be_suspended])
def test_nothing_is_changed_by_what_was_read_before(world: World, fault: object) -> None:
    world.configure(RETENTION)
    read = world.target.settings

    def settings(topics: list[str], *, timeout_s: float) -> object:
        found = read(topics, timeout_s=timeout_s)
        assert callable(fault)
        fault(world)
        return found

    world.target.settings = settings  # type: ignore[method-assign, assignment]
    world.sync.run_once()
    assert world.target.configs(TOPIC) == {}
    assert world.state(TopicSyncState.PENDING) == 1


def test_a_refused_setting_keeps_no_other_from_following(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.target.known_configs = {"retention.ms"}
    world.configure({**RETENTION, "segment.bytes": "6"})
    world.sync.run_once()
    assert world.target.configs(TOPIC) == RETENTION
    assert (world.state(TopicSyncState.REFUSED), world.count("changes")) == (1, 1)
    assert "topic a.b/orders: segment.bytes not changed: Unknown topic config" in caplog.text
    world.sync.run_once()
    caplog.clear()
    world.sync.run_once()
    assert caplog.text == ""
    assert world.state(TopicSyncState.REFUSED) == 1


def test_a_topic_that_cannot_be_read_holds_up_no_other(world: World) -> None:
    for admin in world.clusters.values():
        admin.put("quiet", 1)
    world.source.troubled = {TOPIC}
    world.configure(RETENTION)
    world.configure(RETENTION, topic="quiet")
    world.sync.run_once()
    assert (world.target.configs(TOPIC), world.target.configs("quiet")) == ({}, RETENTION)
    assert (world.state(TopicSyncState.UNKNOWN), world.state(TopicSyncState.CHANGED)) == (1, 1)


def test_a_cluster_that_does_not_respond_is_asked_less_often(world: World) -> None:
    (sync,) = world.threads(ConfigSyncSettings(enabled=True, interval_s=0.5))
    with world.target.failing():
        waits = [sync.run_once() for _ in RETRY_DELAYS_S]
    assert waits == list(RETRY_DELAYS_S)
    assert world.count("failures") == len(RETRY_DELAYS_S)
    assert sync.run_once() == 0.5
