"""Copiers whose end cannot be seen are fenced before a release; those whose host is to end are stopped."""

from __future__ import annotations

from ureplicator_common.model import OwnerEpoch, Partition, PartitionState, Route
from ureplicator_common.znode_contents import AssignmentEntry
from ureplicator_testkit.control.worker_run import ROUTE, Run, entries, part
from ureplicator_worker.core import events, instructions
from ureplicator_worker.core.copiers import END_TIMEOUT_S
from ureplicator_worker.lifeline.messages import Add, CopierId, Released, Stop, StopRequest


def test_a_removed_partition_of_a_lost_copier_is_released_once_it_is_fenced() -> None:
    """The end of a job on another host is not the end of the process, which may still commit."""
    run = Run().online(0, 1).assign(1)
    run.take()
    run.do(events.CopierLost(CopierId(0, 1), "executor lost"))
    assert instructions.Fence(ROUTE, 0) in run.decisions()
    assert run.seen()[0] == (PartitionState.ERROR, "copier ended: executor lost")
    run.wait(30)
    assert 0 in run.seen()
    run.do(events.Fenced(ROUTE, 0))
    assert set(run.seen()) == {1}


def test_a_lost_copier_s_slot_starts_at_once_and_is_sent_its_partitions_once_fenced() -> None:
    run = Run().online(0, 1).do(events.CopierLost(CopierId(0, 1), "executor lost"))
    assert run.decisions() == [
        instructions.StartCopier(CopierId(0, 2), (part(0),)),
        instructions.Fence(ROUTE, 0),
    ]
    run.do(events.CopierConnected(CopierId(0, 2))).wait(1)
    assert run.decisions() == []
    run.do(events.Fenced(ROUTE, 0))
    assert run.decisions() == [instructions.ToCopier(CopierId(0, 2), Add({part(0): OwnerEpoch(1)}))]


def test_a_partition_removed_after_the_loss_waits_for_the_fence_too() -> None:
    run = Run().online(0).do(events.CopierLost(CopierId(0, 1), "x")).assign()
    assert set(run.seen()) == {0}
    run.do(events.CopierEnded(CopierId(0, 2), "x")).wait(5)
    assert set(run.seen()) == {0}, "the end of the next run says nothing of the lost one"
    run.do(events.Fenced(ROUTE, 0))
    assert run.seen() == {}


def test_a_fence_of_a_lost_copier_that_fails_is_the_reason_and_tried_again() -> None:
    run = Run().online(0).assign().do(events.CopierLost(CopierId(0, 1), "x"))
    run.take()
    run.do(events.FenceFailed(ROUTE, "target unreachable: y", 0)).wait(0.1)
    waits = "waits for the fence of a lost copier: target unreachable: y"
    assert run.seen()[0] == (PartitionState.ERROR, waits)
    run.take()
    assert run.wait(0.8).decisions() == []
    assert run.wait(0.2).decisions() == [instructions.Fence(ROUTE, 0)]
    run.do(events.Fenced(ROUTE, 0))
    assert run.seen() == {}


def test_a_fence_of_one_slot_says_nothing_of_another_one() -> None:
    run = Run().online(0, 1)
    run.do(events.CopierLost(CopierId(0, 1), "x"), events.CopierLost(CopierId(1, 1), "x"))
    run.do(events.FenceFailed(ROUTE, "target unreachable: y", 0)).wait(0.1)
    assert run.seen()[1] == (PartitionState.ERROR, "copier ended: x")
    run.do(events.Fenced(ROUTE, 0))
    unclean = {partition.number: held.unclean for partition, held in run.state.held.items()}
    assert unclean == {0: False, 1: True}


def test_other_routes_of_a_lost_copier_s_slot_do_not_wait() -> None:
    other = Partition(Route("a", "c"), "t", 0)
    both = {**entries(0), other: AssignmentEntry(OwnerEpoch(1))}
    run = Run(slots=1).do(events.Fenced(ROUTE), events.Fenced(other.route))
    run.do(events.AssignmentChanged(entries(0), 20), events.CopierLost(CopierId(0, 1), "x"))
    run.do(events.AssignmentChanged(both, 21), events.CopierConnected(CopierId(0, 2)))
    added = [one for one in run.take() if isinstance(one, instructions.ToCopier)]
    assert added[-1] == instructions.ToCopier(CopierId(0, 2), Add({other: OwnerEpoch(1)}))


def test_a_lost_copier_without_partitions_is_not_fenced() -> None:
    run = Run().do(events.CopierLost(CopierId(0, 1), "x"))
    assert run.decisions() == [instructions.StartCopier(CopierId(0, 2), ())]


def test_a_draining_worker_exits_once_its_lost_copier_is_fenced() -> None:
    run = Run(slots=1).online(0).do(events.DrainRequested(10.0))
    run.do(events.CopierLost(CopierId(0, 1), "x")).wait(1)
    assert not run.state.exited
    assert instructions.Fence(ROUTE, 0) in run.decisions()
    run.do(events.Fenced(ROUTE, 0))
    assert run.decisions() == [instructions.Exit(0, "drained")]


def test_a_copier_whose_process_is_to_end_is_stopped_and_its_partitions_start_elsewhere() -> None:
    run = Run().online(0, 1, 2)
    run.do(events.FromCopier(CopierId(0, 1), StopRequest("its executor is decommissioned")))
    assert run.decisions() == [instructions.ToCopier(CopierId(0, 1), Stop())]
    stopping = (PartitionState.OFFLINE, "stopping: its executor is decommissioned")
    assert (run.seen()[0], run.seen()[1]) == (stopping, (PartitionState.ONLINE, ""))
    run.do(events.FromCopier(CopierId(0, 1), Released((part(0), part(2)))))
    run.do(events.CopierClosed(CopierId(0, 1)), events.CopierEnded(CopierId(0, 1), "it returned"))
    (started,) = [one for one in run.take() if isinstance(one, instructions.StartCopier)]
    assert started.copier == CopierId(0, 2)
    run.do(events.CopierConnected(CopierId(0, 2)))
    assert {held.sent for held in run.state.held.values()} == {True}
    assert run.phases().keys() == {0, 1, 2}


def test_a_copier_that_does_not_drain_when_its_process_is_to_end_is_killed() -> None:
    run = Run().online(0).do(events.FromCopier(CopierId(0, 1), StopRequest("x")))
    run.take()
    run.wait(END_TIMEOUT_S)
    assert run.decisions() == [instructions.KillCopier(CopierId(0, 1), "not ended after 60 s")]


def test_a_second_request_to_stop_has_no_effect() -> None:
    run = Run().online(0).do(events.FromCopier(CopierId(0, 1), StopRequest("x")))
    run.take()
    run.do(events.FromCopier(CopierId(0, 1), StopRequest("y")))
    run.do(events.FromCopier(CopierId(0, 7), StopRequest("of another run")))
    assert run.decisions() == []


def test_a_copier_that_is_to_end_before_it_has_connected_is_killed_and_starts_elsewhere() -> None:
    """Its executor is decommissioned in the moment between its start and its Hello."""
    run = Run(slots=1, running=False).do(events.Tick(0.0))
    run.take()
    run.do(events.FromCopier(CopierId(0, 1), StopRequest("its executor is decommissioned")))
    reason = "its executor is decommissioned"
    assert run.decisions() == [instructions.KillCopier(CopierId(0, 1), reason)]
    run.do(events.CopierConnected(CopierId(0, 1)), events.CopierEnded(CopierId(0, 1), reason))
    assert run.decisions() == [instructions.StartCopier(CopierId(0, 2), ())]
