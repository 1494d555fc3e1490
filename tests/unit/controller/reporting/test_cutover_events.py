"""Events of cutovers: each state of a run once, and alarms."""

from __future__ import annotations

from dataclasses import replace

from ureplicator_common.cutovers import Cutover, CutoverPlan, CutoverState, LateWrite, Wanted
from ureplicator_common.model import Route, SessionId
from ureplicator_controller.core.cutover.progress import MAX_STEPS, reached
from ureplicator_controller.core.cutover.states import DRAINED, FENCED, GROUPS, VERIFIED
from ureplicator_controller.core.reporting.cutover_events import cutover_events
from ureplicator_controller.core.state.decoding import Stored
from ureplicator_controller.core.state.snapshot import Snapshot

PLAN = CutoverPlan("p1", Route("west", "east"), ("orders",), topics={"orders": 1})
BEGUN = Cutover("r1", PLAN, wanted=Wanted.START, fencing=True, ends={"orders": (5,)})


def fleet(cutover: Cutover | None, version: int) -> Snapshot:
    stored = {} if cutover is None else {"move": Stored(cutover, version, version, SessionId(0))}
    return Snapshot(fleet="test", epoch=1, cutovers=stored)


def texts(before: Cutover | None, now: Cutover) -> list[str]:
    return [event.reason for event in cutover_events(fleet(before, 1), fleet(now, 2))]


def again_and_again(cutover: Cutover, rounds: int) -> Cutover:
    """Writes behind the fence bring it back each time."""
    for number in range(rounds):
        for state in (FENCED, DRAINED, VERIFIED, GROUPS):
            cutover = reached(cutover, state, 1_000 * number)
    return cutover


def test_each_state_is_an_event_once() -> None:
    fenced = reached(BEGUN, FENCED, 1_500)
    assert texts(None, fenced) == ["cutover move of west.east: FENCED after 0.00 s"]
    drained = reached(fenced, DRAINED, 1_920)
    assert texts(fenced, drained) == ["cutover move of west.east: DRAINED after 0.42 s"]
    assert texts(drained, again_and_again(drained, 0)) == []


def test_a_run_that_is_brought_back_again_and_again_fills_neither_node_nor_history() -> None:
    long = again_and_again(BEGUN, 1_000)
    assert len(long.steps) == MAX_STEPS
    assert len(texts(BEGUN, long)) == 4
    assert texts(again_and_again(BEGUN, 3), long) == []


def test_another_run_has_its_own_events() -> None:
    before = again_and_again(BEGUN, 1)
    assert len(texts(before, replace(reached(BEGUN, FENCED, 9_000), run="r2"))) == 1


def test_what_is_written_behind_open_is_an_event_with_its_offsets() -> None:
    late = LateWrite("orders", 0, 5, 7, (), 2_000, is_alarm=True)
    drained = replace(late, is_alarm=False)
    opened = replace(BEGUN, state=CutoverState.OPEN, late=(drained, late), late_offsets=4)
    (event,) = cutover_events(fleet(BEGUN, 1), fleet(opened, 2))
    assert (str(event.partition), event.first_offset, event.next_offset) == (
        "west.east/orders/0",
        5,
        7,
    )


def test_an_abort_says_why() -> None:
    aborted = reached(replace(BEGUN, reason="a limit"), CutoverState.ABORTED, 3_000)
    assert texts(BEGUN, aborted)[0].endswith("s: a limit")
