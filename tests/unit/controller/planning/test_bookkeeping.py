"""Which partitions are noted to have had a position."""

from __future__ import annotations

from collections import Counter

from ureplicator_common.model import (
    CurrentEntry,
    IdealEntry,
    OwnerEpoch,
    Partition,
    PartitionState,
    Route,
    SessionId,
    TopicIntent,
    WorkerId,
)
from ureplicator_controller.core.planning.bookkeeping import mark_committed_positions
from ureplicator_controller.core.planning.partitions import PartitionView
from ureplicator_controller.core.planning.steps import MarkPositions
from ureplicator_controller.core.state.snapshot import Snapshot, Stored

PARTITION = Partition(Route("source", "target"), "t", 0)
INTENT = TopicIntent(1, 1)


def marked(*, owned_under: int | None, said_under: int) -> list[frozenset[int]]:
    """What is noted when a worker says under one owner epoch that it committed."""
    before = None
    if owned_under is not None:
        before = IdealEntry(WorkerId("b"), OwnerEpoch(owned_under), 0, "new topic")
    case = PartitionView(PARTITION, PARTITION.key, INTENT, before)
    said = CurrentEntry(PartitionState.ONLINE, OwnerEpoch(said_under), committed=True)
    case.said.append((WorkerId("b"), said))
    topics = {PARTITION.key: Stored(INTENT, 0, 1, SessionId(0))}
    steps = mark_committed_positions(Snapshot(fleet="f", epoch=1, topics=topics), [case], Counter())
    return [step.intent.had_position for step in steps if isinstance(step, MarkPositions)]


def test_what_the_owner_committed_is_noted() -> None:
    assert marked(owned_under=5, said_under=5) == [frozenset({0})]


def test_what_was_committed_in_a_former_life_is_not() -> None:
    """Found by seed 8789: a topic whose positions were forgotten is added again while a worker that
    is frozen still says what it did; the position that it had would then count as lost."""
    assert marked(owned_under=5, said_under=4) == []
    assert marked(owned_under=None, said_under=4) == []
