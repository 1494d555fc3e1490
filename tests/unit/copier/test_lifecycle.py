"""The table of a partition's states in the copier: every pair that is there, and every one that is not."""

from itertools import product

import pytest

from ureplicator_common.errors import InvalidTransition
from ureplicator_common.model import Partition, Route
from ureplicator_worker.copier.lifecycle import (
    CONFIRMED,
    DRAINED,
    FENCED,
    IN_LANE,
    STORY_LENGTH,
    TRANSITIONS,
    CopyState,
    OwnedPartition,
    move,
)
from ureplicator_worker.lifeline.messages import Failed

P = Partition(Route("a", "b"), "t", 0)
PAIRS = list(product(CopyState, CopyState))


@pytest.mark.parametrize(("before", "after"), sorted(TRANSITIONS))
def test_a_pair_of_the_table_moves(before: CopyState, after: CopyState) -> None:
    moved = move(OwnedPartition(P, before), after, "because", now_s=5.0)
    assert moved.state is after
    assert moved.story == (f"5.0 {before} -> {after}: because",)


@pytest.mark.parametrize(("before", "after"), [pair for pair in PAIRS if pair not in TRANSITIONS])
def test_any_other_pair_is_refused_with_the_story(before: CopyState, after: CopyState) -> None:
    owned = OwnedPartition(P, before, story=("how it came there",))
    with pytest.raises(InvalidTransition, match="how it came there") as refused:
        move(owned, after, "because", now_s=5.0)
    assert f"{P}: {before} -> {after} (because)" in str(refused.value)


def test_every_state_is_released_in_the_end_and_nothing_leads_back() -> None:
    for state in CopyState:
        expected = state is not CopyState.RELEASING
        assert ((state, CopyState.RELEASING) in TRANSITIONS) is expected
        assert (CopyState.RELEASING, state) not in TRANSITIONS
        assert (state, CopyState.STARTING) not in TRANSITIONS


@pytest.mark.parametrize("change", [FENCED, CONFIRMED, DRAINED])
def test_what_happens_to_states_is_in_the_table(change: dict[CopyState, CopyState]) -> None:
    assert change.items() <= TRANSITIONS
    assert {*change, *change.values()} <= IN_LANE


def test_a_fence_and_a_proof_cancel_each_other() -> None:
    assert {before: CONFIRMED[after] for before, after in FENCED.items()} == {
        state: state for state in FENCED
    }


def test_draining_and_fencing_come_in_either_order() -> None:
    for state in FENCED.keys() & DRAINED.keys():
        assert DRAINED[FENCED[state]] is FENCED[DRAINED[state]]


def test_a_move_changes_what_it_is_given_and_nothing_else() -> None:
    failure = Failed(P, "no records", temporary=False)
    owned = OwnedPartition(P, CopyState.COPYING)
    moved = move(owned, CopyState.DRAINING, "no records", now_s=1.0, failure=failure)
    assert (moved.failure, moved.partition, owned.failure) == (failure, P, None)


def test_the_story_is_bounded() -> None:
    owned = OwnedPartition(P, CopyState.COPYING)
    for turn in range(2 * STORY_LENGTH):
        to = CONFIRMED.get(owned.state) or FENCED[owned.state]
        owned = move(owned, to, str(turn), now_s=float(turn))
    assert len(owned.story) == STORY_LENGTH
    assert owned.story[-1].endswith(f": {2 * STORY_LENGTH - 1}")
