"""What the leader writes down before it gives anything: facts that outlive sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ureplicator_common.model import KnownWorker, TopicKey, TopicState
from ureplicator_controller.core.planning.eviction import NOT_EVICTED, is_eviction_over
from ureplicator_controller.core.planning.partitions import PartitionView
from ureplicator_controller.core.planning.steps import MarkPositions, RegisterWorker, Step
from ureplicator_controller.core.state.snapshot import Snapshot


def register_workers(snapshot: Snapshot, reasons: Counter[str]) -> Iterator[Step]:
    """Every live worker's slots; the end of an eviction."""
    for worker in sorted(snapshot.live):
        if worker in snapshot.unreadable_workers:
            continue
        slots = snapshot.live[worker].value.slots
        stored = snapshot.known.get(worker)
        before = stored.value if stored else KnownWorker(max_slots=0)
        known = before
        if known.max_slots < slots:
            known = replace(known, max_slots=slots, last_seen_ms=snapshot.wall_ms)
            reasons[f"worker {worker} registered"] += 1
        if known.evicted_session != NOT_EVICTED and is_eviction_over(snapshot, worker):
            known = replace(known, evicted_session=NOT_EVICTED)
            reasons[f"worker {worker} answers again"] += 1
        if known != before:
            yield RegisterWorker(worker, known, stored.version if stored else None)


def mark_committed_positions(
    snapshot: Snapshot, cases: Iterable[PartitionView], reasons: Counter[str]
) -> Iterator[Step]:
    """That a position was committed: should it be missing later, it is lost.

    Only by whom owns the partition now: what a worker said of a topic's former life, whose positions
    were forgotten since, may still stand in its current state.
    """
    marks: dict[TopicKey, set[int]] = {}
    for case in cases:
        intent = case.intent
        if intent is None or intent.state is TopicState.DELETING or case.unclear:
            continue
        if case.partition.number in intent.had_position:
            continue
        epoch = case.before.owner_epoch if case.before else None
        if any(said.committed and said.owner_epoch == epoch for _, said in case.said):
            marks.setdefault(case.key, set()).add(case.partition.number)
    for key, numbers in marks.items():
        stored = snapshot.topics[key]
        had = stored.value.had_position | numbers
        reasons["first positions committed"] += 1
        yield MarkPositions(key, replace(stored.value, had_position=had), stored.version)
