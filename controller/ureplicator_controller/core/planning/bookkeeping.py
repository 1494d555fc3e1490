"""Facts that outlive sessions, recorded before the leader assigns anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ureplicator_common.model import TopicKey, TopicState
from ureplicator_controller.core.planning.eviction import NOT_EVICTED, is_eviction_over
from ureplicator_controller.core.planning.membership import known_worker
from ureplicator_controller.core.planning.partitions import PartitionView
from ureplicator_controller.core.planning.steps import MarkPositions, RegisterWorker, Step
from ureplicator_controller.core.state.snapshot import Snapshot


def register_workers(snapshot: Snapshot, reasons: Counter[str]) -> Iterator[Step]:
    """Record every live worker's slots, and the end of its eviction."""
    for worker in sorted(snapshot.live):
        if worker in snapshot.unreadable_workers:
            continue
        slots = snapshot.live[worker].value.slots
        stored = snapshot.known.get(worker)
        before = known = known_worker(snapshot, worker)
        if known.max_slots < slots:
            known = replace(known, max_slots=slots, last_seen_ms=snapshot.wall_ms)
            reasons[f"worker {worker} registered"] += 1
        if known.evicted_session != NOT_EVICTED and is_eviction_over(snapshot, worker):
            known = replace(known, evicted_session=NOT_EVICTED)
            reasons[f"worker {worker} responds again"] += 1
        if known != before:
            yield RegisterWorker(worker, known, stored.version if stored else None)


def mark_committed_positions(
    snapshot: Snapshot, views: Iterable[PartitionView], reasons: Counter[str]
) -> Iterator[Step]:
    """Record partitions with a committed position: if the position is missing later, it is lost.

    Only reports under the present owner epoch count: a current state may still have what a worker
    reported of a former topic of that name, whose positions were deleted since.
    """
    first: dict[TopicKey, set[int]] = {}
    for view in views:
        intent = view.intent
        if intent is None or intent.state is TopicState.DELETING or view.is_unreadable:
            continue
        if view.partition.number in intent.had_position:
            continue
        epoch = view.before.owner_epoch if view.before else None
        if any(each.committed and each.owner_epoch == epoch for _, each in view.reported):
            first.setdefault(view.key, set()).add(view.partition.number)
    for key, numbers in first.items():
        stored = snapshot.topics[key]
        had = stored.value.had_position | numbers
        reasons["first positions committed"] += 1
        yield MarkPositions(key, replace(stored.value, had_position=had), stored.version)
