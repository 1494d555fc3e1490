"""Slots without a copier, and a worker without any: Spark has no room, or they do not connect."""

from __future__ import annotations

from ureplicator_common.model import PartitionState, SessionId
from ureplicator_testkit.control.worker_run import ROUTE, Run, part
from ureplicator_worker.core import events, instructions
from ureplicator_worker.core.capacity import MISSING_TIMEOUT_S, START_TIMEOUT_S
from ureplicator_worker.lifeline.messages import Add, CopierId

CAPACITY_TIMEOUT_S = 30.0
LACKS = "Spark master 10.0.0.1:7077 is away since 2026-01-31T12:00:00Z: Connection refused"


def lose_copiers(run: Run) -> Run:
    """Every copier ends, as with the executors of a worker."""
    return run.do(*(events.CopierEnded(slot.copier, "executor lost") for slot in run.state.slots))


def announced(run: Run) -> list[str]:
    """Texts about capacity that the live node got, in order."""
    taken = run.take()
    return [one.no_capacity for one in taken if isinstance(one, instructions.AnnounceCapacity)]


def test_a_lost_copier_that_spark_has_no_room_for_says_what_is_missing() -> None:
    run = lose_copiers(Run().online(0, 1)).do(events.CapacityChanged(LACKS)).wait(1)
    assert run.seen()[0] == (PartitionState.ERROR, "copier ended: executor lost")
    run.wait(MISSING_TIMEOUT_S - 1)
    assert run.seen()[0] == (PartitionState.ERROR, f"no Spark capacity: {LACKS}")
    run.take()
    run.wait(1)
    assert run.take() == [], "the text stays, so it is published once"


def test_a_worker_without_copiers_announces_it_after_the_time_limit_and_takes_it_back() -> None:
    run = lose_copiers(Run().online(0, 1)).do(events.CapacityChanged(LACKS))
    assert announced(run.wait(CAPACITY_TIMEOUT_S - 1)) == []
    assert announced(run.wait(1)) == [LACKS]
    assert announced(run.wait(1)) == []
    run.do(events.CapacityChanged("no free cores"))
    assert announced(run.wait(1)) == ["no free cores"], "another cause"
    assert announced(run.do(events.CopierConnected(run.state.slots[1].copier))) == [""]
    assert announced(run.wait(CAPACITY_TIMEOUT_S * 2)) == []


def test_a_worker_whose_copiers_do_not_start_announces_it_whatever_the_cause() -> None:
    run = Run(running=False).do(events.Tick(0), events.SessionRestored(SessionId(1)))
    assert announced(run.wait(CAPACITY_TIMEOUT_S)) == ["no copier has run for 30 s"]


def test_one_copier_that_runs_is_capacity() -> None:
    run = lose_one().do(events.CapacityChanged(LACKS))
    assert announced(run.wait(CAPACITY_TIMEOUT_S - 1)) == []
    assert run.seen()[0] == (PartitionState.ERROR, f"no Spark capacity: {LACKS}")
    assert run.seen()[1][0] is PartitionState.ONLINE
    assert announced(run.wait(CAPACITY_TIMEOUT_S)) == []


def lose_one(*, visible: bool = True) -> Run:
    """Two slots with a partition each; the executor of slot 0 is lost."""
    run = Run(slots=2).online(0, 1)
    assert [run.state.held[part(number)].slot for number in (0, 1)] == [0, 1]
    end = events.CopierEnded if visible else events.CopierLost
    return run.do(end(CopierId(0, 1), "executor lost"))


def added(run: Run) -> list[tuple[CopierId, list[int]]]:
    """Partitions that copiers were sent since the last time."""
    return [
        (one.copier, [partition.number for partition in one.order.partitions])
        for one in run.take()
        if isinstance(one, instructions.ToCopier) and isinstance(one.order, Add)
    ]


def test_partitions_of_a_slot_without_a_core_move_to_the_others_once_it_is_fenced() -> None:
    run = lose_one().wait(CAPACITY_TIMEOUT_S - 1)
    run.take()
    run.wait(1).wait(1)
    assert run.decisions() == [instructions.Fence(ROUTE, 0)]
    assert run.state.held[part(0)].slot == 0
    run.do(events.Fenced(ROUTE, 0))
    assert added(run) == [(CopierId(1, 1), [0])]
    run.report(0, PartitionState.ONLINE)
    assert {state for state, _ in run.seen().values()} == {PartitionState.ONLINE}


def test_partitions_of_a_copier_that_was_fenced_at_its_loss_move_without_another_fence() -> None:
    run = lose_one(visible=False).do(events.Fenced(ROUTE, 0)).wait(CAPACITY_TIMEOUT_S - 1)
    run.take()
    assert added(run.wait(1)) == [(CopierId(1, 1), [0])]


def test_a_slot_that_gets_its_core_while_it_is_fenced_keeps_its_partitions() -> None:
    run = lose_one().wait(CAPACITY_TIMEOUT_S).wait(1)
    run.do(events.CopierConnected(CopierId(0, 2)))
    run.take()
    assert added(run.wait(1)) == []
    assert added(run.do(events.Fenced(ROUTE, 0))) == [(CopierId(0, 2), [0])]


def test_partitions_stay_where_no_other_slot_has_a_copier_or_the_worker_drains() -> None:
    run = lose_copiers(Run(slots=2).online(0, 1)).wait(CAPACITY_TIMEOUT_S * 2)
    assert not any(isinstance(one, instructions.Fence) for one in run.take())
    run = lose_one().do(events.DrainRequested(120.0)).wait(CAPACITY_TIMEOUT_S * 2)
    assert not any(isinstance(one, instructions.Fence) for one in run.take())


def test_a_partition_that_must_go_back_to_a_slot_without_a_core_moves_on_too() -> None:
    run = lose_one().assign(1).wait(CAPACITY_TIMEOUT_S).assign(0, 1).wait(1)
    assert run.state.held[part(0)].slot == 0
    run.do(events.Fenced(ROUTE, 0))
    assert run.state.held[part(0)].slot == 1


def test_a_copier_with_a_core_that_does_not_connect_is_no_lack_of_capacity() -> None:
    run = lose_one().do(events.CopierPlaced(CopierId(0, 2), "7"), events.CapacityChanged(LACKS))
    run.wait(MISSING_TIMEOUT_S)
    assert run.seen()[0] == (PartitionState.ERROR, "copier ended: executor lost")
    run.wait(START_TIMEOUT_S)
    reason = "slot 0 has no copier: its executor 7 has a core for it, and it has not connected after 15 s"
    assert run.seen()[0] == (PartitionState.ERROR, reason)
    run.do(events.CopierConnected(CopierId(0, 2)), events.CopierEnded(CopierId(0, 2), "x"))
    run.do(events.CopierPlaced(CopierId(0, 2), "7")).wait(1).wait(MISSING_TIMEOUT_S)
    assert run.seen()[0][1] == f"no Spark capacity: {LACKS}", (
        "the executor was that of a former run"
    )


def test_a_worker_whose_copiers_do_not_connect_announces_that() -> None:
    run = lose_copiers(Run().online(0)).do(events.CopierPlaced(CopierId(1, 2), "7"))
    expected = "copiers on executors 7 do not connect to the worker"
    assert announced(run.wait(CAPACITY_TIMEOUT_S)) == [expected]


def test_a_draining_copier_still_counts_as_capacity() -> None:
    run = Run(slots=1).online(0)
    run.do(events.CopierClosed(run.state.slots[0].copier))
    assert announced(run.wait(CAPACITY_TIMEOUT_S + 1)) == []


def test_new_partitions_avoid_slots_that_have_no_copier() -> None:
    run = Run(slots=2).do(events.Fenced(ROUTE))
    run.do(events.CopierEnded(run.state.slots[0].copier, "executor lost"))
    run.wait(1).wait(START_TIMEOUT_S).assign(0, 1)
    assert [run.state.held[part(number)].slot for number in (0, 1)] == [1, 1]


def test_the_first_copier_that_runs_gets_the_partitions_of_slots_without_a_core_at_once() -> None:
    run = Run(slots=2, running=False).do(events.Tick(0), events.SessionRestored(SessionId(1)))
    run.do(events.Fenced(ROUTE)).assign(0, 1).wait(CAPACITY_TIMEOUT_S)
    run.take()
    assert added(run.do(events.CopierConnected(CopierId(0, 1)))) == [(CopierId(0, 1), [0, 1])]
