"""The sync of groups between two clusters in memory: what it writes, and what keeps it from writing."""

from __future__ import annotations

import pytest

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.groups import SHARE, CommittedOffset
from ureplicator_common.model import position_group
from ureplicator_controller.core.groups.decisions import SyncState
from ureplicator_controller.engines.groups.survey import RECHECK_ROUNDS
from ureplicator_controller.engines.groups.sync import PORTION
from ureplicator_controller.engines.syncs.thread import MAX_AGE_S, RETRY_DELAYS_S
from ureplicator_testkit.control.memory_copied import BASE
from ureplicator_testkit.group_sync.leader_world import (
    HERE,
    INTERVAL_S,
    OTHER,
    ROUTE,
    LeaderWorld,
)
from ureplicator_testkit.kafka.memory_groups import MemoryGroup


@pytest.fixture
def world() -> LeaderWorld:
    return LeaderWorld()


def test_offsets_follow_the_group(world: LeaderWorld) -> None:
    world.source.add("g", {HERE: 10, OTHER: 20, ("elsewhere", 0): 5}, state="Stable")
    assert world.sync.run_once() == INTERVAL_S
    world.source.add("g", {HERE: 30, OTHER: 20}, state="Stable")
    world.sync.run_once()
    assert world.target.commits == [("g", HERE, 1_010), ("g", OTHER, 1_020), ("g", HERE, 1_030)]
    assert world.groups(SyncState.SYNCED) == 1


def test_nothing_is_written_twice(world: LeaderWorld) -> None:
    world.source.add("g", {HERE: 10})
    for _ in range(20):
        world.sync.run_once()
    assert len(world.target.commits) == 1


def test_quiet_groups_are_decided_again_in_some_rounds_only(world: LeaderWorld) -> None:
    """The first rounds read once what was written."""
    keys = [("t", number) for number in range(RECHECK_ROUNDS)]
    for number, key in enumerate(keys):
        world.source.add(f"g{number}", {key: 10})
    for _ in range(4):
        world.sync.run_once()
    world.copied.asked.clear()
    for _ in range(RECHECK_ROUNDS):
        world.sync.run_once()
    assert sorted(world.copied.asked) == keys
    assert world.groups(SyncState.SYNCED) == RECHECK_ROUNDS


def test_an_offset_that_is_lowered_at_the_target_is_written_again_soon(world: LeaderWorld) -> None:
    world.source.add("g", {HERE: 10})
    for _ in range(4):
        world.sync.run_once()
    world.target.add("g", {HERE: 3})
    for _ in range(2):
        world.sync.run_once()
    assert world.target.offset("g", HERE) == 10 + BASE


def test_what_the_target_did_not_keep_is_written_again(world: LeaderWorld) -> None:
    """A broker has lost what it had acknowledged."""
    world.source.add("g", {HERE: 10})
    world.sync.run_once()
    world.target.groups.clear()
    for _ in range(2):
        world.sync.run_once()
    assert world.target.offset("g", HERE) == 10 + BASE


def test_a_quiet_group_that_moves_is_written_in_the_next_round(world: LeaderWorld) -> None:
    for offset in range(10, 20):
        world.source.add("g", {HERE: offset})
        world.sync.run_once()
        assert world.target.offset("g", HERE) == offset + BASE


def test_a_repeated_copy_is_followed_after_a_while(world: LeaderWorld) -> None:
    """The last copy counts, so that nothing is read twice."""
    world.source.add("g", {HERE: 10})
    world.sync.run_once()
    world.copied.base = 2 * BASE
    for _ in range(RECHECK_ROUNDS):
        world.sync.run_once()
    assert world.target.offset("g", HERE) == 2 * BASE + 10


def test_a_group_with_members_at_the_target_is_untouched_for_many_rounds(
    world: LeaderWorld,
) -> None:
    world.target.add("g", {HERE: 1_001}, state="Stable")
    for offset in range(10, 30):
        world.source.add("g", {HERE: offset})
        world.sync.run_once()
    assert world.target.offset("g", HERE) == 1_001
    assert world.groups(SyncState.ACTIVE) == 1


def test_members_that_join_after_the_list_are_seen_before_the_write(world: LeaderWorld) -> None:
    world.source.add("g", {HERE: 10})
    world.target.joining.add("g")
    world.sync.run_once()
    assert not world.target.commits
    assert world.groups(SyncState.ACTIVE) == 1


def test_members_that_join_at_the_last_moment_are_left_to_the_coordinator(
    world: LeaderWorld,
) -> None:
    world.source.add("g", {HERE: 10})
    world.target.add("g", {})

    def join() -> None:
        world.target.groups["g"].state = "Stable"

    world.target.before_commit = join
    world.sync.run_once()
    assert not world.target.commits
    assert world.groups(SyncState.REFUSED) == 1


def test_a_group_missing_in_an_incomplete_list_is_not_a_new_one(world: LeaderWorld) -> None:
    world.source.add("g", {HERE: 10})
    world.target.add("g", {}, state="Stable")
    world.target.unlisted.add("g")
    world.sync.run_once()
    assert not world.target.commits
    assert world.groups(SyncState.UNKNOWN) == 1


@pytest.mark.parametrize("end", ["source", "target"])
def test_a_coordinator_that_does_not_respond_concerns_its_groups_only(
    world: LeaderWorld, end: str
) -> None:
    world.source.add("g", {HERE: 10})
    world.source.add("h", {HERE: 20})
    getattr(world, end).failing.add("g")
    world.sync.run_once()
    assert world.target.commits == [("h", HERE, 1_020)]
    assert world.groups(SyncState.UNKNOWN) == 1


def test_a_group_that_a_broker_of_the_source_does_not_list_is_unknown(world: LeaderWorld) -> None:
    world.source.add("g", {HERE: 10})
    world.sync.run_once()
    world.source.unlisted.add("g")
    world.sync.run_once()
    assert world.groups(SyncState.UNKNOWN) == 1


def test_a_group_deleted_at_the_source_is_kept_at_the_target(world: LeaderWorld) -> None:
    world.source.add("g", {HERE: 10})
    world.sync.run_once()
    world.source.groups.clear()
    world.sync.run_once()
    assert world.target.offset("g", HERE) == 1_010
    assert sum(world.groups(state) for state in SyncState) == 0


def test_positions_of_fleets_and_groups_that_are_not_selected_are_left_out() -> None:
    world = LeaderWorld(include="g|ureplicator.*")
    for id in ("g", "other", position_group(fleet="f", route=ROUTE)):
        world.source.add(id, {HERE: 10})
    world.sync.run_once()
    assert set(world.target.groups) == {"g"}


@pytest.mark.parametrize("old", ["source", "target"])
def test_a_share_group_is_named_and_not_synced_with_old_brokers(
    world: LeaderWorld, old: str
) -> None:
    share_group(world, 10)
    getattr(world, old).share = False
    world.sync.run_once()
    assert world.groups(SyncState.UNSUPPORTED) == 1
    assert not world.target.groups


def share_group(world: LeaderWorld, start: int) -> None:
    world.source.groups["s"] = MemoryGroup({HERE: CommittedOffset(start)}, kind=SHARE)


def test_start_offsets_of_a_share_group_follow_and_are_never_lowered(world: LeaderWorld) -> None:
    for start, there in ((10, 1_010), (20, 1_020), (5, 1_020)):
        share_group(world, start)
        world.sync.run_once()
        assert world.target.offset("s", HERE) == there
        assert world.target.groups["s"].kind == SHARE
    assert world.groups(SyncState.AHEAD) == 1


@pytest.mark.parametrize("listed", [True, False])
def test_a_share_group_with_a_member_at_the_target_is_untouched(
    world: LeaderWorld, listed: bool
) -> None:
    """The member was there when the groups were listed, or joined before the write."""
    share_group(world, 10)
    world.target.groups["s"] = MemoryGroup(kind=SHARE, state="Stable" if listed else "Empty")
    world.target.before_commit = lambda: setattr(world.target.groups["s"], "state", "Stable")
    world.sync.run_once()
    assert not world.target.commits
    assert world.groups(SyncState.ACTIVE) == 1


def test_a_group_of_another_kind_at_the_target_is_refused(world: LeaderWorld) -> None:
    share_group(world, 10)
    world.target.add("s", {})
    world.sync.run_once()
    assert not world.target.commits
    assert world.groups(SyncState.REFUSED) == 1


def test_topics_outside_the_route_are_not_read(world: LeaderWorld) -> None:
    world.source.add("g", {("elsewhere", 0): 10})
    world.sync.run_once()
    assert not world.target.commits


def test_only_the_leader_writes(world: LeaderWorld) -> None:
    world.source.add("g", {HERE: 10})
    world.epoch = None
    world.sync.run_once()
    assert not world.target.commits


@pytest.mark.parametrize("epoch", [None, 4])
def test_leadership_that_is_lost_in_a_round_ends_it(world: LeaderWorld, epoch: int | None) -> None:
    """The round ends also if leadership was won again meanwhile: another leader may have written in
    between."""

    def lose() -> None:
        world.epoch = epoch

    world.source.add("g", {HERE: 10})
    world.target.before_states = lose
    world.sync.run_once()
    assert not world.target.commits


def test_a_process_that_was_suspended_gives_the_round_up(world: LeaderWorld) -> None:
    world.source.add("g", {HERE: 10})
    world.target.before_states = lambda: world.clock.advance(MAX_AGE_S + 1)
    world.sync.run_once()
    assert not world.target.commits
    world.target.before_states = lambda: None
    world.sync.run_once()
    assert world.target.offset("g", HERE) == 1_010


@pytest.mark.parametrize("error", [ClusterUnavailable("no broker"), ValueError("a defect")])
def test_failed_rounds_are_counted_and_back_off_until_one_succeeds(
    world: LeaderWorld, error: Exception
) -> None:
    world.source.add("g", {HERE: 10})
    world.copied.error = error
    waits = [world.sync.run_once() for _ in RETRY_DELAYS_S]
    assert waits == [max(INTERVAL_S, delay_s) for delay_s in RETRY_DELAYS_S]
    assert world.failures() == len(RETRY_DELAYS_S)
    world.copied.error = None
    assert world.sync.run_once() == INTERVAL_S
    assert world.target.offset("g", HERE) == 1_010


def test_many_groups_are_written_in_portions_while_this_process_leads(world: LeaderWorld) -> None:
    """Leadership is looked at before each portion. What is left is written by the next round."""
    ids = [f"g{number:05d}" for number in range(2 * PORTION + 1)]
    for id in ids:
        world.source.add(id, {HERE: 10})
    sizes: list[int] = []

    def lose() -> None:
        sizes.append(len(world.target.commits))
        world.epoch = 4

    world.target.before_commit = lose
    world.sync.run_once()
    assert [id for id, _, _ in world.target.commits] == ids[:PORTION]
    assert world.groups(SyncState.PENDING) == PORTION + 1
    world.target.before_commit = lambda: None
    world.sync.run_once()
    assert [id for id, _, _ in world.target.commits] == ids
    assert (sizes, world.groups(SyncState.SYNCED)) == ([0], len(ids))


def test_passes_and_failures_are_reported(world: LeaderWorld) -> None:
    world.source.add("g", {HERE: 10})
    world.source.add("idle", {("elsewhere", 0): 5})
    world.sync.run_once()
    world.source.lost = True
    world.sync.run_once()
    assert world.reports.passes == [({"synced": 1, "no offsets": 1}, "")]
    assert len(world.reports.failures) == 1
    world.epoch = None
    world.sync.run_once()
    assert (len(world.reports.passes), len(world.reports.failures)) == (1, 1)
