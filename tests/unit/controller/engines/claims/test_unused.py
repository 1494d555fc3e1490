"""Claims that no intent uses any more are removed; those in force never are, whatever comes meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from prometheus_client import CollectorRegistry

from ureplicator_common.coordination import Create, Delete, Operation, Set
from ureplicator_common.model import Route, TopicKey, TopicState
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.topics import encode_claim, encode_intent
from ureplicator_controller.core.state.snapshot import Snapshot, parse
from ureplicator_controller.engines.claims.unused import (
    INTERVAL_S,
    MAX_REMOVED,
    MORE_S,
    ClaimRemover,
)
from ureplicator_controller.engines.claims.within_fleet import claim, ensure_parents
from ureplicator_controller.engines.control_loop_metrics import ControlMetrics
from ureplicator_testkit.control.memory_coordination import MemoryCoordination, MemoryStore

PATHS = Paths("f")
ROUTE, OTHER_ROUTE = Route("a", "b"), Route("c", "b")
ORDERS = TopicKey(ROUTE, "orders")


class InterruptedCoordination(MemoryCoordination):
    """Calls `before` once, before the next transaction."""

    before: Callable[[], None] | None = None

    def transact(self, operations: Sequence[Operation]) -> None:
        before, self.before = self.before, None
        if before is not None:
            before()
        super().transact(operations)


class World:
    """A leader that saw the tree when `look` was called last."""

    def __init__(self) -> None:
        store = MemoryStore()
        self.leader, self.rest = InterruptedCoordination(store), MemoryCoordination(store)
        for path in PATHS.skeleton:
            self.rest.ensure(path)
        self.seen: tuple[int, Snapshot] | None = None
        self.remover = ClaimRemover(
            self.leader,
            paths=PATHS,
            seen=lambda: self.seen,
            metrics=ControlMetrics(CollectorRegistry()),
        )

    def look(self) -> None:
        cache = self.rest.tree_cache(PATHS.root, lambda: None)
        snapshot = parse(cache.nodes(), PATHS, fleet="f")
        cache.close()
        self.seen = snapshot.epoch, snapshot

    def add(self, key: TopicKey, state: TopicState = TopicState.ACTIVE) -> None:
        target = f"x.{key.topic}"
        ensure_parents(self.rest, PATHS, key)
        intent = encode_intent(TopicIntent(1, 1, target_topic=target, state=state))
        claiming = claim(self.rest, PATHS, key, target)
        self.rest.transact([Create(PATHS.topic(key), intent), claiming])

    def retire(self, key: TopicKey) -> None:
        self.rest.transact([Delete(PATHS.topic(key), -1)])

    @property
    def claimed(self) -> set[str]:
        return set(self.rest.children(f"{PATHS.targets}/b"))


@pytest.fixture
def world() -> World:
    """The topic `orders` is gone; `users` is copied, and `ships` is being deleted."""
    world = World()
    world.add(ORDERS)
    world.add(TopicKey(ROUTE, "users"))
    world.add(TopicKey(OTHER_ROUTE, "ships"), TopicState.DELETING)
    world.retire(ORDERS)
    world.look()
    return world


def test_only_the_claim_of_the_topic_that_is_gone_is_removed(world: World) -> None:
    assert world.remover.run_once() == INTERVAL_S
    assert world.claimed == {"x.users", "x.ships"}
    world.add(ORDERS)
    assert world.claimed == {"x.orders", "x.users", "x.ships"}


@pytest.mark.parametrize("key", [ORDERS, TopicKey(OTHER_ROUTE, "orders")])
def test_a_claim_that_is_taken_meanwhile_stays(world: World, key: TopicKey) -> None:
    world.leader.before = lambda: world.add(key)
    world.remover.run_once()
    assert "x.orders" in world.claimed
    world.remover.run_once()
    assert "x.orders" in world.claimed, "the snapshot does not show the topic yet"


def test_a_server_that_lags_behind_removes_no_claim_in_force(world: World) -> None:
    world.leader.fall_behind()
    world.add(ORDERS)
    world.remover.run_once()
    assert "x.orders" in world.claimed


def test_what_cannot_be_read_stays(world: World) -> None:
    users, ships = PATHS.topic(TopicKey(ROUTE, "users")), PATHS.target("b", "x.ships")
    world.rest.transact([Set(users, b"?", -1), Set(ships, b"?", -1)])
    world.retire(TopicKey(OTHER_ROUTE, "ships"))
    world.look()
    world.remover.run_once()
    assert world.claimed == {"x.users", "x.ships"}


def test_many_are_removed_in_parts(world: World) -> None:
    for number in range(2 * MAX_REMOVED):
        key = TopicKey(ROUTE, f"gone-{number}")
        world.rest.transact([Create(PATHS.target("b", f"x.gone-{number}"), encode_claim(key))])
    waits_s = [world.remover.run_once() for _ in range(3)]
    assert waits_s == [MORE_S, MORE_S, INTERVAL_S]
    assert world.claimed == {"x.users", "x.ships"}


def test_a_controller_that_does_not_lead_removes_nothing(world: World) -> None:
    before = world.claimed
    assert world.seen is not None
    epoch, snapshot = world.seen
    world.seen = None
    assert world.remover.run_once() == INTERVAL_S
    world.seen = epoch + 1, snapshot  # another leader was elected, this one does not know it yet
    assert world.remover.run_once() == INTERVAL_S
    assert world.claimed == before


def test_without_zookeeper_it_is_tried_again_later(world: World) -> None:
    world.leader.suspend()
    assert world.remover.run_once() == INTERVAL_S
    world.leader.restore()
    world.remover.run_once()
    assert world.claimed == {"x.users", "x.ships"}
