"""Positions of deleted topics, to be deleted once no worker can commit them any more. Pure.

A topic that is deleted with its positions stays `deleting` until they are gone
(`engines.position_deletion`). Only then the plan retires it. Until then the topic cannot be whitelisted
again, so no position of a later topic is deleted.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ureplicator_common.model import TopicKey, TopicState
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_controller.core.planning.holders import FenceIds, HolderRules
from ureplicator_controller.core.planning.partitions import PartitionView, PartitionViews
from ureplicator_controller.core.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class DeletablePositions:
    """Positions to delete. `fence`: transactional ids that could still commit them. `epoch`: the leader
    epoch at which that holds."""

    target_topic: str
    partitions: int
    fence: tuple[str, ...]
    epoch: int


def deletable_positions(snapshot: Snapshot) -> dict[TopicKey, DeletablePositions]:
    """Topics marked for deletion of their positions that no live worker holds."""
    marked = {
        key: stored.value
        for key, stored in snapshot.topics.items()
        if stored.value.forget_positions and stored.value.state is TopicState.DELETING
    }
    if not marked:
        return {}
    rules, fence_ids, views = (
        HolderRules(snapshot),
        FenceIds(snapshot),
        PartitionViews(snapshot).by_topic,
    )
    found = {
        key: _deletable(
            snapshot, key, intent, views[key].values(), rules=rules, fence_ids=fence_ids
        )
        for key, intent in marked.items()
    }
    return {key: positions for key, positions in found.items() if positions is not None}


def _deletable(
    snapshot: Snapshot,
    key: TopicKey,
    intent: TopicIntent,
    views: Collection[PartitionView],
    *,
    rules: HolderRules,
    fence_ids: FenceIds,
) -> DeletablePositions | None:
    """Positions of one topic; None while it is held, or the ids to fence are unknown."""
    if key.route not in snapshot.routes or any(rules.is_held(view) for view in views):
        return None
    holders = {worker for view in views for worker in rules.remaining_holders(view)}
    fence = fence_ids.of(key.route, sorted(holders))
    if fence is None:
        return None
    return DeletablePositions(intent.target_topic, intent.partitions, fence, snapshot.epoch)
