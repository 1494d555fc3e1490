"""Topics whose positions are to be forgotten, as soon as nobody can write them any more. Pure.

A topic that is deleted for good stays `deleting` until its positions are gone (`engines.forgetting`);
only then the plan retires it. Until then nobody can whitelist it again, so what is forgotten is what the
operator meant.
"""

from __future__ import annotations

from dataclasses import dataclass

from ureplicator_common.model import TopicIntent, TopicKey, TopicState
from ureplicator_controller.core.planning.ownership import FenceIds, HolderRules
from ureplicator_controller.core.planning.partitions import (
    PartitionView,
    PartitionViews,
    partition_views,
)
from ureplicator_controller.core.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class DeletablePositions:
    """`fence`: transactional ids under which somebody, frozen perhaps, could still commit."""

    target_topic: str
    partitions: int
    fence: tuple[str, ...]


def deletable_positions(snapshot: Snapshot) -> dict[TopicKey, DeletablePositions]:
    """Marked topics that no worker is told to hold, or says it holds."""
    marked = {
        key: stored.value
        for key, stored in snapshot.topics.items()
        if stored.value.forget_positions and stored.value.state is TopicState.DELETING
    }
    if not marked:
        return {}
    holdings, fences, found = HolderRules(snapshot), FenceIds(snapshot), partition_views(snapshot)
    judged = {
        key: _judged(snapshot, key, intent, found, holdings=holdings, fences=fences)
        for key, intent in marked.items()
    }
    return {key: what for key, what in judged.items() if what is not None}


def _judged(
    snapshot: Snapshot,
    key: TopicKey,
    intent: TopicIntent,
    found: PartitionViews,
    *,
    holdings: HolderRules,
    fences: FenceIds,
) -> DeletablePositions | None:
    topic = found[key].values()
    settings = snapshot.routes.get(key.route)
    if settings is None or any(_is_held(case, holdings) for case in topic):
        return None
    able = {worker for case in topic for worker in holdings.remaining(case)}
    fence = fences.of(key.route, sorted(able))
    if fence is None:
        return None
    target = intent.target_topic or settings.value.target_topic(key.topic)
    return DeletablePositions(target, intent.partitions, fence)


def _is_held(case: PartitionView, holdings: HolderRules) -> bool:
    holders = case.before.holders if case.before else {}
    return bool(case.unclear or case.told or holdings.live_holders(case, holders))
