"""Decisions of a cutover: runs, steps, ends of logs, and late writes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ureplicator_common.cutovers import (
    MAX_NAMED,
    MAX_TURNS,
    AclChange,
    Cutover,
    CutoverPlan,
    CutoverRequest,
    CutoverState,
    LateWrite,
    Step,
    Turn,
    Wanted,
)
from ureplicator_common.kafka import Extent, PartitionUnavailable, Position, PositionOrError
from ureplicator_common.model import Route
from ureplicator_controller.core.cutover.progress import (
    MAX_CONTROL_RECORDS,
    MAX_STEPS,
    Ends,
    ends_of,
    given_up,
    held_back,
    is_overdue,
    moved_ends,
    next_run,
    opened,
    reached,
    undrained,
    waiting,
)
from ureplicator_controller.core.cutover.states import (
    ABORTED,
    AT_REST,
    BEFORE_OPEN,
    DONE,
    DRAINED,
    FENCED,
    GROUPS,
    NEXT,
    OPEN,
    VERIFIED,
    WATCHED,
)

ROUTE = Route("a", "b")
PLAN = CutoverPlan("id", ROUTE, ("t",), topics={"t": 2})
RUN = Cutover("run-1", PLAN, wanted=Wanted.START)
ENDS = {"t": (5, 7)}
TARGETS = {"t": "t"}
STATES = st.sampled_from(CutoverState)


def request(wanted: Wanted, run: str = "run-1") -> CutoverRequest:
    return CutoverRequest(PLAN, wanted, run, "")


def test_each_state_is_at_rest_or_has_a_way_on() -> None:
    assert {state for state in CutoverState if not NEXT[state]} == AT_REST
    assert {state for state in CutoverState if ABORTED in NEXT[state]} == BEFORE_OPEN


# Runs.


@pytest.mark.parametrize("wanted", [Wanted.PLAN, Wanted.REHEARSE, Wanted.START])
def test_a_first_request_begins_a_run(wanted: Wanted) -> None:
    assert next_run(request(wanted), None) == Cutover("run-1", PLAN, wanted=wanted)


def test_an_abort_begins_nothing() -> None:
    assert next_run(request(Wanted.ABORT), None) is None
    assert next_run(request(Wanted.ABORT, "run-2"), replace(RUN, state=DONE)) is None


@pytest.mark.parametrize(
    "before",
    [
        replace(RUN, state=DONE),
        replace(RUN, state=ABORTED),
        replace(RUN, wanted=Wanted.PLAN),
        replace(RUN, state=WATCHED, opened_ms=1),
    ],
)
def test_a_run_takes_the_place_of_one_that_may_end(before: Cutover) -> None:
    """With what the former one has left behind."""
    turn = Turn(ROUTE, ENDS, ENDS)
    left = replace(before, fences={"a": AclChange()}, turns=(turn,), late_offsets=3)
    found = next_run(request(Wanted.START, "run-2"), left)
    assert found == Cutover(
        "run-2", PLAN, wanted=Wanted.START, fences={"a": AclChange()}, turns=(turn,)
    )


@pytest.mark.parametrize(
    "before",
    [
        replace(RUN, fencing=True),
        *(replace(RUN, state=state) for state in (FENCED, DRAINED, VERIFIED, GROUPS)),
        replace(RUN, state=OPEN),
        replace(RUN, state=OPEN, opened_ms=1),
    ],
)
def test_no_run_takes_the_place_of_one_that_has_changed_something(before: Cutover) -> None:
    assert next_run(request(Wanted.START, "run-2"), before) is None
    assert next_run(request(Wanted.START), before) is None


def test_a_run_is_aborted_before_it_is_open() -> None:
    for state in CutoverState:
        found = next_run(request(Wanted.ABORT), replace(RUN, state=state))
        assert (found is not None) == (state in BEFORE_OPEN), state
        if found is not None:
            assert (found.wanted, found.reason) == (Wanted.ABORT, "requested by an operator")


def test_a_run_that_gives_up_is_not_started_again() -> None:
    gone = given_up(replace(RUN, state=FENCED, fencing=True), "overdue")
    assert (gone.wanted, gone.reason) == (Wanted.ABORT, "overdue")
    assert next_run(request(Wanted.START), gone) is None
    assert next_run(request(Wanted.ABORT), gone) is None


def test_a_rehearsal_that_has_ended_does_not_begin_again() -> None:
    ended = replace(RUN, wanted=Wanted.PLAN, rehearsed_ms={"FENCED": 1})
    assert next_run(request(Wanted.REHEARSE), ended) is None
    started = next_run(request(Wanted.START, "run-2"), ended)
    assert started == replace(RUN, run="run-2")
    assert started == next_run(request(Wanted.START, "run-2"), replace(RUN, wanted=Wanted.PLAN))


# Steps.


@given(before=STATES, after=STATES)
def test_steps_follow_the_table(before: CutoverState, after: CutoverState) -> None:
    cutover = replace(RUN, state=before, waits=("something",))
    if after not in NEXT[before]:
        with pytest.raises(AssertionError):
            reached(cutover, after, 1_000)
        return
    found = reached(cutover, after, 1_000, reason="because")
    assert (found.state, found.waits, found.reason) == (after, (), "because")
    assert found.steps == (Step(after, 1_000, 0),)


def test_steps_have_the_time_since_the_one_before() -> None:
    cutover = reached(replace(RUN, fenced_ms=1_000), FENCED, 1_200)
    cutover = reached(cutover, DRAINED, 1_500)
    assert [step.took_ms for step in cutover.steps] == [200, 300]
    assert reached(cutover, VERIFIED, 1_400).steps[-1].took_ms == 0, "a clock that was set back"


def test_waits_are_named_up_to_a_number() -> None:
    assert waiting(RUN, ["a"]).waits == ("a",)
    found = waiting(RUN, [str(number) for number in range(MAX_NAMED + 3)]).waits
    assert found[-2:] == (str(MAX_NAMED - 1), "and 3 more")


def test_a_run_is_overdue_while_it_keeps_clients_from_writing() -> None:
    fenced = replace(RUN, fencing=True, fenced_ms=1_000)
    assert not is_overdue(fenced, 61_000)
    assert is_overdue(fenced, 61_001)
    assert not is_overdue(replace(fenced, state=OPEN), 100_000)
    assert not is_overdue(replace(fenced, fencing=False), 100_000)


# Ends.


def test_ends_are_behind_open_transactions() -> None:
    extents = {("t", 0): Extent(0, 5, 3), ("t", 1): Extent(2, 7), ("t", 2): Extent(0, 9)}
    assert ends_of({"t": 2}, extents) == ({"t": (8, 7)}, (), ("t/0",))
    assert held_back(extents) == ("t/0: an open transaction holds 3 offsets from 5 on",)


def test_unknown_ends_are_named() -> None:
    lost = PartitionUnavailable("no leader")
    found = ends_of({"t": 2}, {("t", 1): lost})
    assert found.offsets == {"t": (-1, -1)}
    assert found.unknown == ("t/0: its end is not known", "t/1: no leader")
    assert held_back({("t", 1): lost}) == ()


@given(
    st.lists(st.integers(0, 9), min_size=2, max_size=2),
    st.lists(st.integers(0, 9), min_size=2, max_size=2),
)
def test_late_writes_move_the_ends_and_are_named(before: list[int], now: list[int]) -> None:
    cutover = replace(RUN, ends={"t": tuple(before)})
    ends = Ends({"t": tuple(now)}, ())
    found = moved_ends(cutover, ends, 5, {("t", 0): (12,)}, is_alarm=True)
    more = [end - first for first, end in zip(before, now, strict=True) if end > first]
    assert found.ends == {"t": tuple(map(max, before, now))}
    assert (found is cutover) == (not more)
    assert (len(found.late), found.late_offsets) == (len(more), sum(more))
    if now[0] > before[0]:
        assert found.late[0] == LateWrite("t", 0, before[0], now[0], (12,), 5, True)


def test_the_first_late_writes_are_named_and_all_are_counted() -> None:
    cutover = replace(RUN, ends={"t": (0, 0)})
    for end in range(1, MAX_NAMED + 6):
        cutover = moved_ends(cutover, Ends({"t": (end, 0)}, ()), end)
    assert [late.first for late in cutover.late] == list(range(MAX_NAMED))
    assert cutover.late_offsets == MAX_NAMED + 5


@pytest.mark.parametrize(("more", "late"), [(1, 0), (MAX_CONTROL_RECORDS + 1, 11)])
def test_the_end_of_a_transaction_is_no_late_write(more: int, late: int) -> None:
    """Also when it is open no more."""
    cutover = replace(RUN, ends={"t": (5, 7)})
    held = moved_ends(cutover, Ends({"t": (5, 7)}, (), ("t/0",)), 1)
    assert (held.ends, held.held, held.late) == (cutover.ends, ("t/0",), ())
    ended = moved_ends(held, Ends({"t": (5 + more, 7)}, ()), 2)
    assert (ended.ends, ended.late_offsets) == ({"t": (5 + more, 7)}, late)
    assert moved_ends(ended, Ends({"t": (5 + more, 8)}, ()), 3).late_offsets == late + 1


@pytest.mark.parametrize(
    ("position", "text"),
    [
        (Position(6), "t/1: 1 offsets are not copied yet"),
        (Position(-1), "t/1: 7 offsets are not copied yet"),
        (None, "t/1: its position is not known"),
        (PartitionUnavailable("it moves"), "t/1: it moves"),
    ],
)
def test_positions_that_have_not_reached_the_end(
    position: PositionOrError | None, text: str
) -> None:
    positions: dict[tuple[str, int], PositionOrError] = {("there", 0): Position(5)}
    if position is not None:
        positions["there", 1] = position
    cutover = replace(RUN, ends=ENDS)
    assert undrained(cutover, positions, {"t": "there"}) == (text,)
    assert undrained(cutover, {**positions, ("there", 1): Position(7)}, {"t": "there"}) == ()


def test_an_empty_partition_needs_no_position() -> None:
    assert undrained(replace(RUN, ends={"t": (0,)}), {}, TARGETS) == ()


# OPEN.


def test_a_turn_remembers_both_ends() -> None:
    cutover = opened(replace(RUN, state=GROUPS, ends=ENDS), {"t": (15, 17)}, 1_000)
    assert cutover.state is OPEN
    assert cutover.turns == (Turn(ROUTE, ENDS, {"t": (15, 17)}),)
    for end in range(MAX_TURNS):
        cutover = opened(replace(cutover, state=GROUPS), {"t": (end, end)}, 1_000)
    assert [turn.there["t"][0] for turn in cutover.turns] == list(range(MAX_TURNS))


def test_without_a_way_back_no_turn_is_left() -> None:
    plan = replace(PLAN, way_back=False)
    turns = (Turn(ROUTE, ENDS, ENDS),)
    cutover = replace(RUN, plan=plan, state=GROUPS, ends=ENDS, turns=turns)
    assert opened(cutover, ENDS, 1_000).turns == ()


def test_the_last_steps_are_kept() -> None:
    """Writes behind the fence bring a cutover back again and again."""
    cutover = replace(RUN, state=FENCED)
    for at_ms in range(MAX_STEPS):
        cutover = reached(reached(cutover, DRAINED, at_ms), FENCED, at_ms)
    assert len(cutover.steps) == MAX_STEPS
    assert cutover.steps[-1] == Step(FENCED, MAX_STEPS - 1, 0)
