"""Histories of who owned what: frozen, restarted and dying processes, and leaders that die.

The name of each says what must come of it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from ureplicator_common.coordination import Create, Delete, Set
from ureplicator_common.model import (
    OwnerEpoch,
    PartitionState,
    SessionId,
    TopicKey,
    TopicState,
    WorkerId,
)
from ureplicator_common.znode_contents import Assignment, AssignmentEntry, CurrentEntry
from ureplicator_controller.core.planning.holders import HolderRules
from ureplicator_controller.core.planning.partitions import PartitionView
from ureplicator_controller.core.planning.plan import Plan, plan
from ureplicator_controller.core.planning.steps import Retire, WriteAssignment, WriteIdeal
from ureplicator_controller.core.state.external_view import external_view
from ureplicator_controller.core.state.mismatches import mismatches
from ureplicator_controller.core.state.snapshot import Delays, Snapshot
from ureplicator_testkit.control.fleet import (
    ROUTE,
    ControlFleet,
    ids_of,
    partition,
    two_workers,
)
from ureplicator_testkit.control.worker_process import InvariantViolated, Process


def test_partition_is_assigned_only_after_its_confirmed_release() -> None:
    fleet = two_workers(2)
    fleet.tag("a", draining=True)
    first = fleet.cycle()
    assert [type(step) for step in first.steps] == [WriteIdeal, WriteAssignment]
    assert first.waiting == {partition("t", 0): (WorkerId("a"),)}
    assert fleet.entry("t", 0).worker == "b"
    assert partition("t", 0) not in fleet.snapshot().assignments[WorkerId("b")].value.entries
    assert fleet.cycle().steps == (), "a has not confirmed: nothing may happen"
    fleet.process("a").read()
    fleet.process("a").publish()
    assert fleet.cycle().steps == (), "a still copies it"
    fleet.process("a").catch_up()
    given = fleet.cycle()
    assert [type(step) for step in given.steps] == [WriteIdeal, WriteAssignment]
    assert fleet.entry("t", 0).holders.keys() == {"b"}, "a confirmed"
    assert fleet.fences("b") == set(), "so no worker need be fenced"


def test_missing_report_does_not_confirm_a_release() -> None:
    """The partition is revoked from a, which copies it but has not reported so yet."""
    fleet = ControlFleet()
    a = fleet.worker("a")
    fleet.topic("u", 1)
    fleet.settle()
    fleet.topic("t", 1)
    fleet.cycle()
    a.read()
    for step in (a.start, a.fence, a.position):
        step(partition("t"))
    fleet.worker("b")
    fleet.cycle()
    fleet.tag("a", draining=True)
    for _ in range(3):
        fleet.cycle()
    assert fleet.owners("t") == {0: "b"}
    assert fleet.entry("t").holders.keys() == {"a"}
    assert fleet.cycle().waiting[partition("t")] == ("a",)
    fleet.settle()
    assert fleet.entry("t").holders.keys() == {"b"}


def test_readded_topic_fences_a_worker_frozen_since_before_the_deletion() -> None:
    fleet = two_workers(1)
    frozen = fleet.process("a")
    fleet.freeze(frozen)
    fleet.delete("t")
    fleet.settle()
    assert fleet.snapshot().topics == {}, "the deletion does not wait for a frozen worker"
    assert fleet.entry("t").holders.keys() == {"a"}
    fleet.topic("t", 1)
    fleet.cycle()
    assert fleet.owners("t") == {0: "b"}
    assert fleet.fences("b") == ids_of("a")
    fleet.settle()
    fleet.thaw(frozen)
    commits = list(fleet.commits[partition("t")])
    frozen.commit(partition("t"))
    assert fleet.commits[partition("t")] == commits
    assert frozen.copies == {}


def test_owner_that_resumes_after_a_freeze_never_commits() -> None:
    """a owns p and freezes before a commit; after the delay b takes over; a resumes."""
    fleet = two_workers(2)
    frozen = fleet.process("a")
    fleet.freeze(frozen)
    fleet.settle()
    fleet.wait(120)
    fleet.settle()
    assert fleet.counts() == {"b": 2}
    fleet.thaw(frozen)
    commits = list(fleet.commits[partition("t")])
    frozen.commit(partition("t"))
    assert fleet.commits[partition("t")] == commits
    fleet.settle()
    fleet.wait(10)
    fleet.settle()
    assert fleet.counts() == {"a": 1, "b": 1}


def test_third_owner_fences_both_former_holders() -> None:
    fleet = ControlFleet(delays=Delays(rebalance_s=0, join_s=10))
    a = fleet.worker("a")
    fleet.topic("t", 1)
    fleet.settle()
    b = fleet.worker("b")
    fleet.cycle()
    fleet.freeze(a)
    fleet.cycle()
    fleet.cycle()
    assert fleet.fences("b") == ids_of("a")
    b.read()
    b.start(partition("t"))
    b.publish()
    fleet.cycle()
    fleet.freeze(b)
    fleet.worker("c")
    fleet.cycle()
    fleet.cycle()
    assert fleet.owners("t") == {0: "c"}
    assert fleet.entry("t").holders.keys() == {"a", "b", "c"}
    assert fleet.fences("c") == ids_of("a") | ids_of("b")
    fleet.settle()
    for zombie in (a, b):
        fleet.thaw(zombie)
    b.fence(partition("t"))
    b.position(partition("t"))
    assert not b.can_commit(partition("t"))
    a.commit(partition("t"))
    fleet.settle()


def test_restart_while_the_former_process_is_frozen() -> None:
    """The new process fences all ids of its worker, whichever partitions they belong to."""
    fleet = two_workers(4)
    frozen = fleet.process("a")
    fleet.freeze(frozen)
    fleet.settle()
    fresh = fleet.worker("a", slots=1)
    fleet.settle()
    fleet.thaw(frozen)
    held = list(frozen.copies)
    assert held
    for part in held:
        frozen.commit(part)
    assert frozen.copies == {}
    assert fresh.copies.keys() == set(held)


def test_new_session_never_confirms_for_an_old_one() -> None:
    """a freezes; its partition is revoked before the restarted a was ever ONLINE; b must fence a."""
    fleet = two_workers(2)
    frozen = fleet.process("a")
    fleet.freeze(frozen)
    fleet.cycle()
    fresh = fleet.worker("a")
    fresh.read()
    fresh.publish()
    fleet.tag("a", draining=True)
    fleet.cycle()
    fresh.read()
    fresh.publish()
    fleet.cycle()
    assert fleet.fences("b") == ids_of("a")
    fleet.process("b").catch_up()
    fleet.thaw(frozen)
    for part in list(frozen.copies):
        frozen.commit(part)
    fleet.settle()


def test_partition_that_comes_back_keeps_the_former_session_of_its_worker_as_holder() -> None:
    """a freezes; b is assigned its partition, and drained before it was ONLINE; the new process of a gets it
    and is drained, too: the frozen one was never fenced."""
    fleet = ControlFleet(delays=Delays(rebalance_s=0, join_s=10))
    frozen = fleet.worker("a")
    fleet.topic("t", 1)
    fleet.settle()
    fleet.freeze(frozen)
    b = fleet.worker("b")
    fleet.cycle()
    fresh = fleet.worker("a")
    fresh.read()
    fresh.publish()
    _drain_unproven(fleet, b)
    assert fleet.fences("a") == set()
    assert fleet.entry("t").holders == {WorkerId("a"): frozen.session}
    fleet.tag("b")
    _drain_unproven(fleet, fresh)
    assert fleet.fences("b") == ids_of("a")
    fleet.thaw(frozen)
    fleet.settle()


def _drain_unproven(fleet: ControlFleet, process: Process) -> None:
    """Operators drain a worker, which confirms the release of what it never copied."""
    fleet.tag(process.id, draining=True)
    fleet.cycle()
    process.read()
    process.publish()
    fleet.cycle()


def test_fence_covers_the_most_slots_a_worker_ever_had() -> None:
    fleet = ControlFleet()
    fleet.worker("a", slots=5)
    fleet.topic("t", 1)
    fleet.settle()
    fleet.kill(fleet.process("a"))
    fleet.settle()
    fleet.worker("a", slots=1)
    fleet.settle()
    fleet.kill(fleet.process("a"))
    fleet.worker("b")
    fleet.settle()
    fleet.wait(120)
    fleet.cycle()
    assert fleet.fences("b") == ids_of("a", slots=5)


def test_fence_covers_the_former_slots_of_a_worker_that_lives() -> None:
    """a freezes with five slots; its new process has one, and is drained before it was ever ONLINE."""
    fleet = ControlFleet()
    frozen = fleet.worker("a", slots=5)
    fleet.topic("t", 1)
    fleet.settle()
    fleet.freeze(frozen)
    fleet.cycle()
    fresh = fleet.worker("a", slots=1)
    fleet.worker("b")
    fleet.cycle()
    fleet.tag("a", draining=True)
    for _ in range(2):
        fresh.read()
        fresh.publish()
        fleet.cycle()
    assert fleet.fences("b") == ids_of("a", slots=5)


def test_partition_waits_while_the_slots_of_its_holder_are_unknown() -> None:
    """The record of a lost worker was deleted by hand: nobody knows which ids to fence."""
    fleet = two_workers(2)
    fleet.kill(fleet.process("a"))
    fleet.cycle()
    session = fleet.store.open_session()
    fleet.store.apply(session, [Delete(fleet.paths.worker_known(WorkerId("a")), -1)])
    fleet.wait(120)
    decided = fleet.cycle()
    assert fleet.entry("t", 0).worker == "b"
    assert decided.waiting == {partition("t", 0): (WorkerId("a"),)}
    assert partition("t", 0) not in fleet.snapshot().assignments[WorkerId("b")].value.entries


def test_online_report_of_an_earlier_ownership_proves_nothing() -> None:
    """Holders stay until the owner is ONLINE under the owner epoch that it was assigned."""
    fleet = two_workers(2)
    seen, key = fleet.snapshot(), TopicKey(ROUTE, "t")
    entry = seen.ideal[key].value.entries[0]
    assert entry.worker == "a"
    later = OwnerEpoch(entry.owner_epoch + 1)
    holders = {**entry.holders, WorkerId("gone"): SessionId(7)}
    view = PartitionView(
        partition("t", 0),
        key,
        seen.topics[key].value,
        replace(entry, owner_epoch=later, holders=holders),
        {WorkerId("a"): AssignmentEntry(later, ("id",))},
        {WorkerId("a"): CurrentEntry(PartitionState.ONLINE, entry.owner_epoch)},
        (),
    )
    rules = HolderRules(seen)
    assert "gone" in rules.remaining_holders(view)
    online = {WorkerId("a"): CurrentEntry(PartitionState.ONLINE, later)}
    assert rules.remaining_holders(replace(view, reported=online)).keys() == {"a"}


def test_owner_lost_before_an_assignment_is_replaced_at_once() -> None:
    fleet = two_workers(2)
    fleet.worker("c")
    fleet.settle()
    fleet.tag("a", draining=True)
    fleet.cycle()
    taker = fleet.entry("t", 0).worker
    assert taker == "c"
    fleet.kill(fleet.process("c"))
    fleet.settle()
    assert fleet.owners("t")[0] == "b"
    assert fleet.entry("t", 0).reason == "worker c lost before it was assigned the partition"


def test_partition_that_returns_to_its_holder_is_revoked_and_assigned_again() -> None:
    fleet = two_workers(2)
    fleet.tag("a", draining=True)
    fleet.cycle(die_after=1)
    assert fleet.entry("t", 0).worker == "b"
    fleet.tag("a")
    fleet.tag("b", draining=True)
    epoch = fleet.entry("t", 0).owner_epoch
    fleet.settle()
    assert fleet.counts() == {"a": 2}
    assert fleet.entry("t", 0).owner_epoch > epoch


def test_owner_epochs_only_grow_even_if_the_ideal_state_is_lost() -> None:
    fleet = two_workers(1)
    before = fleet.entry("t").owner_epoch
    fleet.store.apply(fleet._session, [Delete(fleet.paths.ideal_topic(TopicKey(ROUTE, "t")))])
    fleet.elect()
    fleet.settle()
    assert fleet.entry("t").owner_epoch > before
    assert fleet.entry("t").holders.keys() == {fleet.entry("t").worker}


@pytest.mark.parametrize("history", ["lost", "joined", "drained", "deleted", "paused"])
def test_leader_may_die_after_every_step(history: str) -> None:
    """The chain is interrupted after step 0, 1, 2 ..., each time from a fresh start."""
    for die_after in range(12):
        fleet = two_workers(5, delays=Delays(rebalance_s=30, join_s=5))
        if history == "lost":
            fleet.kill(fleet.process("a"))
        if history == "joined":
            fleet.worker("c")
        if history == "drained":
            fleet.tag("a", draining=True)
        if history == "deleted":
            fleet.delete("t")
        if history == "paused":
            fleet.topic("t", 5, state=TopicState.PAUSED)
        fleet.cycle()
        fleet.wait(30)
        for _ in range(6):
            fleet.cycle(die_after=die_after)
            for process in fleet.running():
                process.catch_up()
            fleet.wait(30)
            fleet.cycle()
        for _ in range(3):
            fleet.settle()
            fleet.wait(30)
        expected = {"lost": [5], "joined": [1, 2, 2], "drained": [5]}.get(history, [])
        assert sorted(fleet.counts().values()) == expected


def test_unreadable_nodes_stop_only_their_own_topics_and_workers() -> None:
    fleet = two_workers(2)
    fleet.topic("u", 2)
    fleet.settle()
    key = TopicKey(ROUTE, "u")
    fleet.store.apply(fleet._session, [Set(fleet.paths.ideal_topic(key), b"{garbled", -1)])
    fleet.store.apply(
        fleet._session, [Create(f"{fleet.paths.topics}/{ROUTE}/v", b'{"partitions": "x"}')]
    )
    fleet.topic("w", 2)
    fleet.settle()
    seen = fleet.snapshot()
    assert len(seen.unreadable_nodes) == 2
    assert set(fleet.owners("w").values()) == {"a", "b"}
    assigned = [p for stored in seen.assignments.values() for p in stored.value.entries]
    assert partition("u", 0) in assigned
    assert partition("u", 1) in assigned


def test_worker_with_an_unreadable_assignment_is_left_unchanged() -> None:
    fleet = two_workers(4)
    path = fleet.paths.assignment(WorkerId("a"))
    fleet.store.apply(fleet._session, [Set(path, b"{garbled", -1)])
    fleet.kill(fleet.process("a"))
    fleet.settle()
    fleet.wait(1_000)
    fleet.topic("u", 2)
    fleet.settle()
    assert fleet.counts() == {"a": 2, "b": 4}
    (finding,) = fleet.snapshot().unreadable_nodes
    assert finding.path == path
    view = external_view(fleet.snapshot())
    assert "is unreadable" in mismatches(fleet.snapshot(), view)[0].reason


def test_simulation_detects_assignment_before_revocation() -> None:
    """Checks the check: this planner assumes that no worker holds anything."""

    def careless(seen: Snapshot, now_s: float) -> Plan:
        honest = plan(seen, now_s)
        blind = replace(
            seen,
            current={},
            assignments={
                worker: replace(stored, value=Assignment(), mzxid=-2)
                for worker, stored in seen.assignments.items()
            },
        )
        return honest if not honest.waiting else plan(blind, now_s)

    fleet = two_workers(2)
    fleet.planner = careless
    fleet.tag("a", draining=True)
    with pytest.raises(InvariantViolated):
        fleet.settle()


def test_simulation_detects_missing_fencing() -> None:
    def toothless(seen: Snapshot, now_s: float) -> Plan:
        decided = plan(seen, now_s)
        return replace(
            decided,
            steps=tuple(
                replace(
                    step,
                    assignment=Assignment(
                        {
                            part: replace(entry, fence=())
                            for part, entry in step.assignment.entries.items()
                        }
                    ),
                )
                if isinstance(step, WriteAssignment)
                else step
                for step in decided.steps
            ),
        )

    fleet = two_workers(2)
    fleet.planner = toothless
    fleet.freeze(fleet.process("a"))
    fleet.settle()
    fleet.wait(120)
    with pytest.raises(InvariantViolated, match="invariant 3"):
        fleet.settle()


def test_retired_topic_keeps_unconfirmed_holders() -> None:
    fleet = two_workers(2)
    fleet.freeze(fleet.process("a"))
    fleet.delete("t")
    retired = []
    for _ in range(4):
        retired += [step for step in fleet.cycle().steps if isinstance(step, Retire)]
        for process in fleet.running():
            process.catch_up()
    (step,) = retired
    assert step.remains is not None
    assert step.remains.entries.keys() == {0}
    assert SessionId(0) not in step.remains.entries[0].holders.values()
