"""Record of partitions that have a committed position."""

from __future__ import annotations

from collections import Counter

from ureplicator_common.model import (
    OwnerEpoch,
    Partition,
    PartitionState,
    Route,
    SessionId,
    WorkerId,
)
from ureplicator_common.znode_contents import CurrentEntry, IdealEntry, TopicIntent
from ureplicator_controller.core.planning.bookkeeping import mark_committed_positions
from ureplicator_controller.core.planning.partitions import PartitionView
from ureplicator_controller.core.planning.steps import MarkPositions
from ureplicator_controller.core.state.decoding import Stored
from ureplicator_controller.core.state.snapshot import Snapshot

PARTITION = Partition(Route("source", "target"), "t", 0)
INTENT = TopicIntent(1, 1, target_topic="orders")


def marked(*, owned_under: int | None, reported_under: int) -> list[frozenset[int]]:
    """Partitions recorded when a worker reports a commit under one owner epoch."""
    before = None
    if owned_under is not None:
        before = IdealEntry(WorkerId("b"), OwnerEpoch(owned_under), 0, "new topic")
    reported = CurrentEntry(PartitionState.ONLINE, OwnerEpoch(reported_under), committed=True)
    view = PartitionView(
        PARTITION, PARTITION.key, INTENT, before, {}, {WorkerId("b"): reported}, ()
    )
    topics = {PARTITION.key: Stored(INTENT, 0, 1, SessionId(0))}
    steps = mark_committed_positions(Snapshot(fleet="f", epoch=1, topics=topics), [view], Counter())
    return [step.intent.had_position for step in steps if isinstance(step, MarkPositions)]


def test_commit_of_the_owner_is_recorded() -> None:
    assert marked(owned_under=5, reported_under=5) == [frozenset({0})]


def test_commit_under_a_former_owner_epoch_is_not_recorded() -> None:
    """A topic is added again after its positions were deleted, while a frozen worker still reports
    the former commit: the former position would count as lost."""
    assert marked(owned_under=5, reported_under=4) == []
    assert marked(owned_under=None, reported_under=4) == []
