"""Whose positions the leader keeps from fading."""

from dataclasses import replace
from typing import TypeVar

from ureplicator_common.model import (
    Assignment,
    AssignmentEntry,
    IdealEntry,
    IdealTopic,
    KnownWorker,
    OwnerEpoch,
    Partition,
    Route,
    RouteSettings,
    SessionId,
    TopicIntent,
    TopicKey,
    WorkerId,
)
from ureplicator_controller.core.positions.orphaned import OrphanedPosition, orphaned_positions
from ureplicator_controller.core.state.snapshot import Snapshot, Stored

ROUTE = Route("a", "b")
KEY = TopicKey(ROUTE, "t")
W1 = WorkerId("w1")


T = TypeVar("T")


def stored(value: T) -> Stored[T]:
    return Stored(value, 0, 1, SessionId(0))


def fleet(*, owner: WorkerId | None, told: bool, alive: bool) -> Snapshot:
    entry = IdealEntry(owner, OwnerEpoch(1), 0, "why")
    entries = {Partition(ROUTE, "t", 0): AssignmentEntry(OwnerEpoch(1))} if told else {}
    return Snapshot(
        fleet="f",
        epoch=1,
        topics={KEY: stored(TopicIntent(2, 2, had_position=frozenset({0})))},
        ideal={KEY: stored(IdealTopic({0: entry}))},
        assignments={W1: stored(Assignment(entries))},
        routes={ROUTE: stored(RouteSettings(prefix="p-"))},
        sessions={W1: SessionId(5)} if alive else {},
    )


def test_a_partition_that_nobody_should_own_is_renewed_under_its_target_s_name() -> None:
    found = orphaned_positions(fleet(owner=None, told=False, alive=True), ROUTE)
    assert found == {Partition(ROUTE, "t", 0): OrphanedPosition("p-t")}


def test_a_partition_whose_owner_lives_is_the_owner_s() -> None:
    assert orphaned_positions(fleet(owner=W1, told=True, alive=True), ROUTE) == {}


def test_a_partition_that_a_live_worker_still_has_is_not_touched() -> None:
    assert orphaned_positions(fleet(owner=None, told=True, alive=True), ROUTE) == {}


def test_a_partition_whose_owner_is_away_does_not_fade_with_it() -> None:
    assert set(orphaned_positions(fleet(owner=W1, told=False, alive=False), ROUTE)) == {
        Partition(ROUTE, "t", 0)
    }


def test_whoever_may_still_be_able_to_commit_is_to_be_fenced() -> None:
    """It lost its session, not its right: it copies on, and would be overtaken by an old position."""
    seen = fleet(owner=W1, told=True, alive=False)
    known = {W1: stored(KnownWorker(max_slots=2))}
    found = orphaned_positions(replace(seen, known=known), ROUTE)
    assert found[Partition(ROUTE, "t", 0)].fence == ("f.a.b.w1.0", "f.a.b.w1.1")


def test_nothing_is_renewed_beside_somebody_whom_nobody_can_fence() -> None:
    assert orphaned_positions(fleet(owner=W1, told=True, alive=False), ROUTE) == {}


def test_other_routes_are_left_alone() -> None:
    assert orphaned_positions(fleet(owner=None, told=False, alive=True), Route("a", "c")) == {}
