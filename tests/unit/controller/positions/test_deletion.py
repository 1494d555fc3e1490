"""Deletion of positions with their topics: conditions, order of steps, failures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import pytest

from ureplicator_common.coordination import Conflict, Create, Set
from ureplicator_common.kafka import (
    ClusterUnavailable,
    PartitionUnavailable,
    Position,
    PositionOrError,
)
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.positions import CommitRefused, PositionStore, TargetPartition
from ureplicator_common.kafka.provenance import Provenance
from ureplicator_common.model import (
    OwnerEpoch,
    Partition,
    PartitionState,
    Route,
    RouteSettings,
    SessionId,
    TopicKey,
    TopicState,
    WorkerId,
)
from ureplicator_common.znode_contents import (
    Assignment,
    AssignmentEntry,
    CurrentEntry,
    CurrentState,
    IdealEntry,
    IdealTopic,
    KnownWorker,
    LiveWorker,
    TopicIntent,
)
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.topics import decode_intent, encode_intent
from ureplicator_controller.core.planning.plan import plan
from ureplicator_controller.core.planning.steps import Retire
from ureplicator_controller.core.positions.deletion import DeletablePositions, deletable_positions
from ureplicator_controller.core.positions.orphaned import orphaned_positions
from ureplicator_controller.core.state.decoding import Stored
from ureplicator_controller.core.state.snapshot import Snapshot
from ureplicator_controller.engines.position_deletion import PositionDeleter, delete_positions
from ureplicator_controller.engines.position_renewal import Renewal
from ureplicator_testkit.control.memory_coordination import MemoryCoordination, MemoryStore

ROUTE = Route("a", "b")
KEY = TopicKey(ROUTE, "t")
W1 = WorkerId("w1")
MARKED = TopicIntent(
    2, 2, TopicState.DELETING, had_position=frozenset({0}), forget_positions=True, target_topic="x"
)
T = TypeVar("T")


def stored(value: T, *, owner: int = 0) -> Stored[T]:
    return Stored(value, 0, 1, SessionId(owner))


def fleet(
    intent: TopicIntent = MARKED,
    *,
    is_assigned: bool = False,
    is_reported: bool = False,
    alive: bool = True,
) -> Snapshot:
    """w1 was assigned the only partition and never confirmed its release."""
    entry = IdealEntry(None, OwnerEpoch(1), 0, "deleted", {W1: SessionId(4)})
    partition = Partition(ROUTE, "t", 0)
    assigned = {partition: AssignmentEntry(OwnerEpoch(1))} if is_assigned else {}
    reported = (
        {partition: CurrentEntry(PartitionState.ONLINE, OwnerEpoch(1))} if is_reported else {}
    )
    return Snapshot(
        fleet="f",
        epoch=1,
        topics={KEY: stored(intent)},
        ideal={KEY: stored(IdealTopic({0: entry}))},
        assignments={W1: stored(Assignment(assigned))},
        current={W1: stored(CurrentState(1, reported), owner=5)} if alive else {},
        live={W1: stored(LiveWorker(2), owner=5)} if alive else {},
        known={W1: stored(KnownWorker(2))},
        routes={ROUTE: stored(RouteSettings())},
        sessions={W1: SessionId(5)} if alive else {},
    )


@pytest.mark.parametrize("alive", [True, False])
def test_holder_that_may_still_commit_is_fenced(alive: bool) -> None:
    """The session that was assigned it is frozen, whether the worker is back or not."""
    found = deletable_positions(fleet(alive=alive))
    assert found == {KEY: DeletablePositions("x", 2, ("f.a.b.w1.0", "f.a.b.w1.1"), 1)}


@pytest.mark.parametrize(
    "snapshot",
    [
        fleet(is_assigned=True),
        fleet(is_assigned=True, alive=False),
        fleet(is_reported=True),
        fleet(replace(MARKED, forget_positions=False)),
        fleet(replace(MARKED, state=TopicState.ACTIVE)),
        replace(fleet(), known={}, live={}),
        replace(fleet(), unreadable_topics=frozenset({KEY})),
    ],
    ids=[
        "assigned",
        "assigned and absent",
        "reported",
        "not requested",
        "not deleted",
        "unknown slots",
        "unreadable intent",
    ],
)
def test_positions_that_cannot_be_deleted_yet(snapshot: Snapshot) -> None:
    assert deletable_positions(snapshot) == {}


def test_topic_is_retired_only_after_its_positions_are_deleted() -> None:
    assert not any(isinstance(step, Retire) for step in plan(fleet(), 0.0).steps)
    forgotten = fleet(replace(MARKED, forget_positions=False))
    assert any(isinstance(step, Retire) for step in plan(forgotten, 0.0).steps)


def test_positions_to_be_deleted_are_not_renewed() -> None:
    assert orphaned_positions(fleet(), ROUTE) == {}
    assert orphaned_positions(fleet(replace(MARKED, forget_positions=False)), ROUTE) != {}


# --- The engine


class TwinStore(PositionStore):
    """Position store in a dict that records the order of calls."""

    def __init__(self, refused: Mapping[TargetPartition, str] | None = None) -> None:
        self.positions = {("x", 0): Position(5), ("x", 1): Position(-1), ("y", 0): Position(7)}
        self.done: list[str] = []
        self.hidden: dict[str, str] = {}
        self.refused = dict(refused or {})

    def initialise(self) -> None:
        self.done.append("initialise")

    def fence(self, transactional_ids: Sequence[str]) -> None:
        self.done += [f"fence {id}" for id in transactional_ids]

    def read(
        self, wanted: Mapping[str, Sequence[int]]
    ) -> Mapping[TargetPartition, PositionOrError]:
        self.done.append("read")
        return {
            (topic, number): PartitionUnavailable(self.hidden[topic])
            if topic in self.hidden
            else self.positions.get((topic, number), Position(-1))
            for topic, numbers in wanted.items()
            for number in numbers
        }

    def commit(
        self,
        positions: Mapping[TargetPartition, Position],
        *,
        optional: Collection[TargetPartition] = (),
    ) -> dict[TargetPartition, str]:
        assert not optional
        self.done.append("commit")
        refused = {target: why for target, why in self.refused.items() if target in positions}
        if refused:
            raise CommitRefused(refused)
        self.positions.update(positions)
        return {}


class AwayStore(TwinStore):
    """The store's cluster does not respond."""

    def initialise(self) -> None:
        super().initialise()
        raise ClusterUnavailable("no broker responds")


class Client:
    def close(self) -> None:
        pass


def renewal(store: TwinStore) -> Renewal:
    return Renewal(ROUTE, store, cast(ClusterClient, Client()))


def test_deletion_follows_the_start_order_of_an_owner() -> None:
    store = TwinStore()

    def proven() -> DeletablePositions:
        store.done.append("proof")
        return DeletablePositions("x", 2, ("id",), 3)

    assert delete_positions(renewal(store), proven) == (1, 3)
    assert store.done == ["initialise", "proof", "fence id", "read", "commit"]
    assert store.positions[("x", 0)].offset == -1
    assert store.positions[("y", 0)].offset == 7


def test_the_number_of_chunks_in_the_offset_map_outlives_the_position() -> None:
    store = TwinStore()
    written = Provenance("A", "s", "t", "w", 0, 1, target_end=9, mapped=7, map_chunks=70)
    store.positions["x", 0] = Position(5, 2, written.encode())
    delete_positions(renewal(store), lambda: DeletablePositions("x", 2, (), 3))
    kept = replace(written, target_end=-1, mapped=-1)
    assert store.positions["x", 0] == Position(-1, metadata=kept.encode())


def test_deposed_leader_deletes_nothing() -> None:
    store = TwinStore()
    assert delete_positions(renewal(store), lambda: None) is None
    assert store.positions[("x", 0)].offset == 5


def test_missing_target_topic_counts_as_deleted_positions() -> None:
    store = TwinStore({("x", 0): "UNKNOWN_TOPIC_OR_PARTITION"})
    assert delete_positions(renewal(store), lambda: DeletablePositions("x", 2, (), 3)) == (0, 3)


def test_any_other_refusal_is_an_error() -> None:
    store = TwinStore({("x", 0): "TOPIC_AUTHORIZATION_FAILED"})
    with pytest.raises(CommitRefused):
        delete_positions(renewal(store), lambda: DeletablePositions("x", 2, (), 3))


class Leader:
    """The deleter over a tree with one marked topic; `proof` may be replaced."""

    def __init__(self) -> None:
        self.paths = Paths("f")
        self.coordination = MemoryCoordination(MemoryStore())
        self.store = TwinStore()
        for path in (self.paths.epoch, f"{self.paths.topics}/{ROUTE}"):
            self.coordination.ensure(path)
        self.coordination.transact([Create(self.path, encode_intent(MARKED))])
        self.proof: Callable[[], Snapshot | None] = lambda: replace(fleet(), epoch=0)

    @property
    def path(self) -> str:
        return self.paths.topic(KEY)

    def engine(self, seen: Snapshot | None, renewals: Mapping[Route, Renewal]) -> PositionDeleter:
        return PositionDeleter(
            coordination=self.coordination,
            paths=self.paths,
            renewals=renewals,
            seen=lambda: seen,
            proof=lambda: self.proof(),
        )

    def observe(self, seen: Snapshot | None) -> None:
        assert self.engine(seen, {ROUTE: renewal(self.store)}).run_once()

    def marked(self) -> bool:
        node = self.coordination.get(self.path)
        assert node is not None
        return decode_intent(node.data).forget_positions


def test_mark_is_removed_after_the_deletion() -> None:
    leader = Leader()
    leader.observe(fleet())
    assert leader.store.positions[("x", 0)].offset == -1
    assert not leader.marked()


@pytest.mark.parametrize(
    ("other", "order"),
    [
        (AwayStore(), ["initialise"]),
        (TwinStore({("x", 0): "TOPIC_AUTHORIZATION_FAILED"}), 2 * ["initialise", "read", "commit"]),
    ],
    ids=["away", "refuses"],
)
def test_failing_topic_does_not_delay_others(other: TwinStore, order: list[str]) -> None:
    """An unavailable cluster does not either: it is queried once."""
    leader = Leader()
    away = Route("a", "a")
    both = {TopicKey(away, name): stored(MARKED) for name in ("t", "u")}
    seen = replace(fleet(), topics={KEY: stored(MARKED), **both}, epoch=0)
    seen = replace(seen, routes={route: stored(RouteSettings()) for route in (ROUTE, away)})
    leader.proof = lambda: seen
    engine = leader.engine(seen, {away: renewal(other), ROUTE: renewal(leader.store)})
    assert not engine.run_once()
    assert other.done == order
    assert not leader.marked()
    assert leader.engine(fleet(), {ROUTE: renewal(leader.store)}).run_once()


def test_positions_that_are_not_shown_delay_no_other_topic_of_the_route() -> None:
    leader = Leader()
    other = TopicKey(ROUTE, "a-hidden")
    hidden = replace(MARKED, target_topic="hidden")
    leader.coordination.transact([Create(leader.paths.topic(other), encode_intent(hidden))])
    seen = replace(fleet(), topics={KEY: stored(MARKED), other: stored(hidden)}, epoch=0)
    leader.proof = lambda: seen
    leader.store.hidden = {"hidden": "TOPIC_AUTHORIZATION_FAILED"}
    assert not leader.engine(seen, {ROUTE: renewal(leader.store)}).run_once()
    assert not leader.marked()
    node = leader.coordination.get(leader.paths.topic(other))
    assert node is not None
    assert decode_intent(node.data).forget_positions


class CountedTopics(dict[TopicKey, Stored[TopicIntent]]):
    """Number of iterations over the topics."""

    walks = 0

    def items(self) -> Any:
        self.walks += 1
        return super().items()


def test_unchanged_fleet_is_evaluated_once() -> None:
    """A topic may stay marked for long: its worker is absent, or its route was removed."""
    topics = CountedTopics({KEY: stored(MARKED)})
    engine = Leader().engine(replace(fleet(is_assigned=True), topics=topics), {})
    assert engine.run_once()
    once = topics.walks
    assert engine.run_once()
    assert topics.walks == once > 0


@pytest.mark.parametrize("applied", [True, False])
def test_write_with_unknown_outcome_is_read_back(applied: bool) -> None:
    leader = Leader()
    leader.coordination.lose_next_response(applied=applied)
    leader.observe(fleet())
    assert not leader.marked()


def test_nothing_is_done_without_leadership() -> None:
    leader = Leader()
    leader.observe(None)
    leader.proof = lambda: None
    leader.observe(fleet())
    assert leader.store.positions[("x", 0)].offset == 5
    assert leader.marked()


def test_leader_deposed_meanwhile_writes_nothing() -> None:
    leader = Leader()
    leader.coordination.transact([Set(leader.paths.epoch, b"", -1)])
    with pytest.raises(Conflict):
        leader.observe(fleet())
    assert leader.marked()
