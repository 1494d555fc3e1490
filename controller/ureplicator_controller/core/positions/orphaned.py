"""Positions of partitions that no worker owns, which the leader renews. Pure.

Kafka deletes the offsets of a group without members after a while (`offsets.retention.minutes`, seven
days by default), so owners commit theirs again every day. For a partition that is paused, blacklisted or
without a worker, and for one whose worker has no session, the leader does it
(`engines.position_renewal`).

A worker without a session may continue to copy. It could commit between the leader's read of a position
and the leader's own commit, which would then move the position back. So the leader fences all workers
that may still be able to commit, as any other owner does. Such a worker continues once it has proven its
ownership again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ureplicator_common.model import Partition, Route, TopicKey
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_controller.core.planning.holders import FenceIds, HolderRules
from ureplicator_controller.core.planning.partitions import PartitionView, PartitionViews
from ureplicator_controller.core.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class OrphanedPosition:
    """Position to renew. `fence`: transactional ids that could still commit the partition."""

    target_topic: str
    fence: tuple[str, ...] = ()


def orphaned_positions(snapshot: Snapshot, route: Route) -> dict[Partition, OrphanedPosition]:
    """Partitions of a route with a committed position that no worker with a session may copy."""
    if route not in snapshot.routes:
        return {}
    rules, fence_ids, views = (
        HolderRules(snapshot),
        FenceIds(snapshot),
        PartitionViews(snapshot).by_topic,
    )
    found: dict[Partition, OrphanedPosition] = {}
    for key, intent in _topics(snapshot, route):
        for number in sorted(intent.had_position):
            view = views[key].get(number)
            if view is None or _has_worker(snapshot, view):
                continue
            fence = fence_ids.of(route, sorted(rules.remaining_holders(view)))
            if fence is not None:
                found[view.partition] = OrphanedPosition(intent.target_topic, fence)
    return found


def _topics(snapshot: Snapshot, route: Route) -> Iterator[tuple[TopicKey, TopicIntent]]:
    """Readable topics of a route whose positions are to be kept."""
    for key, stored in snapshot.topics.items():
        is_kept = key not in snapshot.unreadable_topics and not stored.value.forget_positions
        if key.route == route and is_kept:
            yield key, stored.value


def _has_worker(snapshot: Snapshot, view: PartitionView) -> bool:
    """True if a worker with a session owns the partition, has it assigned or reports it."""
    return (
        view.owner in snapshot.sessions
        or any(worker in snapshot.sessions for worker in view.assigned)
        or bool(view.reported or view.stale_reports)
    )
