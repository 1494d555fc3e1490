"""Partitions without progress: listed after 10 minutes, moved after 20, at most 3 times.

    no progress --(10 min)--> listed --(20 min)--> moved --(20 min)--> moved --(20 min)--> moved
         ^                                           |                                       |
         +----------- progress: count 0 -------------+---------------------------------------+

The worker that owns a partition measures for how long it makes no progress (`PartitionLoad`), so every
reader of the tree can list such partitions. Only the number of moves must be stored: it is in the ideal
state. A moved partition has at least 20 minutes on its new worker, since that worker counts from zero.

A move helps if the *worker* is the cause. If a cluster is the cause, moves only add to the load; most of
all if a single worker looks healthy because it has just restarted or has nothing to copy: it would get
all partitions. Therefore:

* The partition goes to a worker on which no partition lacks progress. This is detected early for
  partitions that have not progressed since their worker got them. Without such a worker it stays.
* If partitions of its route lack progress on several workers, some other partition of the route must be
  copied meanwhile; otherwise it stays.

Three moves without progress mean that the partition itself is the cause. It stays listed. The same is known
at once of a partition whose worker reports a failure that is none of its own (`Failing.ANYWHERE`): a record
that a handler fails at is not moved.

The worker that it was moved from becomes *suspect*: it keeps its other partitions, but gets no new ones
as long as there is another worker. Otherwise even counts would refill it with partitions that would lack
progress there too. The suspicion is stored in the ideal state as well, by the worker's session. It ends

* when the partition makes no progress on the next worker either: then that one is suspect, finally none;
* with the session: a restarted worker may be healthy;
* with a rebalance that operators request;
* when operators drain the worker: once they restore it, it is to take part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace

from ureplicator_common.model import Partition, Route, SessionId, WorkerId
from ureplicator_common.znode_contents import IdealEntry, PartitionLoad
from ureplicator_controller.core.planning.switches import is_rebalance_due
from ureplicator_controller.core.state.external_view import ExternalView, ideal_entry, is_active
from ureplicator_controller.core.state.failures import failing_anywhere, failing_partitions
from ureplicator_controller.core.state.loads import recent_loads
from ureplicator_controller.core.state.snapshot import Snapshot

REPORT_AFTER_S = 600.0
MOVE_AFTER_S = 1_200.0
MAX_MOVES = 3
STARTUP_S = 60.0
"""Time within which a healthy worker starts to copy a partition."""


@dataclass(frozen=True, slots=True)
class PartitionWithoutProgress:
    """A partition without progress. `since_ms` is wall clock, `actual` the workers that report it."""

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
    """Partitions to list, in order: without progress for `REPORT_AFTER_S`, or since they were moved.

    For people, by loads that may be some seconds old; decisions are made by the newest."""
    loads = {worker: recent_loads(snapshot.loads, worker) for worker in snapshot.loads}
    snapshot = replace(snapshot, loads=loads)
    found = {
        partition: (entry, load)
        for partition, entry, load in _without_progress_for(snapshot, REPORT_AFTER_S)
    }
    for partition, entry, load in _owned(snapshot, lambda entry: entry.no_progress_moves > 0):
        if not has_progressed(load):
            found[partition] = (entry, load)
    return [_listed(snapshot, view, partition, *found[partition]) for partition in sorted(found)]


def partitions_to_move(snapshot: Snapshot) -> dict[Partition, str]:
    """Partitions to move to another worker, with the reason."""
    fails_anywhere = failing_anywhere(snapshot)
    found = {
        partition: f"no progress on {entry.worker}"
        for partition, entry, _ in _without_progress_for(snapshot, MOVE_AFTER_S)
        if entry.no_progress_moves < MAX_MOVES and partition not in fails_anywhere
    }
    if not found:
        return {}
    routes = _routes_with_failing_cluster(snapshot)
    return {partition: why for partition, why in found.items() if partition.route not in routes}


def workers_without_progress(snapshot: Snapshot) -> Set[WorkerId]:
    """Workers with a partition whose lack of progress they may have caused."""
    return {worker for worker, _ in _stalled_partitions(snapshot)}


def _routes_with_failing_cluster(snapshot: Snapshot) -> Set[Route]:
    """Routes on which several workers lack progress and nothing is copied: a cluster may be the cause."""
    workers: dict[Route, set[WorkerId]] = {}
    for worker, partition in _stalled_partitions(snapshot):
        workers.setdefault(partition.route, set()).add(worker)
    several = {route for route, on in workers.items() if len(on) > 1}
    copied = {
        partition.route
        for loads in (snapshot.loads.values() if several else ())
        for partition, load in loads.items()
        if load.records_per_s > 0
    }
    return several - copied


def _stalled_partitions(snapshot: Snapshot) -> Iterator[tuple[WorkerId, Partition]]:
    """Partitions without progress, by worker, unless the partition itself is known to be the cause."""
    fails_anywhere = failing_anywhere(snapshot)
    for partition, entry, load in _without_progress_for(snapshot, STARTUP_S):
        if load.no_progress_s < REPORT_AFTER_S and has_progressed(load):
            continue
        if partition in fails_anywhere:
            continue
        if entry.worker is not None and entry.no_progress_moves < MAX_MOVES:
            yield entry.worker, partition


def with_move_count(
    entry: IdealEntry, before: IdealEntry, suspects: Mapping[WorkerId, SessionId]
) -> IdealEntry:
    """Carry move count and suspect over to a new owner's entry; one more move from a suspect."""
    if before.worker is not None and before.worker in suspects:
        moves, session = before.no_progress_moves + 1, suspects[before.worker]
        return replace(entry, no_progress_moves=moves, suspect_session=session)
    if (before.no_progress_moves, before.suspect_session) == (
        entry.no_progress_moves,
        entry.suspect_session,
    ):
        return entry
    return replace(
        entry, no_progress_moves=before.no_progress_moves, suspect_session=before.suspect_session
    )


def recovered_entries(snapshot: Snapshot) -> dict[Partition, IdealEntry]:
    """Entries of moved and of failing partitions that progress again.

    The suspect stays only after a first move: after several moves it is not known to be the cause.
    """
    failing = failing_partitions(snapshot)
    return {
        partition: replace(
            entry,
            no_progress_moves=0,
            suspect_session=entry.suspect_session if entry.no_progress_moves <= 1 else SessionId(0),
            failing_since_ms=0,
        )
        for partition, entry, load in _owned(
            snapshot, lambda entry: entry.no_progress_moves > 0 or entry.failing_since_ms > 0
        )
        if has_progressed(load) and partition not in failing
    }


def entries_without_suspects(snapshot: Snapshot) -> dict[Partition, IdealEntry]:
    """Entries whose suspect operators clear, after its removal: a rebalance clears all, draining a worker
    that worker."""
    drained = {
        session
        for worker, session in snapshot.sessions.items()
        if worker in snapshot.known and snapshot.known[worker].value.is_drained
    }
    clears_all = is_rebalance_due(snapshot)
    if not (clears_all or drained):
        return {}
    return {
        partition: replace(entry, suspect_session=SessionId(0))
        for partition, entry in _suspected(snapshot)
        if clears_all or entry.suspect_session in drained
    }


def _suspected(snapshot: Snapshot) -> Iterator[tuple[Partition, IdealEntry]]:
    """All entries with a suspect."""
    for key, stored in snapshot.ideal.items():
        for number, entry in stored.value.entries.items():
            if entry.suspect_session:
                yield Partition(key.route, key.topic, number), entry


def suspicions(snapshot: Snapshot) -> Iterator[str]:
    """A sentence on each suspect worker, for people."""
    entries = [entry for _, entry in _suspected(snapshot)]
    for worker in sorted(suspect_workers(snapshot, entries)):
        session = snapshot.sessions[worker]
        count = sum(entry.suspect_session == session for entry in entries)
        yield (
            f"worker {worker} gets no more partitions: {count} made no progress on it; restart it, or drain"
            " and restore it, or request a rebalance"
        )


def suspect_workers(snapshot: Snapshot, entries: Iterable[IdealEntry]) -> Set[WorkerId]:
    """Live workers that get no partitions as long as there are others.

    `entries`: all of the fleet that may have a suspect.
    """
    sessions = {
        entry.suspect_session
        for entry in entries
        if entry.suspect_session and entry.no_progress_moves < MAX_MOVES
    }
    if not sessions or is_rebalance_due(snapshot):
        return frozenset()
    return {worker for worker, session in snapshot.sessions.items() if session in sessions}


def has_progressed(load: PartitionLoad) -> bool:
    """True if the partition has progressed since its worker got it."""
    return load.no_progress_s < load.held_s


Owned = tuple[Partition, IdealEntry, PartitionLoad]
"""A partition with its ideal entry and the load that its owner measured."""


def _without_progress_for(snapshot: Snapshot, for_s: float) -> Iterator[Owned]:
    """Active partitions without progress for at least `for_s`."""
    for worker, loads in snapshot.loads.items():
        for partition, load in loads.items():
            if load.no_progress_s >= for_s and is_active(snapshot, partition):
                entry = ideal_entry(snapshot, partition)
                if entry is not None and entry.worker == worker:
                    yield partition, entry, load


def _owned(snapshot: Snapshot, has: Callable[[IdealEntry], bool]) -> Iterator[Owned]:
    """Active partitions that have something recorded."""
    for key, stored in snapshot.ideal.items():
        for number, entry in stored.value.entries.items():
            if has(entry) and entry.worker is not None:
                partition = Partition(key.route, key.topic, number)
                load = snapshot.loads.get(entry.worker, {}).get(partition)
                if load is not None and is_active(snapshot, partition):
                    yield partition, entry, load


def _listed(
    snapshot: Snapshot,
    view: ExternalView,
    partition: Partition,
    entry: IdealEntry,
    load: PartitionLoad,
) -> PartitionWithoutProgress:
    assert entry.worker is not None
    reported = view.of(partition)
    reason = reported[entry.worker].reason if entry.worker in reported else ""
    return PartitionWithoutProgress(
        partition=partition,
        ideal=entry.worker,
        actual=tuple(sorted(reported)),
        since_ms=_since_ms(snapshot, entry, load),
        moves=entry.no_progress_moves,
        reason=reason or "records are available, but the position does not advance",
        load=load,
    )


def _since_ms(snapshot: Snapshot, entry: IdealEntry, load: PartitionLoad) -> int:
    """Time without progress by the owner's measure, which begins with it; of what fails at each try the
    first failure."""
    measured_ms = snapshot.wall_ms - round(load.no_progress_s * 1_000)
    return min(measured_ms, entry.failing_since_ms) if entry.failing_since_ms else measured_ms
