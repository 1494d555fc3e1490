"""Groups that are deleted at the source, and the sync that deletes their offsets at the target."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ureplicator_common.coordination import Create
from ureplicator_common.kafka.groups import SHARE, CommittedOffset
from ureplicator_controller.core.groups.decisions import SyncState
from ureplicator_testkit.control.memory_copied import BASE
from ureplicator_testkit.group_sync.leader_world import HERE, OTHER, ROUTE, LeaderWorld
from ureplicator_testkit.kafka.memory_groups import MemoryGroup

GRACE_S = 100.0


@pytest.fixture
def world() -> LeaderWorld:
    """Three groups are synced."""
    world = LeaderWorld(grace_s=GRACE_S)
    for id in ("a", "b", "c"):
        world.source.add(id, {HERE: 10, OTHER: 20})
    world.sync.run_once()
    return world


def pass_grace(world: LeaderWorld) -> None:
    world.clock.advance(GRACE_S)
    world.sync.run_once()


def delete_at_source(world: LeaderWorld, *ids: str) -> None:
    for id in ids:
        del world.source.groups[id]
    world.sync.run_once()


def test_the_offsets_of_a_group_that_is_gone_are_deleted_after_the_grace(
    world: LeaderWorld,
) -> None:
    delete_at_source(world, "a")
    assert (world.target.deletions, world.groups(SyncState.GONE)) == ([], 1)
    world.clock.advance(GRACE_S - 1)
    world.sync.run_once()
    assert world.target.deletions == []
    world.clock.advance(1)
    world.sync.run_once()
    assert sorted(world.target.deletions) == [("a", HERE), ("a", OTHER)]
    assert (world.gone(), world.groups(SyncState.GONE), world.deleted()) == ({}, 0, 1)
    assert world.groups(SyncState.SYNCED) == 2


@pytest.mark.parametrize("rounds", [0, 1, 2, 30])
def test_how_long_a_group_was_synced_does_not_matter(world: LeaderWorld, rounds: int) -> None:
    for _ in range(rounds):
        world.sync.run_once()
    delete_at_source(world, "a")
    pass_grace(world)
    assert len(world.target.deletions) == 2


def test_groups_are_kept_without_the_policy() -> None:
    world = LeaderWorld()
    world.source.add("a", {HERE: 10})
    world.sync.run_once()
    delete_at_source(world, "a")
    pass_grace(world)
    assert (world.target.deletions, world.gone()) == ([], {})


def test_the_next_leader_goes_on(world: LeaderWorld) -> None:
    delete_at_source(world, "a")
    world.sync = world.restarted()
    pass_grace(world)
    assert len(world.target.deletions) == 2


@pytest.mark.parametrize("unlisted", [set(), {"z"}])
def test_another_cluster_under_the_name_of_the_source_deletes_nothing(unlisted: set[str]) -> None:
    """The route has one group, so how many are gone says nothing. `unlisted`: brokers did not list theirs."""
    world = LeaderWorld(grace_s=GRACE_S)
    world.source.add("a", {HERE: 10})
    world.source.unlisted = unlisted
    world.sync.run_once()
    world.source.unlisted = set()
    world.source.cluster_id = "another"
    delete_at_source(world, "a")
    pass_grace(world)
    pass_grace(world)
    assert (world.target.deletions, world.gone()) == ([], {})


def test_a_group_that_was_noted_on_another_cluster_is_kept(world: LeaderWorld) -> None:
    """It is kept whichever leader has noted it."""
    delete_at_source(world, "a")
    world.source.cluster_id = "another"
    world.sync = world.restarted()
    pass_grace(world)
    pass_grace(world)
    assert (world.target.deletions, world.gone()) == ([], {})


def test_a_group_that_comes_back_is_synced_again(world: LeaderWorld) -> None:
    delete_at_source(world, "a")
    world.source.add("a", {HERE: 30, OTHER: 40})
    pass_grace(world)
    assert (world.target.deletions, world.gone()) == ([], {})
    assert world.target.offset("a", HERE) == 30 + BASE


def read_on_at_target(world: LeaderWorld) -> None:
    world.target.groups["a"].offsets[HERE] = CommittedOffset(BASE + 11)


def read_back_at_target(world: LeaderWorld) -> None:
    world.target.groups["a"].offsets[HERE] = CommittedOffset(BASE + 9)


def read_other_partition_at_target(world: LeaderWorld) -> None:
    world.target.groups["a"].offsets[("t", 7)] = CommittedOffset(1)


def join_at_target(world: LeaderWorld) -> None:
    world.target.groups["a"].state = "Stable"


@pytest.mark.parametrize(
    "use", [read_on_at_target, read_back_at_target, read_other_partition_at_target, join_at_target]
)
@pytest.mark.parametrize("is_late", [False, True])
def test_a_group_that_is_used_at_the_target_is_kept_for_good(
    world: LeaderWorld, use: Callable[[LeaderWorld], None], is_late: bool
) -> None:
    """A group that was used and left in the moment before it was gone is kept, too."""
    if not is_late:
        use(world)
    delete_at_source(world, "a")
    if is_late:
        use(world)
    pass_grace(world)
    world.target.groups["a"].state = "Empty"
    pass_grace(world)
    assert (world.target.deletions, world.gone()) == ([], {})


def test_a_group_that_is_used_at_the_target_does_not_hold_up_others(world: LeaderWorld) -> None:
    world.source.add("d", {HERE: 1})
    delete_at_source(world, "a", "b")
    read_on_at_target(world)
    pass_grace(world)
    assert {id for id, _ in world.target.deletions} == {"b"}
    assert world.gone() == {}


def test_offsets_on_topics_of_others_are_left(world: LeaderWorld) -> None:
    world.target.groups["a"].offsets[("elsewhere", 0)] = CommittedOffset(3)
    delete_at_source(world, "a")
    pass_grace(world)
    assert world.target.groups["a"].offsets == {("elsewhere", 0): CommittedOffset(3)}


def test_a_group_that_a_failed_broker_does_not_list_is_not_gone(world: LeaderWorld) -> None:
    world.source.unlisted = {"a"}
    world.sync.run_once()
    pass_grace(world)
    assert (world.target.deletions, world.gone(), world.failures()) == ([], {}, 0)


def test_a_group_that_its_coordinator_knows_is_not_deleted(world: LeaderWorld) -> None:
    """The list may lack a group while it moves between brokers."""
    delete_at_source(world, "a")
    world.source.before_states = lambda: world.source.add("a", {HERE: 10})
    pass_grace(world)
    assert world.target.deletions == []


@pytest.mark.parametrize("cluster", ["source", "target"])
def test_a_coordinator_that_does_not_respond_delays_the_deletion(
    world: LeaderWorld, cluster: str
) -> None:
    delete_at_source(world, "a")
    failing = getattr(world, cluster).failing
    failing.add("a")
    pass_grace(world)
    assert world.target.deletions == []
    failing.clear()
    world.sync.run_once()
    assert len(world.target.deletions) == 2


def test_a_group_that_gets_members_last_is_refused_and_the_reason_reported(
    world: LeaderWorld,
) -> None:
    delete_at_source(world, "a")
    world.target.before_delete = lambda: join_at_target(world)
    pass_grace(world)
    assert (world.target.deletions, world.deleted()) == ([], 0)
    assert "GROUP_SUBSCRIBED_TO_TOPIC" in world.reports.passes[-1][1]


def test_most_groups_at_once_are_rather_another_cluster(world: LeaderWorld) -> None:
    delete_at_source(world, "a", "b")
    pass_grace(world)
    assert world.target.deletions == []
    assert "2 groups are gone at the source" in world.reports.passes[-1][1]
    world.source.add("d", {HERE: 1})
    world.sync.run_once()
    assert len(world.target.deletions) == 4


def test_nothing_is_deleted_while_the_fleet_is_frozen(world: LeaderWorld) -> None:
    delete_at_source(world, "a")
    world.freeze()
    pass_grace(world)
    assert world.target.deletions == []


def test_a_leader_that_was_replaced_notes_and_deletes_nothing(world: LeaderWorld) -> None:
    """It does not know yet."""
    delete_at_source(world, "a")
    world.elect_another()
    pass_grace(world)
    assert world.target.deletions == []
    delete_at_source(world, "b")
    assert list(world.gone()) == ["a"]


def test_leadership_that_is_lost_before_the_deletion_ends_it(world: LeaderWorld) -> None:
    delete_at_source(world, "a")
    world.source.before_states = lambda: setattr(world, "epoch", 4)
    pass_grace(world)
    assert world.target.deletions == []


def test_a_term_of_another_leader_makes_what_was_seen_before_worthless(world: LeaderWorld) -> None:
    """It may have left the group to consumers at the target."""
    world.epoch = 1
    world.elect_another()
    delete_at_source(world, "a")
    pass_grace(world)
    assert (world.target.deletions, world.gone()) == ([], {})


def test_a_note_that_cannot_be_read_is_written_anew(world: LeaderWorld) -> None:
    world.store.transact([Create(world.paths.gone_groups(ROUTE), b"{", ephemeral=False)])
    world.sync.run_once()
    assert world.gone() == {}
    delete_at_source(world, "a")
    assert list(world.gone()) == ["a"]
    pass_grace(world)
    assert len(world.target.deletions) == 2


def test_share_groups_are_kept() -> None:
    world = LeaderWorld(grace_s=GRACE_S)
    world.source.groups["s"] = MemoryGroup({HERE: CommittedOffset(10)}, kind=SHARE)
    world.sync.run_once()
    assert world.target.offset("s", HERE) == 10 + BASE
    delete_at_source(world, "s")
    assert world.gone() == {}


def test_the_sync_goes_on_where_notes_cannot_be_written(world: LeaderWorld) -> None:
    delete_at_source(world, "a")
    world.store.suspend()
    world.source.add("b", {HERE: 11, OTHER: 20})
    pass_grace(world)
    assert world.target.offset("b", HERE) == 11 + BASE
    assert world.target.deletions == []
    assert "gone at the source" in world.reports.passes[-1][1]
