"""The leader's look at loads, every minute: what moves although its worker lives and keeps it.

A load is news every few seconds and from every worker, but nothing that follows from it is urgent.
So it wakes nobody; a plan whose time has come looks, and says when the next one should.

    stuck     partitions without progress go to another worker        `no_progress`
    uneven    workers that carry too much are relieved, with a budget `levelling`

Both are the fleet's own judgement: a switch that stops it stops both. Nothing is evened out while
somebody is away or has just joined, or while a partition is without owner: the picture is not one
to judge by, and what is pending might move the same partitions again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from ureplicator_common.model import IdealEntry, Partition, WorkerId
from ureplicator_controller.core.planning.no_progress import (
    entries_without_suspects,
    no_progress_moves,
    recovered_entries,
    suspect_workers,
    workers_without_progress,
)
from ureplicator_controller.core.planning.switches import is_rebalance_due, may_move
from ureplicator_controller.core.state.loads import LOAD_REVIEW_INTERVAL_S
from ureplicator_controller.core.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class LoadReview:
    """Result of one review; empty unless it `is_due`.

    `no_progress`: partitions to move, with the reason; never to one of `workers_without_progress`.
    `recovered`: ideal entries with their move count or suspect cleared.
    """

    is_due: bool = False
    next_at_s: float | None = None
    no_progress: Mapping[Partition, str] = field(default_factory=dict)
    workers_without_progress: Set[WorkerId] = frozenset()
    recovered: Mapping[Partition, IdealEntry] = field(default_factory=dict)


def review_loads(snapshot: Snapshot, takers: Sequence[WorkerId], now_s: float) -> LoadReview:
    """What there is to see, if it is time."""
    if not snapshot.loads:
        return LoadReview(
            recovered=entries_without_suspects(snapshot) if is_rebalance_due(snapshot) else {}
        )
    if snapshot.load_review_at_s is None or now_s < snapshot.load_review_at_s:
        return LoadReview(next_at_s=snapshot.load_review_at_s)
    sick = workers_without_progress(snapshot)
    is_of_use = bool(set(takers) - sick) and may_move(snapshot.switches, False)
    return LoadReview(
        is_due=True,
        next_at_s=now_s + LOAD_REVIEW_INTERVAL_S,
        no_progress=no_progress_moves(snapshot) if is_of_use else {},
        workers_without_progress=sick,
        recovered=entries_without_suspects(snapshot)
        if is_rebalance_due(snapshot)
        else recovered_entries(snapshot),
    )


def preferred_workers(
    snapshot: Snapshot, takers: Sequence[WorkerId], seen: LoadReview
) -> Sequence[WorkerId]:
    """Without those that something is stuck on, or was, as long as others are left."""
    fit = takers
    for unfit in (
        seen.workers_without_progress if seen.no_progress else set(),
        suspect_workers(snapshot),
    ):
        fit = [worker for worker in fit if worker not in unfit] or fit
    return fit
