"""Partitions whose position nobody renews, because nobody owns them. Pure.

Kafka deletes the offsets of a group without members after a while (`offsets.retention.minutes`,
seven days by default), so owners commit theirs again every day. For a partition that is paused,
blacklisted or without a worker, and for one whose worker has no session, the leader does it
(`engines.offsets`).

A worker without a session may go on copying, and commit between the leader's look at a position and
the leader's own commit, which would then take the position back. So whoever may still be able to
commit is fenced by the leader, as by any other owner: it goes on when it has proven its right anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ureplicator_common.model import Partition, Route, TopicKey
from ureplicator_controller.core.planning.ownership import FenceIds, HolderRules
from ureplicator_controller.core.planning.partitions import partition_views
from ureplicator_controller.core.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class OrphanedPosition:
    """`fence`: transactional ids under which somebody could still commit the partition."""

    target_topic: str
    fence: tuple[str, ...] = ()


def orphaned_positions(snapshot: Snapshot, route: Route) -> dict[Partition, OrphanedPosition]:
    """Partitions of a route that had a position and that nobody with a session may be copying."""
    taken, settings = set(_taken(snapshot)), snapshot.routes.get(route)
    holdings, fences, by_topic = (
        HolderRules(snapshot),
        FenceIds(snapshot),
        partition_views(snapshot),
    )
    found: dict[Partition, OrphanedPosition] = {}
    for key, intent in snapshot.topics.items():
        leave = key in snapshot.unreadable_topics or intent.value.forget_positions
        if key.route != route or settings is None or leave:
            continue
        target = intent.value.target_topic or settings.value.target_topic(key.topic)
        for number in sorted(intent.value.had_position):
            partition = Partition(route, key.topic, number)
            case = by_topic[key].get(number)
            if partition in taken or case is None or _has_owner(snapshot, key, number):
                continue
            fence = fences.of(route, sorted(holdings.remaining(case)))
            if fence is not None:
                found[partition] = OrphanedPosition(target, fence)
    return found


def _taken(snapshot: Snapshot) -> Iterator[Partition]:
    """Told to be held, or said to be, by a worker that has a session."""
    for worker in snapshot.sessions:
        for part in (snapshot.assignments.get(worker), snapshot.current.get(worker)):
            if part is not None:
                yield from part.value.entries


def _has_owner(snapshot: Snapshot, key: TopicKey, number: int) -> bool:
    ideal = snapshot.ideal.get(key)
    entry = ideal.value.entries.get(number) if ideal else None
    return entry is not None and entry.worker in snapshot.sessions
