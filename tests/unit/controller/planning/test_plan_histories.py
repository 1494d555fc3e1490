"""Plans from start to end: placement, delays, and requests of operators."""

from __future__ import annotations

from ureplicator_common.model import TopicKey, TopicState
from ureplicator_common.znode_contents import Assignment, Switches
from ureplicator_controller.core.planning.handover import EPOCH_SHIFT
from ureplicator_controller.core.planning.plan import Plan
from ureplicator_controller.core.state.exclusions import ROUTE_PAUSED
from ureplicator_controller.core.state.external_view import external_view
from ureplicator_controller.core.state.mismatches import mismatches
from ureplicator_controller.core.state.snapshot import BalanceLimits
from ureplicator_controller.core.state.topic_tallies import topic_tallies
from ureplicator_controller.core.state.validation_counts import validation_counts
from ureplicator_testkit.control.fleet import ROUTE, ControlFleet, ids_of, partition, two_workers

PAUSED_ROUTE = Switches(paused_routes=frozenset({ROUTE}))


def test_new_topic_is_assigned_at_once_and_evenly() -> None:
    fleet = ControlFleet()
    fleet.worker("a")
    fleet.worker("b")
    fleet.topic("t", 5)
    decided = fleet.cycle()
    assert fleet.counts() == {"a": 3, "b": 2}
    assert "new topic (5)" in decided.reasons
    assert fleet.entry("t").owner_epoch == fleet.snapshot().epoch << EPOCH_SHIFT
    fleet.settle()
    view = external_view(fleet.snapshot())
    assert mismatches(fleet.snapshot(), view) == []
    assert validation_counts(fleet.snapshot(), topic_tallies(fleet.snapshot(), view)).online == 5


def test_idle_fleet_has_no_steps() -> None:
    fleet = two_workers()
    decided = fleet.cycle()
    assert decided == Plan((), None, ())


def test_first_commit_is_recorded_in_the_intent() -> None:
    fleet = two_workers(3)
    intent = fleet.snapshot().topics[TopicKey(ROUTE, "t")].value
    assert intent.had_position == {0, 1, 2}


def test_topic_waits_for_the_first_worker() -> None:
    fleet = ControlFleet()
    fleet.topic("t", 2)
    fleet.settle()
    assert fleet.owners("t") == {0: None, 1: None}
    assert fleet.entry("t").reason == "new topic; no eligible worker"
    fleet.worker("a")
    fleet.settle()
    assert fleet.owners("t") == {0: "a", 1: "a"}
    assert fleet.entry("t").reason == "new topic"


def test_worker_back_within_the_delay_keeps_its_partitions_without_a_write() -> None:
    fleet = two_workers()
    fleet.kill(fleet.process("a"))
    decided = fleet.cycle()
    assert (decided.steps, decided.wake_at_s) == ((), fleet.now_s + 120)
    fleet.wait(119)
    assert fleet.cycle().steps == ()
    fleet.worker("a")
    writes = fleet.writes
    fleet.settle()
    assert fleet.writes == writes
    assert fleet.counts() == {"a": 2, "b": 2}
    assert set(fleet.commits[partition("t", 0)]) == {"a"}


def test_flapping_worker_moves_nothing() -> None:
    fleet = two_workers()
    writes = fleet.writes
    for _ in range(20):
        fleet.kill(fleet.process("a"))
        fleet.settle()
        fleet.wait(60)
        fleet.worker("a")
        fleet.settle()
        fleet.wait(60)
    assert fleet.writes == writes


def test_lost_worker_is_replaced_when_the_delay_ends() -> None:
    fleet = two_workers()
    fleet.kill(fleet.process("a"))
    fleet.settle()
    fleet.wait(120)
    decided = fleet.cycle()
    assert "worker a lost (2)" in decided.reasons
    assert fleet.counts() == {"b": 4}
    assert fleet.entry("t", 0).holders.keys() == {"a", "b"}
    assert fleet.fences("b") == ids_of("a")
    fleet.settle()
    assert fleet.entry("t", 0).holders.keys() == {"b"}, "b is ONLINE, so a was fenced"
    assert fleet.fences("b") == set()


def test_lost_worker_keeps_its_partitions_without_another_worker() -> None:
    fleet = ControlFleet()
    fleet.worker("a")
    fleet.topic("t", 2)
    fleet.settle()
    fleet.kill(fleet.process("a"))
    fleet.settle()
    fleet.wait(1_000)
    assert fleet.cycle().steps == ()
    fleet.worker("a")
    fleet.settle()
    assert fleet.owners("t") == {0: "a", 1: "a"}


def test_partitions_of_two_lost_workers_go_to_the_third() -> None:
    fleet = two_workers(6)
    fleet.limits = BalanceLimits(max_lost_share=1.0)
    fleet.worker("c")
    fleet.settle()
    fleet.wait(10)
    fleet.settle()
    assert fleet.counts() == {"a": 2, "b": 2, "c": 2}
    fleet.kill(fleet.process("a"))
    fleet.settle()
    fleet.wait(60)
    fleet.kill(fleet.process("b"))
    fleet.settle()
    fleet.wait(60)
    fleet.settle()
    assert fleet.counts() == {"b": 2, "c": 4}
    fleet.wait(60)
    fleet.settle()
    assert fleet.counts() == {"c": 6}


def test_joined_worker_gets_its_share_after_the_last_join() -> None:
    fleet = two_workers(6)
    fleet.worker("c")
    assert fleet.cycle().wake_at_s == fleet.now_s + 10
    fleet.wait(9)
    fleet.worker("d")
    assert fleet.cycle().wake_at_s == fleet.now_s + 10
    fleet.wait(9)
    fleet.settle()
    assert fleet.counts() == {"a": 3, "b": 3}
    fleet.wait(1)
    before = fleet.owners("t")
    decided = fleet.cycle()
    moved = [number for number, owner in fleet.owners("t").items() if owner != before[number]]
    assert len(moved) == 2
    assert {"joined: share of c", "joined: share of d"} <= set(decided.reasons)
    fleet.settle()
    assert sorted(fleet.counts().values()) == [1, 1, 2, 2]


def test_join_during_a_rebalance_delay_leaves_the_absent_workers_share() -> None:
    fleet = two_workers(6)
    fleet.kill(fleet.process("a"))
    fleet.settle()
    fleet.worker("c")
    fleet.wait(10)
    fleet.settle()
    fleet.wait(10)
    fleet.settle()
    assert fleet.counts() == {"a": 3, "b": 2, "c": 1}
    fleet.worker("a")
    fleet.settle()
    fleet.wait(10)
    fleet.settle()
    assert fleet.counts() == {"a": 2, "b": 2, "c": 2}


def test_drained_and_blacklisted_workers_release_their_partitions_at_once() -> None:
    for tag in ("draining", "blacklisted"):
        fleet = two_workers()
        fleet.tag("a", **{tag: True})
        fleet.settle()
        assert fleet.counts() == {"b": 4}
        assert fleet.entry("t").reason == "worker a drained"
        fleet.tag("b", **{tag: True})
        fleet.settle()
        assert fleet.counts() == {}
        assert "no eligible worker" in fleet.entry("t").reason
        fleet.tag("a")
        fleet.settle()
        assert fleet.counts() == {"a": 4}


def test_paused_and_blacklisted_partitions_have_no_owner() -> None:
    fleet = two_workers()
    fleet.topic("t", 4, blacklisted=frozenset({1}))
    fleet.settle()
    assert fleet.owners("t")[1] is None
    fleet.topic("t", 4, state=TopicState.PAUSED)
    fleet.settle()
    assert set(fleet.owners("t").values()) == {None}
    assert fleet.entry("t").reason == "paused"
    assert fleet.entry("t").holders == {}
    assert all(not process.copies for process in fleet.processes)
    fleet.topic("t", 4, state=TopicState.ACTIVE, blacklisted=frozenset())
    decided = fleet.cycle()
    assert "resumed (4)" in decided.reasons
    fleet.settle()
    assert fleet.counts() == {"a": 2, "b": 2}


def test_a_paused_route_has_no_owners_until_it_is_resumed() -> None:
    fleet = two_workers()
    fleet.switch(PAUSED_ROUTE)
    fleet.settle()
    assert set(fleet.owners("t").values()) == {None}
    assert fleet.entry("t").reason == ROUTE_PAUSED
    assert fleet.entry("t").holders == {}
    fleet.topic("added", 2)
    fleet.topic("paused", 1, state=TopicState.PAUSED)
    fleet.settle()
    assert set(fleet.owners("added").values()) == {None}
    fleet.switch(Switches())
    assert "route resumed (6)" in fleet.cycle().reasons
    fleet.settle()
    assert fleet.counts() == {"a": 3, "b": 3}
    assert fleet.owners("paused") == {0: None}


def test_a_route_stays_as_it_is_while_the_switches_cannot_be_read() -> None:
    fleet = two_workers()
    fleet.switch(PAUSED_ROUTE)
    fleet.settle()
    fleet.topic("u", 1)
    fleet.switch_to(b"{")
    fleet.settle()
    assert set(fleet.owners("t").values()) == {None}
    fleet.switch(Switches())
    fleet.settle()
    assert fleet.counts() == {"a": 3, "b": 2}
    fleet.switch_to(b"{")
    fleet.settle()
    assert fleet.counts() == {"a": 3, "b": 2}


def test_expansion_places_only_the_new_partitions() -> None:
    fleet = two_workers(2)
    before = fleet.owners("t")
    fleet.topic("t", 4)
    decided = fleet.cycle()
    assert "new partition (2)" in decided.reasons
    assert {number: fleet.owners("t")[number] for number in before} == before
    fleet.settle()
    assert fleet.counts() == {"a": 2, "b": 2}


def test_expansion_during_a_handover() -> None:
    fleet = two_workers(2)
    fleet.tag("a", draining=True)
    fleet.cycle()
    fleet.topic("t", 5)
    fleet.settle()
    assert fleet.counts() == {"b": 5}


def test_deleted_topic_is_released_and_then_removed() -> None:
    fleet = two_workers()
    fleet.delete("t")
    fleet.cycle()
    assert fleet.snapshot().topics, "the workers have not released it yet"
    fleet.settle()
    seen = fleet.snapshot()
    assert (seen.topics, seen.ideal) == ({}, {})
    assert all(stored.value == Assignment() for stored in seen.assignments.values())


def test_deleted_topic_waits_for_the_deletion_of_its_positions() -> None:
    fleet = two_workers()
    fleet.topic("t", 4, state=TopicState.DELETING, forget_positions=True)
    fleet.settle()
    assert TopicKey(ROUTE, "t") in fleet.snapshot().topics
    fleet.topic("t", 4, forget_positions=False)
    fleet.settle()
    assert fleet.snapshot().topics == {}


def test_handovers_in_both_directions() -> None:
    """a is drained while b becomes eligible again: nothing is assigned early."""
    fleet = two_workers(3)
    fleet.topic("u", 3)
    fleet.tag("b", draining=True)
    fleet.settle()
    assert fleet.counts() == {"a": 6}
    fleet.tag("b")
    fleet.tag("a", draining=True)
    fleet.settle()
    assert fleet.counts() == {"b": 6}


def test_share_of_a_lost_worker_goes_to_a_joined_one_when_the_delay_ends() -> None:
    """The end of the delay must wake the leader."""
    fleet = ControlFleet()
    fleet.worker("a")
    fleet.topic("t", 2)
    fleet.settle()
    b = fleet.worker("b")
    fleet.cycle()
    fleet.kill(b)
    fleet.settle()
    fleet.worker("c")
    fleet.settle()
    fleet.wait(fleet.delays.join_s)
    decided = fleet.cycle()
    assert fleet.counts() == {"a": 2}
    assert decided.wake_at_s is not None
    fleet.wait(decided.wake_at_s - fleet.now_s)
    fleet.settle()
    assert fleet.counts() == {"a": 1, "c": 1}
