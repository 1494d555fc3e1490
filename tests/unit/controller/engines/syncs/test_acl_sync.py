"""Access rights that follow between two clusters in memory: what is written down, added and removed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from ureplicator_common.config.route import RouteConfig
from ureplicator_common.coordination import Set
from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.acls import ALLOW, LITERAL, AclRefused, NoAuthorizer, TopicAcl
from ureplicator_common.model import Route, RouteSettings, SessionId, TopicKey
from ureplicator_common.znode_contents import RouteAcls, TopicIntent
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.routes import decode_acls, encode_acls
from ureplicator_controller.core.state.decoding import Stored
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_controller.engines.syncs.opening import SyncNeeds, open_syncs
from ureplicator_controller.engines.syncs.thread import MAX_AGE_S
from ureplicator_controller.engines.syncs.topic_sync import TopicSyncState
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.control.memory_coordination import MemoryCoordination, MemoryStore
from ureplicator_testkit.kafka.claims.memory import MemoryClaimTopic
from ureplicator_testkit.kafka.clients import MemoryTopicAdmin
from ureplicator_testkit.kafka.memory_acls import MemoryAclAdmin

ROUTE = Route("a", "b")
SESSION = SessionId(0)
READ = TopicAcl("orders", LITERAL, "User:bob", "*", "READ", ALLOW)
DESCRIBE = replace(READ, operation="DESCRIBE")
FOREIGN = replace(READ, principal="User:eve")


class World:
    """Two clusters, a store, and a controller that leads."""

    def __init__(self) -> None:
        self.source, self.target = MemoryAclAdmin(), MemoryAclAdmin()
        self.clock = ManualClock()
        self.paths = Paths("f")
        self.store = MemoryCoordination(MemoryStore())
        for path in self.paths.skeleton:
            self.store.ensure(path)
        self.epoch: int | None = 0
        self.intent = TopicIntent(1, 1, target_topic="orders")
        self.metrics = ControlMetrics(CollectorRegistry())
        clusters = {"a": self.source, "b": self.target}
        needs = SyncNeeds(
            topics=lambda name: MemoryTopicAdmin(),
            acls=clusters.__getitem__,
            claims=lambda name: MemoryClaimTopic(name).log(),
            fleet="f",
            routes=[ROUTE],
            coordination=self.store,
            paths=self.paths,
            seen=lambda: None if self.epoch is None else (self.epoch, self.snapshot()),
            clock=self.clock,
            metrics=self.metrics,
        )
        config = {**ROUTE._asdict(), "sync_topic_acls": {"enabled": True}}
        _, self.sync = open_syncs(RouteConfig.model_validate(config), needs)

    def snapshot(self) -> Snapshot:
        return Snapshot(
            fleet="f",
            epoch=0,
            routes={ROUTE: Stored(RouteSettings(), 0, 0, SESSION)},
            topics={TopicKey(ROUTE, "orders"): Stored(self.intent, 0, 0, SESSION)},
        )

    def own(self) -> set[TopicAcl]:
        node = self.store.get(self.paths.route_acls(ROUTE))
        return set() if node is None else set(decode_acls(node.data).added)

    def state(self, state: TopicSyncState) -> float | None:
        labels = {"route": str(ROUTE), "kind": "acls", "state": state.value}
        name = "ureplicator_controller_followed_topics"
        return self.metrics.registry.get_sample_value(name, labels)

    def elect_another(self) -> None:
        node = self.store.get(self.paths.epoch)
        assert node is not None
        self.store.transact([Set(self.paths.epoch, b"", node.stat.version)])


@pytest.fixture
def world() -> World:
    return World()


def test_rights_follow_and_are_removed_again(world: World) -> None:
    world.source.acls = {READ, replace(READ, operation="WRITE")}
    world.target.acls = {FOREIGN}
    world.sync.run_once()
    assert world.target.acls == {READ, FOREIGN}
    assert (world.own(), world.state(TopicSyncState.CHANGED)) == ({READ}, 1)
    world.sync.run_once()
    assert world.state(TopicSyncState.EQUAL) == 1
    world.source.acls = {DESCRIBE}
    world.sync.run_once()
    assert world.target.changes == [("+", READ), ("+", DESCRIBE), ("-", READ)]
    assert (world.target.acls, world.own()) == ({DESCRIBE, FOREIGN}, {DESCRIBE})


def test_no_right_is_the_first_of_a_topic_that_is_open_to_everyone(world: World) -> None:
    """It would close the topic to the copiers, whose principal is not known."""
    world.source.acls = {READ}
    world.target.opens = True
    world.sync.run_once()
    world.sync.run_once()
    assert (world.target.acls, world.own()) == (set(), set())
    assert world.state(TopicSyncState.REFUSED) == 1
    copier = replace(READ, name="*", principal="User:copier", operation="WRITE")
    world.target.acls = {copier}
    world.sync.run_once()
    assert world.target.acls == {copier, READ}
    assert world.state(TopicSyncState.CHANGED) == 1


def test_rights_on_a_topic_that_the_source_lacks_or_has_anew_are_kept_as_they_are(
    world: World,
) -> None:
    """They are kept, too, where the topic's name leads to another cluster."""
    world.intent = TopicIntent(1, 1, source_topic_id="id", target_topic="orders")
    world.source.acls = {READ}
    world.sync.run_once()
    for ids in ({"orders": "another"}, {}):
        world.source.ids = ids
        world.source.acls = {FOREIGN}
        world.sync.run_once()
        assert world.target.acls == world.own() == {READ}
    world.source.ids = {"orders": "id"}
    world.sync.run_once()
    assert world.target.acls == world.own() == {FOREIGN}


def test_a_right_that_the_target_had_is_never_removed(world: World) -> None:
    world.source.acls = world.target.acls = {READ}
    world.sync.run_once()
    world.source.acls = set()
    world.sync.run_once()
    assert (world.target.acls, world.target.changes) == ({READ}, [])


def test_a_leader_that_died_before_it_wrote_the_outcome(world: World) -> None:
    """Its successor removes what it added."""
    world.sync.run_once()
    data = encode_acls(RouteAcls(frozenset({READ, DESCRIBE})))
    world.store.ensure(world.paths.route_acls(ROUTE))
    world.store.transact([Set(world.paths.route_acls(ROUTE), data, 0)])
    world.target.acls = {READ}
    world.sync.run_once()
    assert (world.target.acls, world.own()) == (set(), set())


def test_rights_on_a_stopped_topic_are_kept(world: World) -> None:
    world.source.acls = {READ}
    world.sync.run_once()
    world.intent = replace(world.intent, stopped="deleted")
    world.source.acls = set()
    world.sync.run_once()
    assert (world.target.acls, world.own()) == ({READ}, {READ})


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(lambda world: setattr(world, "epoch", 1), id="leadership is lost"),
        pytest.param(lambda world: world.clock.advance(MAX_AGE_S + 1), id="suspended"),
        pytest.param(World.elect_another, id="another leader that is not known yet"),
    ],
)
def test_nothing_is_changed_by_what_was_read_before(
    world: World, fault: Callable[[World], None]
) -> None:
    world.source.acls = {READ}
    world.target.reading = lambda: fault(world)
    world.sync.run_once()
    assert (world.target.changes, world.own()) == ([], set())
    assert world.state(TopicSyncState.PENDING) == 1


def test_clusters_without_an_authorizer(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """It is a state, not a failure: told once."""
    world.source.acls = {READ}
    world.sync.run_once()
    world.source.failure = NoAuthorizer("cluster at s:1: Security features are disabled")
    for _ in range(2):
        assert world.sync.run_once() == 60
    assert world.state(TopicSyncState.NO_AUTHORIZER) == 1
    assert world.target.acls == {READ}
    assert caplog.text.count("Security features are disabled") == 1


def test_rights_that_are_refused_are_not_the_routes_own(world: World) -> None:
    world.source.acls = {READ, DESCRIBE}
    world.target.refused = {READ: AclRefused("no such principal")}
    world.sync.run_once()
    assert (world.target.acls, world.own()) == ({DESCRIBE}, {DESCRIBE})
    assert world.state(TopicSyncState.REFUSED) == 1


def test_rights_whose_outcome_is_not_known_are_taken_for_the_routes_own(world: World) -> None:
    world.source.acls = {READ}
    world.target.refused = {READ: ClusterUnavailable("no response")}
    world.sync.run_once()
    assert (world.own(), world.state(TopicSyncState.UNKNOWN)) == ({READ}, 1)
    world.target.refused = {}
    world.sync.run_once()
    world.target.refused = {READ: ClusterUnavailable("no response")}
    world.source.acls = set()
    world.sync.run_once()
    assert world.own() == {READ}


def test_a_cluster_that_does_not_respond_changes_nothing(world: World) -> None:
    world.source.acls = {READ}
    world.sync.run_once()
    world.source.failure = ClusterUnavailable("no broker responds")
    world.sync.run_once()
    assert world.target.acls == {READ}
