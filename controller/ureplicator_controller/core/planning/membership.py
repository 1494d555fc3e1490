"""Workers of one cycle: eligible, delayed, leaving or lost.

    live --> absent --(rebalance_s)--> lost: its partitions are placed elsewhere
               |
               +--(back in time)--> live: no move, no write

A restart of a worker is far more frequent than its permanent loss, and moving its partitions twice
costs more than two minutes without copying; hence `rebalance_s`. A fleet that starts grows worker by
worker, and each join would start a rebalance; hence `join_s`: counts are evened out only when that time
has passed since the last join. Partitions without an owner wait for neither, and a request of operators
(to drain a worker) takes effect at once.

Times are the leader's monotonic seconds. A new leader starts counting when it takes its first snapshot,
so a failover prolongs a pending delay by no more than the delay itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ureplicator_common.contents import KnownWorker
from ureplicator_common.model import WorkerId
from ureplicator_controller.core.state.loads import LOAD_REVIEW_INTERVAL_S
from ureplicator_controller.core.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Membership:
    """Workers by what may happen to their partitions.

    `eligible` may get partitions, in order. `delayed` are absent and keep theirs until the rebalance
    delay ends (worker -> time). `leaving` are drained (worker -> reason). A worker in none of them is
    lost, or has an unreadable node and is left unchanged.
    """

    eligible: tuple[WorkerId, ...]
    delayed: Mapping[WorkerId, float]
    leaving: Mapping[WorkerId, str]
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
    return replace(
        seen,
        absent_since=absent_since,
        present_since=_present_since(before, seen, absent_since, now_s),
        release_requested_since=before.release_requested_since,
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
        if now_s - left_at_s >= delay_s > 0:
            present_since[worker] = now_s
        present_since.setdefault(worker, now_s)
    return present_since


def membership(snapshot: Snapshot, now_s: float) -> Membership:
    """Classify the workers of a snapshot."""
    eligible: list[WorkerId] = []
    delayed: dict[WorkerId, float] = {}
    leaving: dict[WorkerId, str] = {}
    for worker in sorted({*snapshot.known, *snapshot.sessions, *snapshot.absent_since}):
        if worker in snapshot.unreadable_workers:
            continue
        delay_ends_at_s = snapshot.absent_since.get(worker, now_s) + snapshot.delays.rebalance_s
        if is_leaving(known_worker(snapshot, worker)):
            leaving[worker] = f"worker {worker} drained"
        elif worker in snapshot.sessions:
            eligible.append(worker)
        elif worker in snapshot.absent_since and now_s < delay_ends_at_s:
            delayed[worker] = delay_ends_at_s
    return Membership(tuple(eligible), delayed, leaving, _joins_settled_at_s(snapshot))


def departure_reason(worker: WorkerId, workers: Membership, snapshot: Snapshot) -> str:
    """Reason why a worker's partitions must move; "" if they may stay."""
    if worker in workers.leaving:
        return workers.leaving[worker]
    if worker in snapshot.sessions or worker in workers.delayed:
        return ""
    return f"worker {worker} lost"


def known_worker(snapshot: Snapshot, worker: WorkerId) -> KnownWorker:
    """Record of a worker; an empty one if it has none yet."""
    stored = snapshot.known.get(worker)
    return stored.value if stored else KnownWorker(max_slots=0)


def is_leaving(known: KnownWorker) -> bool:
    """True if operators want the worker without partitions."""
    return known.blacklisted or known.draining


def _joins_settled_at_s(snapshot: Snapshot) -> float:
    """Time at which `join_s` has passed since the last join."""
    joined = [snapshot.present_since.get(worker, 0.0) for worker in snapshot.sessions]
    return max(joined, default=0.0) + snapshot.delays.join_s
