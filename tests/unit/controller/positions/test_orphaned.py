"""Positions without an owner, which the leader renews."""

from dataclasses import replace
from typing import TypeVar

from ureplicator_common.coordination import Set
from ureplicator_common.model import (
    MAX_SLOTS,
    OwnerEpoch,
    Partition,
    Route,
    RouteSettings,
    SessionId,
    TopicKey,
    WorkerId,
)
from ureplicator_common.znode_contents import (
    Assignment,
    AssignmentEntry,
    IdealEntry,
    IdealTopic,
    KnownWorker,
    LiveWorker,
    TopicIntent,
)
from ureplicator_common.znodes.paths import Paths
from ureplicator_common.znodes.topics import encode_intent
from ureplicator_controller.core.planning.holders import FenceIds
from ureplicator_controller.core.positions.orphaned import OrphanedPosition, orphaned_positions
from ureplicator_controller.core.state.decoding import Stored
from ureplicator_controller.core.state.snapshot import Delays, Snapshot
from ureplicator_controller.engines.observer import Observer
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.control.memory_coordination import MemoryCoordination, MemoryStore

ROUTE = Route("a", "b")
KEY = TopicKey(ROUTE, "t")
W1 = WorkerId("w1")


T = TypeVar("T")


def stored(value: T) -> Stored[T]:
    return Stored(value, 0, 1, SessionId(0))


def fleet(*, owner: WorkerId | None, is_assigned: bool, alive: bool) -> Snapshot:
    entry = IdealEntry(owner, OwnerEpoch(1), 0, "why")
    entries = {Partition(ROUTE, "t", 0): AssignmentEntry(OwnerEpoch(1))} if is_assigned else {}
    return Snapshot(
        fleet="f",
        epoch=1,
        topics={KEY: stored(TopicIntent(2, 2, had_position=frozenset({0}), target_topic="p-t"))},
        ideal={KEY: stored(IdealTopic({0: entry}))},
        assignments={W1: stored(Assignment(entries))},
        routes={ROUTE: stored(RouteSettings(prefix="p-"))},
        sessions={W1: SessionId(5)} if alive else {},
    )


def test_excluded_partition_is_renewed_under_its_target_topic() -> None:
    found = orphaned_positions(fleet(owner=None, is_assigned=False, alive=True), ROUTE)
    assert found == {Partition(ROUTE, "t", 0): OrphanedPosition("p-t")}


def test_partition_with_a_live_owner_is_not_renewed() -> None:
    assert orphaned_positions(fleet(owner=W1, is_assigned=True, alive=True), ROUTE) == {}


def test_partition_assigned_to_a_live_worker_is_not_renewed() -> None:
    assert orphaned_positions(fleet(owner=None, is_assigned=True, alive=True), ROUTE) == {}


def test_partition_of_an_absent_owner_is_renewed() -> None:
    assert set(orphaned_positions(fleet(owner=W1, is_assigned=False, alive=False), ROUTE)) == {
        Partition(ROUTE, "t", 0)
    }


def test_holder_that_may_still_commit_is_fenced_before_a_renewal() -> None:
    """It lost its session but still copies; the renewal would move its position back."""
    seen = fleet(owner=W1, is_assigned=True, alive=False)
    known = {W1: stored(KnownWorker(max_slots=2))}
    found = orphaned_positions(replace(seen, known=known), ROUTE)
    assert found[Partition(ROUTE, "t", 0)].fence == ("f.a.b.w1.0", "f.a.b.w1.1")


def test_a_worker_that_has_fewer_slots_now_is_fenced_in_all_it_ever_had() -> None:
    """A copier of its former process may have been frozen in the fourth slot."""
    seen = fleet(owner=W1, is_assigned=True, alive=True)
    live = {W1: stored(LiveWorker(slots=2))}
    for max_slots in (4, 1):
        known = {W1: stored(KnownWorker(max_slots=max_slots))}
        found = FenceIds(replace(seen, known=known, live=live)).of(ROUTE, [W1])
        assert found == tuple(f"f.a.b.w1.{slot}" for slot in range(max(max_slots, 2)))


def test_a_worker_whose_record_cannot_be_read_is_fenced_in_all_it_may_have_had() -> None:
    seen = replace(
        fleet(owner=None, is_assigned=False, alive=True),
        live={W1: stored(LiveWorker(slots=2))},
        unreadable_workers=frozenset({W1}),
    )
    found = FenceIds(seen).of(ROUTE, [W1])
    assert found is not None
    assert (len(found), found[-1]) == (MAX_SLOTS, f"f.a.b.w1.{MAX_SLOTS - 1}")


def test_leaders_proof_is_of_the_present_though_its_server_lags_behind() -> None:
    """A partition that was given out meanwhile must not be taken for an orphan."""
    paths, store = Paths("f"), MemoryStore()
    leader, other = MemoryCoordination(store), MemoryCoordination(store)
    for path in paths.skeleton:
        other.ensure(path)
    observer = Observer(leader, fleet="f", clock=ManualClock(), delays=Delays())
    leader.fall_behind()
    leader.hold_watches()
    intent = encode_intent(TopicIntent(2, 2, target_topic="orders"))
    other.ensure(paths.topic(KEY))
    other.transact([Set(paths.topic(KEY), intent, -1)])
    assert KEY in observer.fresh().topics


def test_nothing_is_renewed_while_ids_to_fence_are_unknown() -> None:
    assert orphaned_positions(fleet(owner=W1, is_assigned=True, alive=False), ROUTE) == {}


def test_other_routes_are_not_affected() -> None:
    assert (
        orphaned_positions(fleet(owner=None, is_assigned=False, alive=True), Route("a", "c")) == {}
    )
