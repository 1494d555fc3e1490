"""Workers of one cycle: eligible, delayed, without capacity, leaving or lost.

    live --> absent --(rebalance_s)--> lost: its partitions are placed elsewhere
               |
               +--(back in time)--> live: no move, no write

A restart of a worker is far more frequent than its permanent loss, and moving its partitions twice
costs more than two minutes without copying; hence `rebalance_s`. A fleet that starts grows worker by
worker, and each join would start a rebalance; hence `join_s`: counts are evened out only when that time
has passed since the last join. Partitions without an owner wait for neither, and a request of operators
(to drain a worker) takes effect at once.

A worker that is stopped for good says so before it ends (`LiveWorker.leaving`). That is a request of
operators, like draining, which ends with the session.

A live worker of which no copier can run (`LiveWorker.no_capacity`: its Spark cluster has no room for
it) gives its partitions to workers that have capacity, and gets no others. When a copier runs again, it
counts as joined, also in a process that was started since: that one does not know what it lacks before it
has tried. If no worker has capacity, a move would only add to the outage: then each keeps what
it has. That is so until one has had capacity for `join_s`: when a cluster comes back, or a fleet starts,
the first worker with a copier must not get what all others are about to copy.

Times are the leader's monotonic seconds. A new leader starts counting when it takes its first snapshot,
so a failover prolongs a pending delay by no more than the delay itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace

from ureplicator_common.model import WorkerId
from ureplicator_common.znode_contents import KnownWorker
from ureplicator_controller.core.state.loads import LOAD_REVIEW_INTERVAL_S
from ureplicator_controller.core.state.mass_loss import delay_ends_at_s, is_brake_held
from ureplicator_controller.core.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Membership:
    """Workers by what may happen to their partitions.

    `eligible` may get partitions, in order. `delayed` are absent and keep theirs until the rebalance
    delay ends (worker -> time). `leaving` are drained, or leave (worker -> reason). `without_capacity` are
    live, and others have capacity. A worker in none of them is lost, or has an unreadable node and is left
    unchanged.
    """

    eligible: tuple[WorkerId, ...]
    delayed: Mapping[WorkerId, float]
    leaving: Mapping[WorkerId, str]
    without_capacity: Set[WorkerId]
    joins_settled_at_s: float


def track_membership(before: Snapshot, seen: Snapshot, now_s: float) -> Snapshot:
    """Add to `seen` the times at which workers joined and left, given the snapshot before.

    A worker that is back within the delay has not joined, whatever its session: otherwise a flapping
    worker would postpone the even distribution indefinitely.
    """
    absent_since = {
        worker: before.absent_since.get(worker, now_s)
        for worker in {*seen.known, *seen.assignments} - seen.sessions.keys()
    }
    load_review_at_s = before.load_review_at_s
    if load_review_at_s is None:
        load_review_at_s = now_s + LOAD_REVIEW_INTERVAL_S
    lacking = {worker for worker in seen.live if lacks_capacity(seen, worker)}
    tracked = replace(seen, absent_since=absent_since)
    is_braked = is_brake_held(tracked, now_s)
    return replace(
        tracked,
        is_braked=is_braked,
        brake_held_at_s=now_s if is_braked or before.is_braked else before.brake_held_at_s,
        without_capacity=frozenset(lacking | (before.without_capacity & absent_since.keys())),
        present_since=_present_since(before, seen, absent_since, now_s),
        pending_releases=before.pending_releases,
        load_review_at_s=load_review_at_s,
    )


def _present_since(
    before: Snapshot, seen: Snapshot, absent_since: Mapping[WorkerId, float], now_s: float
) -> dict[WorkerId, float]:
    """Time of each worker's last join; a lost worker has none."""
    delay_s = seen.delays.rebalance_s
    present_since = dict(before.present_since)
    for worker, since_s in absent_since.items():
        if now_s - since_s >= delay_s:
            present_since.pop(worker, None)
    for worker in seen.sessions:
        left_at_s = before.absent_since.get(worker, now_s)
        if now_s - left_at_s >= delay_s > 0 or _has_capacity_again(worker, before, seen):
            present_since[worker] = now_s
        present_since.setdefault(worker, now_s)
    return present_since


def _has_capacity_again(worker: WorkerId, before: Snapshot, seen: Snapshot) -> bool:
    return worker in before.without_capacity and not lacks_capacity(seen, worker)


def lacks_capacity(snapshot: Snapshot, worker: WorkerId) -> bool:
    """True if a live worker reports that no copier of it can run."""
    live = snapshot.live.get(worker)
    return live is not None and live.value.no_capacity != ""


def announces_leaving(snapshot: Snapshot, worker: WorkerId) -> bool:
    """True if a live worker is stopped for good and waits for others to take its partitions."""
    live = snapshot.live.get(worker)
    return live is not None and worker in snapshot.sessions and live.value.leaving


def membership(snapshot: Snapshot, now_s: float) -> Membership:
    """Classify the workers of a snapshot."""
    eligible: list[WorkerId] = []
    delayed: dict[WorkerId, float] = {}
    leaving: dict[WorkerId, str] = {}
    for worker in sorted({*snapshot.known, *snapshot.sessions, *snapshot.absent_since}):
        if worker in snapshot.unreadable_workers:
            continue
        ends_at_s = delay_ends_at_s(snapshot, worker, now_s)
        if known_worker(snapshot, worker).is_drained:
            leaving[worker] = f"worker {worker} drained"
        elif announces_leaving(snapshot, worker):
            leaving[worker] = f"worker {worker} leaves"
        elif worker in snapshot.sessions:
            eligible.append(worker)
        elif worker in snapshot.absent_since and now_s < ends_at_s:
            delayed[worker] = ends_at_s
    capable = [worker for worker in eligible if not lacks_capacity(snapshot, worker)]
    if not any(_has_settled(worker, snapshot, now_s) for worker in capable):
        capable = eligible
    return Membership(
        eligible=tuple(capable),
        delayed=delayed,
        leaving=leaving,
        without_capacity=frozenset(eligible).difference(capable),
        joins_settled_at_s=_joins_settled_at_s(snapshot),
    )


def departure_reason(worker: WorkerId, workers: Membership, snapshot: Snapshot) -> str:
    """Reason why a worker's partitions must move; "" if they may stay."""
    if worker in workers.leaving:
        return workers.leaving[worker]
    if worker in workers.without_capacity:
        return f"worker {worker} has no capacity"
    if worker in snapshot.sessions or worker in workers.delayed:
        return ""
    return f"worker {worker} lost"


def known_worker(snapshot: Snapshot, worker: WorkerId) -> KnownWorker:
    """Record of a worker; an empty one if it has none yet."""
    stored = snapshot.known.get(worker)
    return stored.value if stored else KnownWorker(max_slots=0)


def _has_settled(worker: WorkerId, snapshot: Snapshot, now_s: float) -> bool:
    return now_s >= snapshot.present_since.get(worker, 0.0) + snapshot.delays.join_s


def _joins_settled_at_s(snapshot: Snapshot) -> float:
    """Time at which `join_s` has passed since the last join."""
    joined = [snapshot.present_since.get(worker, 0.0) for worker in snapshot.sessions]
    return max(joined, default=0.0) + snapshot.delays.join_s
