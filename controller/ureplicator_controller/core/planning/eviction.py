"""Eviction of a live worker that does not release a partition: its session counts as dead.

    requested --(overdue)-----> evicted --(confirms its assignment)--> as any other worker
      |                            |
      +-- releases in time         +--(rebalance_s)--> lost: its other partitions move, too

A worker's session proves only that one of its threads runs. If its main loop hangs, it never releases a
partition, and the handover would wait indefinitely. So the wait is bounded: the worker's live node is
deleted, and its session is recorded as evicted in the same transaction. The next owner of its partitions
fences its ids, as for any dead holder, so it can never commit them.

The worker registers again by itself, with the same session: the thread that keeps the session alive
does that. Hence the record, which outlives the leader: an evicted session is not in
`Snapshot.sessions`. It confirms nothing, delays no handover and gets no partition until it has confirmed
its current assignment (`seen_zxid`). Until then it is absent like a worker that was lost, and keeps the
partitions that it was not requested to release for `rebalance_s`: its copiers may well be copying.

The timeout runs per partition. It begins again whenever the worker has released another one that was
requested no later: a worker that releases a thousand partitions one by one does not hang, and what is
requested later cannot hide one that does. After `MAX_EXTENSION` times the timeout it ends in any case. A new
session is another process, and has the whole timeout again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import TypeVar

from ureplicator_common.model import Partition, SessionId, WorkerId
from ureplicator_common.znode_contents import KnownWorker
from ureplicator_controller.core.planning.steps import Evict
from ureplicator_controller.core.state.snapshot import (
    Delays,
    PendingRelease,
    ReleaseRequest,
    Snapshot,
)

T = TypeVar("T")

NOT_EVICTED = SessionId(0)


MAX_EXTENSION = 10
"""A thousand partitions at 4 a second, with the default timeout."""


def pending_releases(
    snapshot: Snapshot, waiting: Mapping[Partition, Sequence[WorkerId]], now_s: float
) -> dict[ReleaseRequest, PendingRelease]:
    """Releases that each live worker is waited for, with the times that its eviction depends on."""
    requests = (
        (partition, worker, snapshot.sessions[worker])
        for partition, workers in waiting.items()
        for worker in workers
        if worker in snapshot.live and worker in snapshot.sessions
    )
    before, new = snapshot.pending_releases, PendingRelease(now_s, now_s)
    pending = {request: before.get(request, new) for request in requests}
    released = _earliest_released(snapshot, before.keys() - pending.keys())
    return {
        request: replace(release, idle_since_s=now_s)
        if release.requested_s >= released.get(request[1], math.inf)
        else release
        for request, release in pending.items()
    }


def _earliest_released(
    snapshot: Snapshot, ended: Iterable[ReleaseRequest]
) -> dict[WorkerId, float]:
    """Worker -> earliest request among those that it has just met. Others have become void."""
    earliest: dict[WorkerId, float] = {}
    for partition, worker, session in ended:
        current, assignment = snapshot.current.get(worker), snapshot.assignments.get(worker)
        if current is None or current.owner != session or partition in current.value.entries:
            continue
        if assignment is None or current.value.seen_zxid >= assignment.mzxid:
            at_s = snapshot.pending_releases[partition, worker, session].requested_s
            earliest[worker] = min(at_s, earliest.get(worker, at_s))
    return earliest


def overdue_at_s(pending: PendingRelease, delays: Delays) -> float:
    """Time at which the worker is evicted for this release."""
    return min(
        pending.idle_since_s + delays.handover_s,
        pending.requested_s + MAX_EXTENSION * delays.handover_s,
    )


def overdue_workers(
    snapshot: Snapshot, pending: Mapping[ReleaseRequest, PendingRelease], now_s: float
) -> dict[WorkerId, Partition]:
    """Workers to evict, each with the first partition that it should have released."""
    overdue: dict[WorkerId, Partition] = {}
    for (partition, worker, _), release in sorted(pending.items(), key=itemgetter(0)):
        if now_s >= overdue_at_s(release, snapshot.delays):
            overdue.setdefault(worker, partition)
    return overdue


def after_eviction(
    snapshot: Snapshot, workers: Mapping[WorkerId, Partition], now_s: float
) -> Snapshot:
    """Snapshot as it will be after these workers are evicted."""
    return replace(
        snapshot,
        sessions=_others(snapshot.sessions, workers),
        live=_others(snapshot.live, workers),
        current=_others(snapshot.current, workers),
        absent_since={**dict.fromkeys(workers, now_s), **snapshot.absent_since},
    )


def eviction_steps(snapshot: Snapshot, workers: Mapping[WorkerId, Partition]) -> Iterator[Evict]:
    """Steps that evict the workers."""
    for worker in sorted(workers):
        live, stored = snapshot.live[worker], snapshot.known.get(worker)
        known = stored.value if stored else KnownWorker(max_slots=live.value.slots)
        yield Evict(
            worker,
            live.owner,
            live.version,
            replace(known, evicted_session=live.owner),
            stored.version if stored else None,
        )


def is_eviction_over(snapshot: Snapshot, worker: WorkerId) -> bool:
    """True if a live worker's eviction ends: it confirmed, or has another session."""
    session = snapshot.live[worker].owner
    if snapshot.known[worker].value.evicted_session != session:
        return True
    current, assignment = snapshot.current.get(worker), snapshot.assignments.get(worker)
    if current is None or current.owner != session:
        return False
    return assignment is None or current.value.seen_zxid >= assignment.mzxid


def _others(
    parts: Mapping[WorkerId, T], workers: Mapping[WorkerId, Partition]
) -> dict[WorkerId, T]:
    return {worker: part for worker, part in parts.items() if worker not in workers}
