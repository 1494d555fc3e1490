"""Claims of a route under a leader: written for its topics, withdrawn with them, conflicts reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from ureplicator_common.config.route import RouteConfig
from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.claim_records import Claim
from ureplicator_common.model import Route, SessionId, TopicKey, TopicState
from ureplicator_common.znode_contents import SyncKind, SyncReport, TopicIntent
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.routes import decode_sync
from ureplicator_controller.core.state.decoding import Stored
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_controller.engines.syncs.claims import UNUSED_S
from ureplicator_controller.engines.syncs.opening import SyncNeeds, open_syncs
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.control.memory_coordination import MemoryCoordination, MemoryStore
from ureplicator_testkit.kafka.claims.memory import MemoryClaimTopic
from ureplicator_testkit.kafka.clients import MemoryTopicAdmin
from ureplicator_testkit.kafka.memory_acls import MemoryAclAdmin

ROUTE, OTHER_ROUTE, REMOVED_ROUTE = Route("a", "b"), Route("c", "b"), Route("old", "name-of-b")
PATHS = Paths("f")


class World:
    """A leader with one route and the topics `orders` and `users`."""

    def __init__(self) -> None:
        self.source, self.target = MemoryClaimTopic("id-a"), MemoryClaimTopic("id-b")
        self.topics = {
            name: TopicIntent(1, 1, target_topic=f"x.{name}") for name in ("orders", "users")
        }
        self.withdrawn: dict[str, TopicIntent] = {}
        self.unreadable: frozenset[TopicKey] = frozenset()
        self.clock = ManualClock()
        self.epoch: int | None = 0
        self.store = MemoryCoordination(MemoryStore())
        for path in PATHS.skeleton:
            self.store.ensure(path)
        clusters: Mapping[str, MemoryClaimTopic] = {"a": self.source, "b": self.target}
        _, self.sync = open_syncs(
            RouteConfig(source="a", target="b", claim_targets=True),
            SyncNeeds(
                topics=lambda name: MemoryTopicAdmin(),
                acls=lambda name: MemoryAclAdmin(),
                claims=lambda name: clusters[name].log(),
                fleet="f",
                routes=[ROUTE, OTHER_ROUTE],
                coordination=self.store,
                paths=PATHS,
                seen=lambda: None if self.epoch is None else (self.epoch, self.snapshot()),
                clock=self.clock,
                metrics=ControlMetrics(CollectorRegistry()),
            ),
        )

    def snapshot(self) -> Snapshot:
        return Snapshot(
            fleet="f",
            epoch=0,
            topics={
                TopicKey(route, name): Stored(intent, 0, 0, SessionId(0))
                for route, topics in ((ROUTE, self.topics), (REMOVED_ROUTE, self.withdrawn))
                for name, intent in topics.items()
            },
            unreadable_topics=self.unreadable,
        )

    def round(self, *, after_s: float = 0.0) -> Mapping[str, int]:
        self.clock.advance(after_s)
        self.sync.run_once()
        return self.report().states

    def report(self) -> SyncReport:
        node = self.store.get(PATHS.sync(SyncKind.CLAIMS, ROUTE))
        assert node is not None
        return decode_sync(node.data)

    def claimed(self) -> set[str]:
        return {claim.target_topic for claim in self.target.log().read().all_of("f")}


@pytest.fixture
def world() -> World:
    return World()


def test_topics_that_are_whitelisted_already_are_claimed(world: World) -> None:
    assert world.round() == {"changed": 2}
    assert world.claimed() == {"x.orders", "x.users"}
    assert world.round() == {"equal": 2}
    assert len(world.target.records) == 2


def test_claim_of_a_deleted_topic_is_withdrawn(world: World) -> None:
    world.round()
    world.topics["orders"] = TopicIntent(1, 1, target_topic="x.orders", state=TopicState.DELETING)
    world.round(after_s=UNUSED_S)
    assert world.claimed() == {"x.users"}


@pytest.mark.parametrize("route", [ROUTE, REMOVED_ROUTE])
def test_claim_of_an_intent_that_cannot_be_read_stays(world: World, route: Route) -> None:
    world.target.log().write(Claim("f", "x.ships", str(route), "id-a", "ships"))
    world.unreadable = frozenset({TopicKey(route, "ships")})
    world.round(after_s=2 * UNUSED_S)
    assert world.claimed() == {"x.orders", "x.users", "x.ships"}
    world.unreadable = frozenset()
    world.round()
    assert world.claimed() == {"x.orders", "x.users"}


def test_claim_whose_intent_is_on_the_way_is_left(world: World) -> None:
    claim = Claim("f", "x.new", str(ROUTE), "id-a", "new", world.clock.wall_ms())
    world.target.log().write(claim)
    world.round(after_s=UNUSED_S - 1)
    assert "x.new" in world.claimed()
    world.round(after_s=1)
    assert "x.new" not in world.claimed()


def test_claims_of_other_routes_and_fleets_are_left(world: World) -> None:
    log = world.target.log()
    log.write(Claim("f", "y", "c.b", "id-c", "y"))
    log.write(Claim("g", "z", str(ROUTE), "id-a", "z"))
    world.round(after_s=2 * UNUSED_S)
    claims = world.target.log().read()
    assert claims.of("f", "y") is not None
    assert claims.of("g", "z") is not None


def test_claims_of_a_removed_route_go_with_its_topics(world: World) -> None:
    stopped = TopicIntent(1, 1, target_topic="x.ships")
    world.withdrawn["ships"] = stopped
    for topic in ("x.ships", "x.gone"):
        world.target.log().write(Claim("f", topic, str(REMOVED_ROUTE), "id-old", "ships"))
    world.round(after_s=2 * UNUSED_S)
    assert world.claimed() == {"x.orders", "x.users", "x.ships"}
    world.withdrawn["ships"] = replace(stopped, state=TopicState.DELETING)
    world.round()
    assert world.claimed() == {"x.orders", "x.users"}


@pytest.mark.parametrize("is_first", [True, False])
def test_topic_that_another_fleet_writes_is_reported_and_copied_on(
    world: World, is_first: bool
) -> None:
    theirs = Claim("g", "x.orders", "c.b", "id-c", "orders")
    if not is_first:
        world.round()
    world.target.log().write(theirs)
    assert world.round()["refused"] == 1
    expected = "orders: target topic x.orders is written by fleet g (c.b/orders), too"
    assert world.report().error == expected
    world.target.log().withdraw(theirs)
    assert world.round() == {"equal": 2}


def test_controller_that_does_not_lead_writes_nothing(world: World) -> None:
    world.epoch = None
    world.sync.run_once()
    assert world.target.requests == 0


def test_cluster_that_is_away_is_reported(world: World) -> None:
    world.target.failure = ClusterUnavailable("b is away")
    world.sync.run_once()
    assert world.report().error == "b is away"
    world.target.failure = None
    assert world.round() == {"changed": 2}
