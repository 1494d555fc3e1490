"""Tables for `step`: each a short history, the instructions and what is published at its end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import pytest

from ureplicator_common.errors import InvalidTransition
from ureplicator_common.model import OwnerEpoch, PartitionState, SessionId
from ureplicator_testkit.control.worker_run import ROUTE, SILENCE_S, Run, part
from ureplicator_worker.core import events, instructions
from ureplicator_worker.core.capacity import START_TIMEOUT_S
from ureplicator_worker.core.copiers import END_TIMEOUT_S
from ureplicator_worker.core.partition_phases import HeldPartition, PartitionPhase, move
from ureplicator_worker.core.session import READ_EVERY_S
from ureplicator_worker.core.slots import LastSlot, Slot, choose_slot
from ureplicator_worker.core.state_machine import check_invariants
from ureplicator_worker.lifeline.messages import (
    Add,
    CopierId,
    CopierReport,
    Failed,
    PartitionReport,
    Released,
    Remove,
    Stop,
)

ONE = CopierId(0, 1)


def retry_of(run: Run, *, committed: int, lag: int) -> Run:
    online = PartitionReport(PartitionState.ONLINE, committed=committed, lag=lag)
    return run.do(events.FromCopier(ONE, CopierReport({part(0): online})))


def test_all_copiers_start_at_once_and_wait_for_work() -> None:
    run = Run(slots=2, running=False).do(events.Tick(0.0))
    assert run.decisions() == [
        instructions.StartCopier(ONE, ()),
        instructions.StartCopier(CopierId(1, 1), ()),
    ]


def test_nothing_is_added_before_the_route_is_fenced_once() -> None:
    run = Run().assign(0, 1)
    assert run.decisions() == [instructions.Fence(ROUTE)]
    run.wait(5)
    assert run.decisions() == []
    run.do(events.Fenced(ROUTE))
    assert run.decisions() == [
        instructions.ToCopier(ONE, Add({part(0): OwnerEpoch(1)})),
        instructions.ToCopier(CopierId(1, 1), Add({part(1): OwnerEpoch(1)})),
    ]
    run.assign(0, 1, 2)
    assert run.decisions() == [instructions.ToCopier(ONE, Add({part(2): OwnerEpoch(1)}))]


def test_configured_routes_are_fenced_as_soon_as_there_is_a_session() -> None:
    run = Run(running=False, routes=(ROUTE,)).do(events.Tick(0.0))
    assert instructions.Fence(ROUTE) not in run.decisions()
    run.do(events.SessionRestored(SessionId(1)))
    assert instructions.Fence(ROUTE) in run.decisions()
    run.do(events.Fenced(ROUTE), events.CopierConnected(ONE))
    run.take()
    run.assign(0)
    assert instructions.Fence(ROUTE) not in run.decisions()


def test_a_fence_that_fails_is_an_error_and_tried_again_every_second() -> None:
    run = Run().assign(0).do(events.FenceFailed(ROUTE, "target unreachable: x"))
    assert run.seen() == {0: (PartitionState.ERROR, "target unreachable: x")}
    run.take()
    assert run.wait(0.9).decisions() == []
    assert run.wait(0.2).decisions() == [instructions.Fence(ROUTE)]
    run.do(events.Fenced(ROUTE))
    assert run.decisions() == [instructions.ToCopier(ONE, Add({part(0): OwnerEpoch(1)}))]
    assert run.seen()[0] == (
        PartitionState.OFFLINE,
        "starting again after: target unreachable: x",
    )


def test_online_is_reported_by_the_copier_and_published_at_once() -> None:
    run = Run().assign(0).do(events.Fenced(ROUTE))
    assert run.seen() == {0: (PartitionState.OFFLINE, "starting")}
    run.report(0, PartitionState.ONLINE)
    assert run.seen() == {0: (PartitionState.ONLINE, "")}
    assert run.state.publication.last is not None
    assert run.state.publication.last.entries[part(0)].committed
    assert run.state.publication.last.seen_zxid == run.zxid


def test_reasons_alone_wait_for_a_tenth_of_a_second() -> None:
    run = Run().assign(0).do(events.Fenced(ROUTE))
    run.take()
    run.report(0, PartitionState.OFFLINE, "waits")
    run.report(0, PartitionState.OFFLINE, "waits longer")
    assert not run.take()
    run.wait(0.1)
    assert [type(one) for one in run.take()] == [instructions.Publish]
    assert run.seen() == {0: (PartitionState.OFFLINE, "starting: waits longer")}


def test_an_unchanged_state_is_not_published_again() -> None:
    run = Run().online(0)
    run.report(0, PartitionState.ONLINE).wait(1).report(0, PartitionState.ONLINE).wait(1)
    assert run.take() == []


def test_a_removed_partition_stays_published_until_released() -> None:
    run = Run().online(0, 1).assign(1)
    assert run.decisions() == [instructions.ToCopier(ONE, Remove((part(0),)))]
    assert run.seen()[0] == (PartitionState.OFFLINE, "stopping: not assigned any more")
    run.wait(20).report(0, PartitionState.ONLINE)
    assert run.phases()[0] is PartitionPhase.STOPPING
    run.do(events.FromCopier(ONE, Released((part(0),))))
    assert set(run.seen()) == {1}


def test_a_partition_that_was_never_sent_is_released_at_once() -> None:
    run = Run().assign(0).assign()
    assert run.seen() == {}
    assert run.state.publication.last is not None
    assert run.state.publication.last.seen_zxid == run.zxid


def test_a_failed_partition_that_is_removed_is_released_at_once() -> None:
    run = Run().online(0).do(events.FromCopier(ONE, Failed(part(0), "x", True))).assign()
    assert run.decisions() == []
    assert run.seen() == {}


def test_failed_while_stopping_waits_for_the_one_released() -> None:
    run = Run().online(0).assign()
    run.take()
    run.do(events.FromCopier(ONE, Failed(part(0), "x", True)))
    assert run.decisions() == [], "Remove is under way, and has one response"
    assert run.phases() == {0: PartitionPhase.STOPPING}
    run.do(events.FromCopier(ONE, Released((part(0),))))
    assert run.phases() == {}


def test_a_new_owner_epoch_is_remove_released_add() -> None:
    run = Run().online(0).assign(0, epoch=2)
    assert run.decisions() == [instructions.ToCopier(ONE, Remove((part(0),)))]
    run.do(events.FromCopier(ONE, Released((part(0),))))
    assert run.decisions() == [instructions.ToCopier(ONE, Add({part(0): OwnerEpoch(2)}))]


def test_released_without_a_remove_is_a_programming_error() -> None:
    run = Run().online(0)
    with pytest.raises(InvalidTransition, match="released without a Remove"):
        run.do(events.FromCopier(ONE, Released((part(0),))))


@pytest.mark.parametrize(
    ("temporary", "delays_s"),
    [(True, [0.5, 1, 2, 2, 2]), (False, [5, 10, 20, 40, 60, 60])],
)
def test_failures_back_off(temporary: bool, delays_s: Sequence[float]) -> None:
    run = Run().online(0)
    for delay_s in delays_s:
        run.do(events.FromCopier(ONE, Failed(part(0), "broken", temporary)))
        assert run.phases() == {0: PartitionPhase.ERROR}
        run.take()
        assert run.wait(delay_s - 0.1).decisions() == []
        assert run.wait(0.1).decisions() == [
            instructions.ToCopier(ONE, Add({part(0): OwnerEpoch(1)}))
        ]


def test_half_a_minute_online_clears_failures() -> None:
    run = Run().online(0)
    for _ in range(3):
        run.do(events.FromCopier(ONE, Failed(part(0), "broken", False))).wait(60)
    retry_of(run, committed=5, lag=0).wait(31)
    run.do(events.FromCopier(ONE, Failed(part(0), "broken", False)))
    assert run.state.held[part(0)].retry_at_s == run.state.now_s + 5


def test_a_record_that_fails_again_stays_an_error_between_the_tries() -> None:
    run = Run().online(0)
    for delay_s in (5, 10, 20):
        run.do(events.FromCopier(ONE, Failed(part(0), "poison", False))).wait(delay_s)
        assert run.state.held[part(0)].sent, "it is tried again"
        for _ in range(2):
            retry_of(run, committed=7, lag=3)
            assert run.seen() == {0: (PartitionState.ERROR, "poison")}
    retry_of(run, committed=8, lag=2)
    assert run.seen() == {0: (PartitionState.ONLINE, "")}


def test_an_error_whose_cause_is_gone_ends_where_nothing_is_left_to_copy() -> None:
    run = Run().online(0)
    run.do(events.FromCopier(ONE, Failed(part(0), "no right to write", False))).wait(5)
    run.report(0, PartitionState.OFFLINE, "waits")
    assert run.seen() == {0: (PartitionState.ERROR, "no right to write")}
    retry_of(run, committed=7, lag=0)
    assert run.seen() == {0: (PartitionState.ONLINE, "")}


def test_a_temporary_failure_ends_with_the_first_response() -> None:
    run = Run().online(0).do(events.FromCopier(ONE, Failed(part(0), "x", True))).wait(1)
    retry_of(run, committed=7, lag=3)
    assert run.seen() == {0: (PartitionState.ONLINE, "")}


def test_an_error_the_copier_keeps_is_not_ours_to_retry() -> None:
    run = Run().online(0).report(0, PartitionState.ERROR, "source: unreachable")
    assert run.seen() == {0: (PartitionState.ERROR, "source: unreachable")}
    run.take()
    assert run.wait(10).decisions() == []
    run.report(0, PartitionState.ONLINE)
    assert run.seen() == {0: (PartitionState.ONLINE, "")}
    run.report(0, PartitionState.ERROR, "again").assign()
    assert run.phases() == {0: PartitionPhase.STOPPING}


def test_a_copiers_end_is_an_error_until_its_next_run_on_the_same_slot() -> None:
    run = Run().online(0, 1, 2).do(events.CopierEnded(ONE, "killed"))
    assert run.seen()[0] == (PartitionState.ERROR, "copier ended: killed")
    assert run.seen()[1] == (PartitionState.ONLINE, "")
    assert run.decisions() == [instructions.StartCopier(CopierId(0, 2), (part(0), part(2)))]
    run.do(events.CopierConnected(CopierId(0, 2)))
    assert run.decisions() == [
        instructions.ToCopier(CopierId(0, 2), Add({part(0): OwnerEpoch(1), part(2): OwnerEpoch(1)}))
    ]


def test_repeated_ends_back_off_until_a_steady_run() -> None:
    run = Run().online(0)
    starts: list[float] = []
    for number in range(1, 6):
        ended_s = run.state.now_s
        run.do(events.CopierEnded(CopierId(0, number), "killed"))
        while not any(isinstance(one, instructions.StartCopier) for one in run.take()):
            run.wait(0.1)
        starts.append(round(run.state.now_s - ended_s, 1))
        run.do(events.CopierConnected(CopierId(0, number + 1)))
        run.take()
    assert starts == pytest.approx([0.0, 0.5, 1.0, 2.0, 2.0], abs=0.15)
    run.wait(10).do(events.CopierEnded(CopierId(0, 6), "killed"))
    assert instructions.StartCopier(CopierId(0, 7), (part(0),)) in run.take()


def test_the_end_of_the_process_releases_stopping_and_requires_the_same_slot_later() -> None:
    run = Run().online(0, 1, 2).assign(1)
    run.do(events.CopierEnded(ONE, "killed"))
    assert set(run.seen()) == {1}
    run.assign(1, 2, 3, 4, 5, 0)
    assert run.state.held[part(0)].slot == 0
    assert run.state.held[part(0)].unclean


def test_the_end_of_a_lifeline_is_not_the_end_of_the_process() -> None:
    run = Run().online(0).do(events.CopierClosed(ONE))
    assert run.seen()[0][0] is PartitionState.ERROR
    run.assign()
    assert run.phases() == {0: PartitionPhase.STOPPING}
    run.do(events.CopierEnded(ONE, "killed"))
    assert run.phases() == {}


def test_a_copier_that_does_not_end_is_killed_until_it_has() -> None:
    run = Run().online(0).do(events.CopierClosed(ONE))
    run.take()
    kill = instructions.KillCopier(ONE, "not ended after 60 s")
    for _ in range(2):
        assert kill not in run.wait(END_TIMEOUT_S - 1).take()
        assert kill in run.wait(1).take()
    run.do(events.CopierEnded(ONE, "killed"))
    assert instructions.StartCopier(CopierId(0, 2), (part(0),)) in run.take()


@pytest.mark.parametrize(
    "event",
    [
        events.FromCopier(ONE, Released((part(0),))),
        events.FromCopier(ONE, Failed(part(0), "late", True)),
        events.FromCopier(ONE, CopierReport({part(0): PartitionReport(PartitionState.ERROR)})),
        events.CopierEnded(ONE, "late"),
        events.CopierLost(ONE, "late"),
        events.CopierClosed(ONE),
        events.CopierConnected(ONE),
    ],
)
def test_a_message_of_a_former_run_has_no_effect(event: events.Event) -> None:
    run = Run().online(0).do(events.CopierEnded(ONE, "x"), events.CopierConnected(CopierId(0, 2)))
    run.report(0, PartitionState.ONLINE)
    run.take()
    before = run.state
    run.do(event)
    assert run.take() == []
    assert run.state.held == before.held


def test_missing_spark_capacity_is_an_error_until_the_copier_connects() -> None:
    run = Run(slots=1, running=False).do(events.Tick(0), events.SessionRestored(SessionId(1)))
    run.assign(0).do(events.Fenced(ROUTE)).wait(START_TIMEOUT_S)
    assert run.seen()[0][1].startswith("no Spark capacity")
    run.take()
    run.do(events.CopierConnected(ONE))
    assert run.decisions() == [instructions.ToCopier(ONE, Add({part(0): OwnerEpoch(1)}))]


def test_a_silent_copier_is_killed_but_not_one_without_partitions() -> None:
    run = Run().online(0).wait(SILENCE_S + 1)
    assert run.decisions() == [instructions.KillCopier(ONE, "copier silent for 61 s")]
    assert run.seen()[0] == (PartitionState.ERROR, "copier silent for 61 s")


def test_a_copier_that_was_idle_for_long_is_not_silent_when_it_gets_work() -> None:
    run = Run().wait(SILENCE_S * 10).assign(0).do(events.Fenced(ROUTE)).wait(1)
    assert not any(isinstance(one, instructions.KillCopier) for one in run.take())


@pytest.mark.parametrize("event", [events.SessionSuspended(), events.SessionLost()])
def test_without_a_session_copying_goes_on_and_nothing_is_published(event: events.Event) -> None:
    run = Run().online(0, 1).do(event)
    run.report(0, PartitionState.ERROR, "x").wait(100)
    assert not [one for one in run.take() if not isinstance(one, instructions.KillCopier)]
    assert run.phases()[1] is not PartitionPhase.STOPPING
    run.do(events.SessionRestored(SessionId(2)))
    assert run.take()[:2] == [instructions.Register(SessionId(2)), instructions.ReadAssignment()]
    assert run.seen()[0][0] is PartitionState.ERROR


def test_the_assignment_is_read_again_now_and_then_while_there_is_a_session() -> None:
    run = Run().online(0).wait(READ_EVERY_S - 1)
    assert instructions.ReadAssignment() not in run.take()
    assert instructions.ReadAssignment() in run.wait(1).take()
    assert instructions.ReadAssignment() not in run.wait(1).take()
    assert (
        instructions.ReadAssignment()
        not in run.do(events.SessionSuspended()).wait(READ_EVERY_S).take()
    )


def test_an_older_assignment_is_ignored_and_a_missing_one_is_not() -> None:
    run = Run().online(0)
    run.do(events.AssignmentChanged({}, run.zxid - 1))
    assert run.phases() == {0: PartitionPhase.ONLINE}
    run.do(events.AssignmentChanged({}, -1))
    assert run.phases() == {0: PartitionPhase.STOPPING}
    assert run.state.assignment.zxid == run.zxid


def test_drain_stops_copiers_waits_for_their_ends_and_publishes_before_it_exits() -> None:
    run = Run().online(0, 1).do(events.DrainRequested(30.0))
    assert run.decisions() == [
        instructions.ToCopier(ONE, Stop()),
        instructions.ToCopier(CopierId(1, 1), Stop()),
    ]
    assert set(run.phases().values()) == {PartitionPhase.STOPPING}
    for slot in (0, 1):
        copier = CopierId(slot, 1)
        run.do(events.FromCopier(copier, Released((part(slot),))), events.CopierClosed(copier))
    assert run.phases() == {}
    assert not any(isinstance(one, instructions.Exit) for one in run.take())
    run.do(events.CopierEnded(ONE, "it returned"), events.CopierEnded(CopierId(1, 1), "x"))
    assert run.take()[-1] == instructions.Exit(0, "drained")
    assert run.seen() == {}


def test_drain_is_bounded() -> None:
    run = Run(slots=1).online(0).do(events.DrainRequested(30.0))
    run.take()
    assert run.wait(30).decisions() == [instructions.KillCopier(ONE, "not drained in time")]
    assert run.wait(1).decisions() == []
    assert run.wait(5).decisions() == [instructions.Exit(1, "copiers did not end")]


def test_a_drain_is_late_only_if_partitions_were_held_at_its_end() -> None:
    for held, exit in (((0,), (1, "not drained in time")), ((), (0, "drained"))):
        run = Run(slots=1, running=False).do(events.Tick(0)) if not held else Run(slots=1).online(0)
        run.do(events.DrainRequested(30.0)).wait(31)
        run.do(events.FromCopier(ONE, Released(tuple(map(part, held)))))
        run.do(events.CopierEnded(ONE, "killed"))
        assert run.take()[-1] == instructions.Exit(*exit)


def test_a_second_drain_shortens_the_first() -> None:
    run = Run(slots=1).online(0).do(events.DrainRequested(30.0))
    run.take()
    run.do(events.DrainRequested(0.0))
    assert run.decisions() == [instructions.KillCopier(ONE, "not drained in time")]


def test_nothing_starts_while_draining() -> None:
    run = Run(slots=1, running=False).do(events.Tick(0), events.DrainRequested(30.0))
    assert instructions.KillCopier(ONE, "the worker stops") in run.take()
    run.assign(0).do(events.CopierEnded(ONE, "killed"))
    assert run.take()[-1] == instructions.Exit(0, "drained")


def leave(run: Run) -> Run:
    return run.do(events.LeaveRequested(timeout_s=20.0, drain_s=30.0))


def test_a_worker_that_leaves_goes_on_until_its_assignment_is_empty() -> None:
    run = leave(Run(slots=1).online(0))
    assert run.decisions() == [instructions.AnnounceLeaving()]
    assert run.wait(5).decisions() == []
    assert run.phases() == {0: PartitionPhase.ONLINE}
    run.assign().take()
    run.do(events.FromCopier(ONE, Released((part(0),))))
    assert run.wait(1).decisions() == [instructions.ToCopier(ONE, Stop())]
    run.do(events.CopierClosed(ONE), events.CopierEnded(ONE, "it returned"))
    assert run.take()[-1] == instructions.Exit(0, "drained")


def test_a_worker_that_leaves_drains_when_nobody_takes_its_partitions() -> None:
    run = leave(Run(slots=1).online(0))
    run.take()
    assert run.wait(19).decisions() == []
    assert run.wait(1).decisions() == [instructions.ToCopier(ONE, Stop())]


def test_a_worker_that_leaves_waits_for_what_was_assigned_just_before() -> None:
    run = leave(Run(slots=1))
    run.take()
    assert run.wait(1).decisions() == []
    assert run.wait(1).decisions() == [instructions.ToCopier(ONE, Stop())]


def test_a_stop_ends_leaving_and_leaving_twice_is_leaving_once() -> None:
    run = leave(leave(Run(slots=1).online(0)))
    assert run.decisions() == [instructions.AnnounceLeaving()]
    run.do(events.DrainRequested(0.0))
    assert run.decisions() == [instructions.ToCopier(ONE, Stop())]
    assert leave(Run(slots=1).do(events.DrainRequested(30.0))).state.leave is None


def test_a_pair_outside_the_table_raises_with_the_story() -> None:
    held = move(
        part(0), HeldPartition(0, OwnerEpoch(1)), PartitionPhase.STARTING, "starting", now_s=1.0
    )
    with pytest.raises(InvalidTransition, match=r"OFFLINE -> STARTING: starting"):
        move(part(0), held, PartitionPhase.STARTING, "again", now_s=2.0)


def test_invariants_are_checked() -> None:
    state = Run().online(0).state
    held = {part(0): replace(state.held[part(0)], sent=False)}
    with pytest.raises(InvalidTransition, match="ONLINE without a copier"):
        check_invariants(replace(state, held=held), held)


@pytest.mark.parametrize(
    ("counts", "last", "slot"),
    [
        ({0: 0, 1: 0}, None, 0),
        ({0: 1, 1: 0}, None, 1),
        ({0: 1, 1: 1}, LastSlot(1, required=False), 1),
        ({0: 1, 1: 2}, LastSlot(1, required=False), 0),
        ({0: 1, 1: 9}, LastSlot(1, required=True), 1),
        ({0: 1}, LastSlot(7, required=True), 0),
    ],
)
def test_choice_of_a_slot(counts: dict[int, int], last: LastSlot | None, slot: int) -> None:
    assert choose_slot(counts, last) == slot


def test_counts_stay_even_over_many_assignments() -> None:
    run = Run(slots=3).assign(*range(10))
    slots = [held.slot for held in run.state.held.values()]
    assert sorted(slots.count(number) for number in range(3)) == [3, 3, 4]


def test_a_step_costs_as_much_as_it_changes() -> None:
    """Function calls, since they are the same in every run."""
    few, many = (_calls_of_a_quiet_second(held) for held in (10, 500))
    assert many == few


def _calls_of_a_quiet_second(held: int) -> int:
    run = Run(slots=2).online(*range(held))
    calls = 0

    def count(frame: object, kind: str, argument: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        for _ in range(10):
            run.wait(0.1)
            run.report(0, PartitionState.ONLINE, "another reason")
    finally:
        sys.setprofile(None)
    return calls


def test_a_copier_id_names_slot_and_run() -> None:
    assert str(Slot(3).started(0.0).copier) == "3#1"
