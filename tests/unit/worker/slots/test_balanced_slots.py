"""Partitions of one worker, balanced over its slots again: few at a time, after a while, none needlessly."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from ureplicator_common.model import PartitionState
from ureplicator_testkit.control.worker_run import ROUTE, Run, entries, part
from ureplicator_worker.core import events, instructions
from ureplicator_worker.core.copiers import BALANCE_EVERY_S
from ureplicator_worker.core.partition_phases import PartitionPhase
from ureplicator_worker.core.slots import STEADY_S, surplus
from ureplicator_worker.lifeline.messages import CopierId, CopierReport, Released, Remove

LONG_S = 40 * BALANCE_EVERY_S


@pytest.mark.parametrize(
    ("counts", "limit", "expected"),
    [
        ({0: 2, 1: 2}, 9, {}),
        ({0: 3, 1: 2}, 9, {}),
        ({0: 4, 1: 2}, 9, {0: 1}),
        ({0: 6, 1: 0}, 9, {0: 3}),
        ({0: 6, 1: 0}, 2, {0: 2}),
        ({0: 5, 1: 5, 2: 0}, 9, {0: 2, 1: 1}),
        ({0: 1, 1: 0}, 9, {}),
        ({0: 9}, 9, {}),
        ({}, 9, {}),
    ],
)
def test_as_many_partitions_leave_as_even_the_slots(
    counts: dict[int, int], limit: int, expected: dict[int, int]
) -> None:
    assert surplus(counts, limit) == expected


def counts(run: Run) -> dict[int, int]:
    return dict(sorted(Counter(held.slot for held in run.state.held.values()).items()))


def go_on(run: Run, for_s: float) -> Run:
    """Time passes, and the copiers that run do what they are sent."""
    until_s = run.state.now_s + for_s
    while run.state.now_s < until_s:
        run.wait(1)
        for slot in run.state.slots:
            run.do(events.FromCopier(slot.copier, CopierReport({})))
        obey(run)
    return run


def obey(run: Run) -> None:
    while waiting := [
        p for p, held in run.state.held.items() if awaits_its_copier(run, held.phase)
    ]:
        for partition in waiting:
            held = run.state.held[partition]
            copier = run.state.slots[held.slot].copier
            if held.phase is PartitionPhase.STOPPING:
                run.do(events.FromCopier(copier, Released((partition,))))
            elif held.sent:
                run.report(partition.number, PartitionState.ONLINE)
            else:
                return


def awaits_its_copier(run: Run, phase: PartitionPhase) -> bool:
    return phase in (PartitionPhase.STOPPING, PartitionPhase.STARTING)


def removals(run: Run) -> list[int]:
    """Numbers of partitions that removals named, since the last time."""
    orders = (one.order for one in run.take() if isinstance(one, instructions.ToCopier))
    return [len(order.partitions) for order in orders if isinstance(order, Remove)]


def all_in_slot_1(partitions: int) -> Run:
    """The copier of slot 0 had no core for long, and has one again."""
    run = Run(slots=2).online(*range(partitions))
    run.do(events.CopierEnded(CopierId(0, 1), "executor lost")).wait(30).wait(1)
    run.do(events.Fenced(ROUTE, 0))
    obey(run)
    assert counts(run) == {1: partitions}
    run.take()
    return run.do(events.CopierConnected(CopierId(0, 2)))


def test_partitions_come_back_to_a_slot_that_runs_again() -> None:
    run = all_in_slot_1(4)
    assert removals(go_on(run, STEADY_S + BALANCE_EVERY_S - 1)) == [], "it may end again soon"
    assert removals(go_on(run, LONG_S)) == [2]
    assert counts(run) == {0: 2, 1: 2}
    assert {state for state, _ in run.seen().values()} == {PartitionState.ONLINE}


def test_many_partitions_come_back_a_few_at_a_time() -> None:
    run = all_in_slot_1(40)
    removed_s: list[float] = []
    while counts(run) != {0: 20, 1: 20}:
        moved = removals(go_on(run, 1))
        assert all(count <= 4 for count in moved)
        removed_s += [run.state.now_s] * len(moved)
    assert len(removed_s) == 5
    gaps = [after - before for before, after in pairwise(removed_s)]
    assert min(gaps) >= BALANCE_EVERY_S
    assert removals(go_on(run, LONG_S)) == []


def test_the_moved_partition_is_published_as_held_all_the_time() -> None:
    run = go_on(all_in_slot_1(2), STEADY_S)
    while not removals(run):
        run.wait(1)
    (moved,) = [n for n, phase in run.phases().items() if phase is PartitionPhase.STOPPING]
    expected = (PartitionState.OFFLINE, "stopping: it moves to a slot with fewer partitions")
    assert run.seen()[moved] == expected
    run.do(events.FromCopier(CopierId(1, 1), Released((part(moved),))))
    published = [one for one in run.take() if isinstance(one, instructions.Publish)]
    assert all(part(moved) in one.current.entries for one in published)
    assert run.state.held[part(moved)].slot == 0


def uneven(*, slots: int = 2) -> Run:
    """Four partitions in the first slot, none in the others, which run: the leader took theirs away."""
    numbers = range(4 * slots)
    run = go_on(Run(slots=slots).online(*numbers), STEADY_S)
    kept = [n for n in numbers if run.state.held[part(n)].slot == 0]
    run.assign(*kept)
    obey(run)
    run.take()
    return run


def test_an_uneven_moment_moves_nothing() -> None:
    run = go_on(uneven(), BALANCE_EVERY_S + 1)
    assert removals(run) == []
    run.assign(*range(8))
    assert removals(go_on(run, LONG_S)) == []


def test_slots_that_stay_uneven_are_balanced() -> None:
    run = uneven()
    assert removals(go_on(run, LONG_S)) == [2]
    assert counts(run) == {0: 2, 1: 2}


def test_nothing_moves_while_a_copier_is_on_its_way_or_a_partition_stops() -> None:
    run = go_on(uneven(slots=3), BALANCE_EVERY_S - 1)
    run.do(events.CopierEnded(CopierId(1, 1), "killed"))
    assert removals(go_on(run, BALANCE_EVERY_S + 2)) == []
    run = uneven()
    moving = next(iter(run.phases()))
    run.do(events.AssignmentChanged({**run.state.assigned, **entries(moving, epoch=2)}, 99))
    run.take()
    assert removals(run.wait(BALANCE_EVERY_S).wait(BALANCE_EVERY_S)) == []


def test_nothing_moves_without_a_session_or_while_the_worker_drains() -> None:
    """No copier could prove its right to what it is sent without ZooKeeper."""
    assert removals(go_on(uneven().do(events.SessionSuspended()), LONG_S)) == []
    run = uneven().do(events.DrainRequested(1_000.0))
    run.take()
    assert removals(run.wait(BALANCE_EVERY_S).wait(BALANCE_EVERY_S).wait(BALANCE_EVERY_S)) == []


def test_a_copier_that_dies_while_a_partition_moves_gets_it_back() -> None:
    run = uneven()
    while not removals(run):
        run.wait(1)
    run.do(events.CopierEnded(CopierId(0, 1), "killed"))
    assert counts(run) == {0: 4}, "it died while it touched them"
    run.do(events.CopierConnected(CopierId(0, 2)))
    assert removals(go_on(run, LONG_S)) == [2]


def test_partitions_in_error_stay_where_they_are() -> None:
    run = uneven()
    for number in list(run.phases()):
        run.report(number, PartitionState.ERROR, "source unreachable")
    assert removals(go_on(run, LONG_S)) == []
