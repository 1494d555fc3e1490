"""Causes of changes of owners, as a metric counts them: a few, found by what moved and not by the wording of
its reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

from ureplicator_common.model import Route, WorkerId
from ureplicator_common.znode_contents import IdealEntry
from ureplicator_controller.core.balance.pools import lacks_tags
from ureplicator_controller.core.planning.membership import (
    announces_leaving,
    known_worker,
    lacks_capacity,
)
from ureplicator_controller.core.planning.steps import Step, WriteIdeal
from ureplicator_controller.core.state.snapshot import Snapshot


class MoveCause(StrEnum):
    """PLACED: it had no owner. EXCLUDED: it gets none. The others say why the former owner lost it;
    NOT_FOR_ROUTE: it lacks tags that the route asks for. BALANCED: for a new worker's share, even
    counts or loads."""

    PLACED = "placed"
    EXCLUDED = "excluded"
    LOST = "lost"
    DRAINED = "drained"
    LEAVES = "leaves"
    NO_CAPACITY = "no_capacity"
    NO_PROGRESS = "no_progress"
    NOT_FOR_ROUTE = "not_for_route"
    BALANCED = "balanced"


def move_causes(snapshot: Snapshot, steps: Sequence[Step]) -> Iterator[MoveCause]:
    """Cause of each change of an owner that the steps make, in their order."""
    for step in steps:
        if isinstance(step, WriteIdeal):
            stored = snapshot.ideal.get(step.key)
            before = stored.value.entries if stored else {}
            for number, entry in step.ideal.entries.items():
                former = before.get(number)
                if (former.worker if former else None) != entry.worker:
                    yield _cause(snapshot, step.key.route, former, entry)


def _cause(
    snapshot: Snapshot, route: Route, former: IdealEntry | None, entry: IdealEntry
) -> MoveCause:
    if former is None or former.worker is None:
        return MoveCause.PLACED
    if entry.worker is None and former.worker in snapshot.sessions:
        return MoveCause.EXCLUDED
    if entry.no_progress_moves > former.no_progress_moves:
        return MoveCause.NO_PROGRESS
    return _departure(snapshot, former.worker, route)


def _departure(snapshot: Snapshot, worker: WorkerId, route: Route) -> MoveCause:
    if known_worker(snapshot, worker).is_drained:
        return MoveCause.DRAINED
    if worker not in snapshot.sessions:
        return MoveCause.LOST
    if announces_leaving(snapshot, worker):
        return MoveCause.LEAVES
    if lacks_capacity(snapshot, worker):
        return MoveCause.NO_CAPACITY
    return MoveCause.NOT_FOR_ROUTE if lacks_tags(snapshot, worker, route) else MoveCause.BALANCED
