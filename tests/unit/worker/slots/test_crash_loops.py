"""Copiers that end again and again before they connect: delay, reason, and what becomes of the partitions."""

from __future__ import annotations

from itertools import pairwise

from ureplicator_common.model import PartitionState
from ureplicator_testkit.control.worker_run import ROUTE, Run, part
from ureplicator_worker.core import events, instructions
from ureplicator_worker.core.slots import CRASH_DELAYS_S, SlotPhase
from ureplicator_worker.lifeline.messages import CopierId, StopRequest

CAPACITY_TIMEOUT_S = 30.0
CRASH_AFTER_S = 1.0
WHY = "slot 0 has no copier: each one ends before it connects, the last one: no module named x"


def crash(run: Run, for_s: float, *slots: int) -> list[tuple[float, CopierId]]:
    """Each copier of these slots ends a while after its start; the starts, with their times."""
    starts: list[tuple[float, CopierId]] = []
    until_s = run.state.now_s + for_s
    while run.state.now_s < until_s:
        run.wait(0.1)
        for slot in run.state.slots:
            if slot.number not in slots or slot.phase is not SlotPhase.STARTING:
                continue
            if (slot.since_s, slot.copier) not in starts:
                starts.append((slot.since_s, slot.copier))
            if run.state.now_s - slot.since_s >= CRASH_AFTER_S:
                run.do(events.CopierEnded(slot.copier, "no module named x"))
    return starts


def lose_one() -> Run:
    """Two slots with a partition each; the copier of slot 0 has ended."""
    run = Run(slots=2).online(0, 1)
    return run.do(events.CopierEnded(CopierId(0, 1), "killed"))


def test_the_delay_between_copiers_that_do_not_connect_grows() -> None:
    starts = crash(lose_one(), 120, 0)
    delays = [after - before - CRASH_AFTER_S for (before, _), (after, _) in pairwise(starts)]
    expected = [*CRASH_DELAYS_S[1:], CRASH_DELAYS_S[-1]]
    assert all(abs(delay - wanted) < 0.3 for delay, wanted in zip(delays, expected, strict=False))
    assert len(delays) > len(CRASH_DELAYS_S)


def test_a_crash_loop_is_the_reason_also_between_two_starts() -> None:
    run = lose_one()
    crash(run, CRASH_AFTER_S + 0.2, 0)
    assert run.seen()[0] == (PartitionState.ERROR, "copier ended: killed"), "one may be bad luck"
    crash(run, 10, 0)
    assert run.seen()[0] == (PartitionState.ERROR, WHY)
    run.take()
    crash(run, 10, 0)
    written = [one for one in run.take() if isinstance(one, instructions.Publish)]
    assert written == [], "the reason stays the same"


def test_partitions_of_a_slot_whose_copiers_crash_move_to_slots_that_run() -> None:
    run = lose_one()
    crash(run, CAPACITY_TIMEOUT_S - 1, 0)
    assert run.state.held[part(0)].slot == 0
    crash(run, 2, 0)
    assert instructions.Fence(ROUTE, 0) in run.decisions()
    run.do(events.Fenced(ROUTE, 0))
    assert run.state.held[part(0)].slot == 1


def test_new_partitions_avoid_slots_whose_copiers_crash() -> None:
    run = Run(slots=2).do(events.Fenced(ROUTE))
    run.do(events.CopierEnded(run.state.slots[0].copier, "killed"))
    crash(run, 20, 0)
    run.assign(0, 1)
    assert [run.state.held[part(number)].slot for number in (0, 1)] == [1, 1]


def test_a_worker_whose_copiers_all_crash_gives_its_share_back_and_says_why() -> None:
    run = lose_one().do(events.CopierEnded(CopierId(1, 1), "killed"))
    crash(run, CAPACITY_TIMEOUT_S - 1, 0, 1)
    run.take()
    crash(run, 2, 0, 1)
    taken = run.take()
    announced = [one for one in taken if isinstance(one, instructions.AnnounceCapacity)]
    assert announced == [instructions.AnnounceCapacity(WHY)]


def test_a_copier_that_connects_ends_the_crash_loop() -> None:
    run = lose_one()
    crash(run, 12, 0)
    run.wait(3).do(events.CopierConnected(run.state.slots[0].copier)).wait(11)
    assert run.seen()[0][0] is not PartitionState.ERROR
    run.do(events.CopierEnded(run.state.slots[0].copier, "killed"))
    assert run.state.slots[0].phase is SlotPhase.STARTING, "started again at once"
    crash(run, CRASH_AFTER_S + 0.2, 0)
    assert run.seen()[0] == (PartitionState.ERROR, "copier ended: killed")


def test_a_copier_that_is_ended_on_purpose_before_it_connects_is_no_crash() -> None:
    run = lose_one()
    for _ in range(5):
        copier = run.state.slots[0].copier
        run.do(events.FromCopier(copier, StopRequest("its executor is decommissioned")))
        run.do(events.CopierEnded(copier, "killed")).wait(16)
        assert run.state.slots[0].crashes == 0
