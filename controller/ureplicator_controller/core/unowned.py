"""Partitions whose position nobody renews, because nobody owns them. Pure.

Kafka deletes the offsets of a group without members after a while (`offsets.retention.minutes`,
seven days by default), so owners commit theirs again every day. For a partition that is paused,
blacklisted or without a worker the leader does it (`engines.offsets`).
"""

from __future__ import annotations

from collections.abc import Iterator

from ureplicator_common.model import Partition, Route, TopicKey
from ureplicator_controller.core.snapshot import Snapshot


def unowned(snapshot: Snapshot, route: Route) -> dict[Partition, str]:
    """Partitions of a route that had a position and that nobody may be copying -> target topic."""
    taken = set(_taken(snapshot))
    settings = snapshot.routes.get(route)
    found: dict[Partition, str] = {}
    for key, intent in snapshot.topics.items():
        if key.route != route or key in snapshot.unclear_topics or settings is None:
            continue
        if intent.value.forget_positions:
            continue
        target = intent.value.target_topic or settings.value.target_topic(key.topic)
        for number in sorted(intent.value.had_position):
            partition = Partition(route, key.topic, number)
            if partition not in taken and not _has_owner(snapshot, key, number):
                found[partition] = target
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
