"""Facts that outlive sessions: recorded before anything is assigned, removed when nothing rests on them.

The most slots that a worker ever had serve its fencing: by the next owner of a partition, and by its own
next process. They may be forgotten once it is in no list of holders. A worker that may still commit a
partition is in its list (`holders`), and leaves it in two ways only: it confirmed that it holds the partition
no more, or the owner is ONLINE and has fenced all its ids, which is permanent. So a former process that
resumes can commit nothing, in whichever slots it runs, whether the next process of that id has fewer of them
or not. It has to initialise its own ids and to prove its ownership again, and no assignment names it.

So a worker is forgotten if it has no session, no assignment, no partition that it owns and no list that it
is in. Operators request it; else it happens after `FORGET_AFTER_S` without a session under one leader. What
operators tagged as drained stays until they request it, since the tag is for its return. So does one that was
imported and never seen: its slots are those of another fleet's process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ureplicator_common.model import Partition, TopicKey, TopicState, WorkerId
from ureplicator_controller.core.planning.eviction import NOT_EVICTED, is_eviction_over
from ureplicator_controller.core.planning.membership import known_worker
from ureplicator_controller.core.planning.partitions import PartitionView
from ureplicator_controller.core.planning.steps import (
    ForgetWorker,
    MarkPositions,
    RegisterWorker,
    Step,
)
from ureplicator_controller.core.state.decoding import Stored
from ureplicator_controller.core.state.snapshot import Snapshot

FORGET_AFTER_S = 24 * 3600.0
MAX_FORGOTTEN = 5
"""Workers forgotten in one cycle."""


def register_workers(snapshot: Snapshot, reasons: Counter[str]) -> Iterator[Step]:
    """Record what every live worker offers, and the end of its eviction."""
    for worker in sorted(snapshot.live):
        if worker in snapshot.unreadable_workers:
            continue
        live = snapshot.live[worker].value
        slots = live.slots
        stored = snapshot.known.get(worker)
        before = known = known_worker(snapshot, worker)
        if known.max_slots < slots:
            known = replace(known, max_slots=slots, last_seen_ms=snapshot.wall_ms)
            reasons[f"worker {worker} registered"] += 1
        if (known.slots or known.max_slots, known.tags) != (slots, live.tags):
            known = replace(known, slots=slots, tags=live.tags)
            reasons[f"worker {worker} has other slots or tags"] += 1
        if known.evicted_session != NOT_EVICTED and is_eviction_over(snapshot, worker):
            known = replace(known, evicted_session=NOT_EVICTED)
            reasons[f"worker {worker} responds again"] += 1
        if known.forgotten:
            known = replace(known, forgotten=False)
            reasons[f"worker {worker} is back, and not forgotten"] += 1
        if known != before:
            yield RegisterWorker(worker, known, stored.version if stored else None)


def forget_workers(
    snapshot: Snapshot, now_s: float, reasons: Counter[str]
) -> Iterator[ForgetWorker]:
    """Remove what belongs to workers that are gone for good, a few at a time."""
    due = [worker for worker, at_s in _gone(snapshot) if at_s <= now_s]
    if not due or snapshot.unreadable_topics:
        return
    needed = needed_workers(snapshot, due)
    for worker in [worker for worker in due if worker not in needed][:MAX_FORGOTTEN]:
        reasons[f"worker {worker} forgotten"] += 1
        nodes = (snapshot.known, snapshot.registered, snapshot.assignments, snapshot.shares)
        yield ForgetWorker(worker, *(_version_in(node, worker) for node in nodes))


def next_forgotten_s(snapshot: Snapshot, now_s: float) -> float | None:
    """Time at which the next worker may be forgotten."""
    return min((at_s for _, at_s in _gone(snapshot) if at_s > now_s), default=None)


def needed_workers(snapshot: Snapshot, workers: Iterable[WorkerId]) -> dict[WorkerId, Partition]:
    """Workers that own, hold or are assigned a partition, each with one of these."""
    asked = frozenset(workers)
    needed: dict[WorkerId, Partition] = {}
    for worker in asked & snapshot.assignments.keys():
        for partition in snapshot.assignments[worker].value.entries:
            needed.setdefault(worker, partition)
    for key, stored in snapshot.ideal.items():
        for number, entry in stored.value.entries.items():
            for worker in asked & {entry.worker, *entry.holders}:
                needed.setdefault(worker, Partition(key.route, key.topic, number))
    return needed


def _gone(snapshot: Snapshot) -> Iterator[tuple[WorkerId, float]]:
    """Workers without a session, and when they are to be forgotten if nothing rests on them."""
    gone = snapshot.absent_since.keys() - snapshot.unreadable_workers - snapshot.live.keys()
    for worker in sorted(gone):
        known, since_s = known_worker(snapshot, worker), snapshot.absent_since[worker]
        if known.forgotten:
            yield worker, since_s
        elif not known.is_drained and known.last_seen_ms:
            yield worker, since_s + FORGET_AFTER_S


def _version_in(nodes: Mapping[WorkerId, Stored[Any]], worker: WorkerId) -> int | None:
    stored = nodes.get(worker)
    return None if stored is None else stored.version


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
        if any(
            reported.committed and reported.owner_epoch == epoch
            for reported in view.reported.values()
        ):
            first.setdefault(view.key, set()).add(view.partition.number)
    for key, numbers in first.items():
        stored = snapshot.topics[key]
        had = stored.value.had_position | numbers
        reasons["first positions committed"] += 1
        yield MarkPositions(key, replace(stored.value, had_position=had), stored.version)
