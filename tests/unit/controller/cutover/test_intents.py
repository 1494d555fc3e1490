"""Intents of a topic's two directions once a cutover is OPEN."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ureplicator_common.model import TopicState
from ureplicator_common.znode_contents import PositionChange, TopicIntent
from ureplicator_controller.core.cutover.intents import former_direction, other_direction

FORMER = TopicIntent(
    partitions=2,
    initial_partitions=2,
    target_topic="t",
    source_topic_id="of-a",
    target_topic_id="of-b",
    had_position=frozenset({0, 1}),
    whole=True,
)
ENDS = (15, 17)
POSITIONS = {0: PositionChange(15, "run-1"), 1: PositionChange(17, "run-1")}


@pytest.mark.parametrize("state", [TopicState.ACTIVE, TopicState.PAUSED, TopicState.REVERSED])
def test_the_former_direction_is_reversed(state: TopicState) -> None:
    """A position that was requested is not waited for."""
    found = former_direction(replace(FORMER, state=state, positions={0: PositionChange(3)}))
    assert found == replace(FORMER, state=TopicState.REVERSED)
    assert former_direction(found) == found


def test_a_topic_that_is_deleted_stays_so() -> None:
    deleted = replace(FORMER, state=TopicState.DELETING)
    assert former_direction(deleted) == deleted


def test_the_other_direction_begins_at_the_ends() -> None:
    found = other_direction(None, FORMER, topic="t", ends=ENDS, run="run-1")
    assert found.state is TopicState.ACTIVE
    assert found.positions == POSITIONS
    assert all(found.awaits_position(number) for number in (0, 1))
    assert (found.source_topic_id, found.target_topic_id) == ("of-b", "of-a")
    assert (found.partitions, found.initial_partitions, found.target_topic) == (2, 0, "t")
    assert found.whole
    assert found.restarted


def test_what_a_former_cutover_has_left_is_used_again() -> None:
    left = replace(FORMER, state=TopicState.REVERSED, partitions=3, source_topic_id="of-b")
    found = other_direction(left, FORMER, topic="t", ends=ENDS, run="run-1")
    assert found == replace(left, state=TopicState.ACTIVE, positions=POSITIONS)


@pytest.mark.parametrize("state", [TopicState.ACTIVE, TopicState.PAUSED, TopicState.DELETING])
def test_an_intent_of_others_is_not(state: TopicState) -> None:
    other = replace(FORMER, state=state, source_topic_id="of-nobody", blacklisted=frozenset({1}))
    found = other_direction(other, FORMER, topic="t", ends=ENDS, run="run-1")
    assert found == other_direction(None, FORMER, topic="t", ends=ENDS, run="run-1")
