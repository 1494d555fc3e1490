"""Who counts as present: a worker that vanished keeps its place for a while, one that joined
waits.

    seen --> vanished --(rebalance_s)--> lost: its partitions are placed elsewhere
               |
               +--(back in time)--> as if nothing had happened: no move, no write

A restart of a worker is far more frequent than its death, and moving its partitions twice costs
more than leaving them alone for two minutes; hence the first delay. A fleet that is started grows
worker by worker, and each would start a rebalance of its own; hence the second: partitions are
moved to even out the counts only when `join_s` passed since the last join. Partitions that have no
owner wait for nothing, and an operator's word (to drain a worker) is done at once.

Times are the leader's monotonic seconds. A new leader starts counting when it begins to look, so a
failover makes a pending delay longer by no more than the delay itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ureplicator_common.model import KnownWorker, WorkerId
from ureplicator_controller.core.state.loads import LOAD_REVIEW_INTERVAL_S
from ureplicator_controller.core.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Membership:
    """The workers of one cycle. `takers` may be given partitions, in order.

    `away` vanished but keep their place until the time given. `leaving` must be emptied: why.
    """

    takers: tuple[WorkerId, ...]
    away: Mapping[WorkerId, float]
    leaving: Mapping[WorkerId, str]
    settled_at_s: float


def track_membership(before: Snapshot, seen: Snapshot, now_s: float) -> Snapshot:
    """`seen` with the times at which workers came and went, from those of the snapshot before.

    A worker that is back within the delay has not joined: a flapping one would else put off
    everybody's share for ever. Nor does it matter that it has another session.
    """
    absent_since = {
        worker: before.absent_since.get(worker, now_s)
        for worker in {*seen.known, *seen.assignments} - seen.sessions.keys()
    }
    present_since = dict(before.present_since)
    for worker, since_s in absent_since.items():
        if now_s - since_s >= seen.delays.rebalance_s:
            present_since.pop(worker, None)
    for worker in seen.sessions:
        gone_s = before.absent_since.get(worker, now_s)
        if now_s - gone_s >= seen.delays.rebalance_s > 0:
            present_since[worker] = now_s
        present_since.setdefault(worker, now_s)
    return replace(
        seen,
        absent_since=absent_since,
        present_since=present_since,
        release_requested_since=before.release_requested_since,
        load_review_at_s=now_s + LOAD_REVIEW_INTERVAL_S
        if before.load_review_at_s is None
        else before.load_review_at_s,
    )


def membership(snapshot: Snapshot, now_s: float) -> Membership:
    """Sort the workers. One that is neither a taker, away nor leaving is unclear: left alone."""
    takers: list[WorkerId] = []
    away: dict[WorkerId, float] = {}
    leaving: dict[WorkerId, str] = {}
    for worker in sorted({*snapshot.known, *snapshot.sessions, *snapshot.absent_since}):
        if worker in snapshot.unreadable_workers:
            continue
        why = _told_to_leave(worker, snapshot)
        back_by_s = snapshot.absent_since.get(worker, now_s) + snapshot.delays.rebalance_s
        if why:
            leaving[worker] = why
        elif worker in snapshot.sessions:
            takers.append(worker)
        elif worker in snapshot.absent_since and now_s < back_by_s:
            away[worker] = back_by_s
    return Membership(tuple(takers), away, leaving, _settled_at_s(snapshot))


def departure_reason(worker: WorkerId, now: Membership, snapshot: Snapshot) -> str:
    """Why a worker's partitions must go elsewhere; "" if they may stay."""
    if worker in now.leaving:
        return now.leaving[worker]
    if worker in snapshot.sessions or worker in now.away:
        return ""
    return f"worker {worker} lost"


def _told_to_leave(worker: WorkerId, snapshot: Snapshot) -> str:
    stored = snapshot.known.get(worker)
    known = stored.value if stored else KnownWorker(max_slots=0)
    return f"worker {worker} drained" if known.blacklisted or known.draining else ""


def _settled_at_s(snapshot: Snapshot) -> float:
    """When the last join is long enough ago."""
    joined = [snapshot.present_since.get(worker, 0.0) for worker in snapshot.sessions]
    return max(joined, default=0.0) + snapshot.delays.join_s
