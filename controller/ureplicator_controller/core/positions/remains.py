"""Remains of deleted topics: lists of holders that never confirmed their release. Pure.

They stay without an intent, so that a topic of that name is not copied beside a frozen process
(`core.planning.retirement`). Where all holders are gone, nobody will ever confirm: then the leader fences
them itself, as the next owner would, and removes the list (`engines.position_renewal`). After the fence a
holder could commit only if it initialised its ids and proved its ownership once more, and no assignment
names it: an owner is on the list before it is assigned anything, so the version of the list, at which it is
removed, shows that there was none in between.
"""

from __future__ import annotations

from dataclasses import dataclass

from ureplicator_common.model import Route, TopicKey
from ureplicator_common.znode_contents import IdealTopic
from ureplicator_controller.core.planning.holders import FenceIds
from ureplicator_controller.core.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Remains:
    """List of holders to remove at this version, and their transactional ids, to be fenced before."""

    version: int
    fence: tuple[str, ...]


def removable_remains(snapshot: Snapshot, route: Route) -> dict[TopicKey, Remains]:
    """Remains of deleted topics of a route whose holders are all gone.

    Nothing while the assignment of a worker cannot be read: it may name such a topic.
    """
    if snapshot.unreadable_workers:
        return {}
    present = snapshot.sessions.keys() | snapshot.live.keys() | snapshot.current.keys()
    in_use = {
        partition.key
        for assignment in snapshot.assignments.values()
        for partition in assignment.value.entries
    }
    in_use |= snapshot.topics.keys() | snapshot.unreadable_topics
    ids = FenceIds(snapshot)
    found: dict[TopicKey, Remains] = {}
    for key, stored in snapshot.ideal.items():
        if key.route != route or key in in_use or not _is_retired(stored.value):
            continue
        holders = {worker for entry in stored.value.entries.values() for worker in entry.holders}
        fence = ids.of(route, sorted(holders)) if holders.isdisjoint(present) else None
        if fence is not None:
            found[key] = Remains(stored.version, fence)
    return found


def _is_retired(ideal: IdealTopic) -> bool:
    return all(entry.worker is None and entry.holders for entry in ideal.entries.values())
