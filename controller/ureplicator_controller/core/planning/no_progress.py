"""Partitions that make no progress: told after 10 minutes, moved after 20, at most 3 times.

    no progress --(10 min)--> listed --(20 min)--> moved --(20 min)--> moved --(20 min)--> moved
         ^                                           |                                       |
         +----------- progress: count 0 -------------+---------------------------------------+

The worker that owns a partition measures for how long it makes no progress (`PartitionLoad`), so
whoever reads the tree can tell, and only the number of moves must be remembered: it is in the ideal
state. A partition that was moved has at least 20 minutes on its new worker, since that one counts
from zero.

A move helps if the *worker* is at fault. Where a cluster is, moving only adds to the trouble, and most
of all where one worker alone looks well, because it was just started again or has nothing to copy: it
would be given everything. So

* the partition goes to a worker on which nothing *stands still*. That is told early of what never moved
  since its worker has it. If there is no such worker, it stays;
* where something of its route stands still on several workers, some other partition of the route must
  be copied meanwhile, else it stays.

Three moves without progress mean that it is the partition; it stays listed.

The worker it was taken from is *blamed*: it keeps what it has, but is given nothing as long as there
is another. Even counts would else fill it with others' partitions, for them to get stuck. The blame
is in the ideal state, too, by the worker's session, and ends

* when the partition is stuck on the next worker as well: then that one is blamed, in the end none;
* with the session: a worker that was started again may be well;
* with a rebalance that operators ask for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace

from ureplicator_common.model import (
    IdealEntry,
    Partition,
    PartitionLoad,
    Route,
    SessionId,
    WorkerId,
)
from ureplicator_controller.core.planning.switches import is_rebalance_due
from ureplicator_controller.core.state.external_view import ExternalView, ideal_entry, is_active
from ureplicator_controller.core.state.snapshot import Snapshot

REPORT_AFTER_S = 600.0
MOVE_AFTER_S = 1_200.0
MAX_MOVES = 3
STARTUP_S = 60.0
"""By then a worker copies what it was given, if it can."""


@dataclass(frozen=True, slots=True)
class PartitionWithoutProgress:
    """A partition without progress. `since_ms` is wall clock, `actual` who says it holds it."""

    partition: Partition
    ideal: WorkerId
    actual: tuple[WorkerId, ...]
    since_ms: int
    moves: int
    reason: str
    load: PartitionLoad

    def as_json(self) -> dict[str, object]:
        return {
            "topic": self.partition.topic,
            "partition": self.partition.number,
            "route": str(self.partition.route),
            "idealWorker": self.ideal,
            "actualWorker": ", ".join(self.actual),
            "since": self.since_ms,
            "lag": self.load.lag if self.load.lag >= 0 else None,
            "position": self.load.committed if self.load.committed >= 0 else None,
            "moves": self.moves,
            "reason": self.reason,
        }


def partitions_without_progress(
    snapshot: Snapshot, view: ExternalView
) -> list[PartitionWithoutProgress]:
    """All that is to be listed, in order."""
    found = {
        partition: (entry, load) for partition, entry, load in _still(snapshot, REPORT_AFTER_S)
    }
    for partition, entry, load in _moved(snapshot):
        if not has_progressed(load):
            found[partition] = (entry, load)
    return [_stuck(snapshot, view, partition, *found[partition]) for partition in sorted(found)]


def no_progress_moves(snapshot: Snapshot) -> dict[Partition, str]:
    """What should go to another worker, and why."""
    found = {
        partition: f"stuck on {entry.worker}"
        for partition, entry, _ in _still(snapshot, MOVE_AFTER_S)
        if entry.stuck_moves < MAX_MOVES
    }
    if not found:
        return {}
    doubtful = _doubtful(snapshot)
    return {partition: why for partition, why in found.items() if partition.route not in doubtful}


def workers_without_progress(snapshot: Snapshot) -> Set[WorkerId]:
    """Workers on which something stands still that may be their fault."""
    return {worker for worker, _ in _standing(snapshot)}


def _doubtful(snapshot: Snapshot) -> Set[Route]:
    """Routes of which a cluster may be at fault."""
    workers: dict[Route, set[WorkerId]] = {}
    for worker, partition in _standing(snapshot):
        workers.setdefault(partition.route, set()).add(worker)
    several = {route for route, on in workers.items() if len(on) > 1}
    copied = {
        partition.route
        for loads in (snapshot.loads.values() if several else ())
        for partition, load in loads.items()
        if load.records_per_s > 0
    }
    return several - copied


def _standing(snapshot: Snapshot) -> Iterator[tuple[WorkerId, Partition]]:
    """What stands still, unless that is known to be its own fault."""
    for partition, entry, load in _still(snapshot, STARTUP_S):
        if load.no_progress_s < REPORT_AFTER_S and has_progressed(load):
            continue
        if entry.worker is not None and entry.stuck_moves < MAX_MOVES:
            yield entry.worker, partition


def with_move_count(
    entry: IdealEntry, before: IdealEntry, blaming: Mapping[WorkerId, SessionId]
) -> IdealEntry:
    """The entry of a new owner with what is to be remembered of the former; one more move if that
    is blamed."""
    if before.worker is not None and before.worker in blaming:
        moves, session = before.stuck_moves + 1, blaming[before.worker]
        return replace(entry, stuck_moves=moves, stuck_on=session)
    if (before.stuck_moves, before.stuck_on) == (entry.stuck_moves, entry.stuck_on):
        return entry
    return replace(entry, stuck_moves=before.stuck_moves, stuck_on=before.stuck_on)


def recovered_entries(snapshot: Snapshot) -> dict[Partition, IdealEntry]:
    """Entries of those that recovered. Only a first move shows whose fault it was."""
    return {
        partition: replace(
            entry,
            stuck_moves=0,
            stuck_on=entry.stuck_on if entry.stuck_moves == 1 else SessionId(0),
        )
        for partition, entry, load in _moved(snapshot)
        if has_progressed(load)
    }


def entries_without_suspects(snapshot: Snapshot) -> dict[Partition, IdealEntry]:
    """All entries that blame anybody, without that."""
    return {
        Partition(key.route, key.topic, number): replace(entry, stuck_on=SessionId(0))
        for key, stored in snapshot.ideal.items()
        for number, entry in stored.value.entries.items()
        if entry.stuck_on
    }


def suspect_workers(snapshot: Snapshot) -> Set[WorkerId]:
    """Live workers that are better given nothing."""
    sessions = {
        entry.stuck_on
        for stored in snapshot.ideal.values()
        for entry in stored.value.entries.values()
        if entry.stuck_on and entry.stuck_moves < MAX_MOVES
    }
    if not sessions or is_rebalance_due(snapshot):
        return frozenset()
    return {worker for worker, session in snapshot.sessions.items() if session in sessions}


def has_progressed(load: PartitionLoad) -> bool:
    """Since its worker has it."""
    return load.no_progress_s < load.held_s


Owned = tuple[Partition, IdealEntry, PartitionLoad]
"""What the ideal owner of a partition measured."""


def _still(snapshot: Snapshot, for_s: float) -> Iterator[Owned]:
    """Wanted partitions that make no progress for so long."""
    for worker, loads in snapshot.loads.items():
        for partition, load in loads.items():
            if load.no_progress_s >= for_s and is_active(snapshot, partition):
                entry = ideal_entry(snapshot, partition)
                if entry is not None and entry.worker == worker:
                    yield partition, entry, load


def _moved(snapshot: Snapshot) -> Iterator[Owned]:
    """Wanted partitions that were moved for being stuck, and what their owner measured."""
    for key, stored in snapshot.ideal.items():
        for number, entry in stored.value.entries.items():
            if entry.stuck_moves and entry.worker is not None:
                partition = Partition(key.route, key.topic, number)
                load = snapshot.loads.get(entry.worker, {}).get(partition)
                if load is not None and is_active(snapshot, partition):
                    yield partition, entry, load


def _stuck(
    snapshot: Snapshot,
    view: ExternalView,
    partition: Partition,
    entry: IdealEntry,
    load: PartitionLoad,
) -> PartitionWithoutProgress:
    assert entry.worker is not None
    said = view.get(partition, {})
    reason = said[entry.worker].reason if entry.worker in said else ""
    return PartitionWithoutProgress(
        partition=partition,
        ideal=entry.worker,
        actual=tuple(sorted(said)),
        since_ms=snapshot.wall_ms - round(load.no_progress_s * 1_000),
        moves=entry.stuck_moves,
        reason=reason or "there are records to copy, and the position stands still",
        load=load,
    )
