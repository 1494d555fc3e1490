"""A live worker that does not let go is evicted: from then on its session counts as dead.

    asked --(handover_s)--> evicted --(answers its assignment)--> as any other worker
      |                        |
      +-- lets go in time      +--(rebalance_s)--> lost: its other partitions go elsewhere, too

The session of a worker proves only that one of its threads runs. If its main loop hangs, it never
lets go, and whatever it was asked for would wait for it for ever. So there is an end to the waiting:
its live node is deleted, and its session is written down as evicted in the same transaction.
Whoever gets its partitions fences its ids, as with any dead holder, so it can never commit them.

A worker registers again by itself, with the same session: the very thread that hides the hanging
loop does so. Hence the mark, which outlives the leader: an evicted session is in no
`Snapshot.sessions`, so it confirms nothing, keeps nobody waiting and is given nothing, until it has
answered the assignment that it has by then (`seen_zxid`). Until then it is absent like a worker that
vanished, and keeps what nobody asked of it for `rebalance_s`: its copiers may well be copying.

Time runs for each partition by itself. A worker that is handing over a thousand, one after the
other, is not hanging. A new session is another process, and has the whole time again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from ureplicator_common.model import KnownWorker, Partition, SessionId, WorkerId
from ureplicator_controller.core.planning.steps import Evict
from ureplicator_controller.core.state.snapshot import ReleaseRequest, Snapshot

T = TypeVar("T")

NOT_EVICTED = SessionId(0)


def release_requested_since(
    snapshot: Snapshot, waiting: Mapping[Partition, Sequence[WorkerId]], now_s: float
) -> dict[ReleaseRequest, float]:
    """Since when each of the live workers that are waited for was asked."""
    asks = (
        (partition, worker, snapshot.sessions[worker])
        for partition, workers in waiting.items()
        for worker in workers
        if worker in snapshot.live and worker in snapshot.sessions
    )
    return {ask: snapshot.release_requested_since.get(ask, now_s) for ask in asks}


def overdue_workers(
    snapshot: Snapshot, asked: Mapping[ReleaseRequest, float], now_s: float
) -> dict[WorkerId, Partition]:
    """Workers to evict, each with the first partition that it should have let go."""
    late: dict[WorkerId, Partition] = {}
    for (partition, worker, _), since_s in sorted(asked.items()):
        if now_s - since_s >= snapshot.delays.handover_s:
            late.setdefault(worker, partition)
    return late


def after_eviction(
    snapshot: Snapshot, workers: Mapping[WorkerId, Partition], now_s: float
) -> Snapshot:
    """The fleet as it is once those are evicted."""
    return replace(
        snapshot,
        sessions=_others(snapshot.sessions, workers),
        live=_others(snapshot.live, workers),
        current=_others(snapshot.current, workers),
        absent_since={**dict.fromkeys(workers, now_s), **snapshot.absent_since},
    )


def eviction_steps(snapshot: Snapshot, workers: Mapping[WorkerId, Partition]) -> Iterator[Evict]:
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
    """Whether the mark of a live worker's eviction has no more meaning."""
    session = snapshot.live[worker].owner
    if snapshot.known[worker].value.evicted_session != session:
        return True
    said, told = snapshot.current.get(worker), snapshot.assignments.get(worker)
    if said is None or said.owner != session:
        return False
    return told is None or said.value.seen_zxid >= told.mzxid


def _others(
    parts: Mapping[WorkerId, T], workers: Mapping[WorkerId, Partition]
) -> dict[WorkerId, T]:
    return {worker: part for worker, part in parts.items() if worker not in workers}
