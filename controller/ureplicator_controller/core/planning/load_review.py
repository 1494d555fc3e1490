"""Review of loads, once a minute: moves of partitions whose worker is live and may keep them.

Loads change every few seconds on every worker, but nothing that follows from them is urgent. So a
changed load does not trigger a cycle: a plan reviews loads when the time has come, and returns when the
next review is due.

    no progress   the partition goes to another worker           `no_progress`
    uneven load   overloaded workers are relieved, step by step  `load_balancing`

Both are automatic: a switch that stops automatic moves stops both. Load is not balanced while a worker
is absent or has just joined, or while a partition has no owner: loads are not representative then, and
pending moves might move the same partitions again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from ureplicator_common.model import Partition, WorkerId
from ureplicator_common.znode_contents import IdealEntry
from ureplicator_controller.core.planning.no_progress import (
    entries_without_suspects,
    partitions_to_move,
    recovered_entries,
    suspect_workers,
    workers_without_progress,
)
from ureplicator_controller.core.planning.switches import may_move
from ureplicator_controller.core.state.failures import failing_partitions
from ureplicator_controller.core.state.loads import LOAD_REVIEW_INTERVAL_S
from ureplicator_controller.core.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class LoadReview:
    """Result of one review; empty unless it `is_due`.

    `no_progress`: partitions to move, with the reason; never to one of `workers_without_progress`.
    `recovered`: ideal entries with their move count, suspect or time of failure cleared. `failing` partitions
    stay where they are: a failure is no measure of load.
    """

    is_due: bool = False
    next_at_s: float | None = None
    no_progress: Mapping[Partition, str] = field(default_factory=dict)
    workers_without_progress: Set[WorkerId] = frozenset()
    recovered: Mapping[Partition, IdealEntry] = field(default_factory=dict)
    failing: Set[Partition] = frozenset()


def review_loads(snapshot: Snapshot, eligible: Sequence[WorkerId], now_s: float) -> LoadReview:
    """Review the loads if that is due."""
    cleared = entries_without_suspects(snapshot)
    if not snapshot.loads:
        return LoadReview(recovered=cleared)
    if snapshot.load_review_at_s is None or now_s < snapshot.load_review_at_s:
        return LoadReview(next_at_s=snapshot.load_review_at_s, recovered=cleared)
    unfit = workers_without_progress(snapshot)
    is_move_useful = bool(set(eligible) - unfit) and may_move(snapshot.switches, False)
    return LoadReview(
        is_due=True,
        next_at_s=now_s + LOAD_REVIEW_INTERVAL_S,
        no_progress=partitions_to_move(snapshot) if is_move_useful else {},
        workers_without_progress=unfit,
        recovered=cleared or recovered_entries(snapshot),
        failing=failing_partitions(snapshot),
    )


def preferred_workers(
    snapshot: Snapshot,
    eligible: Sequence[WorkerId],
    review: LoadReview,
    entries: Iterable[IdealEntry],
) -> Sequence[WorkerId]:
    """Eligible workers without those that lack progress or are suspect, unless no others are left.

    `entries`: all of the fleet that may have a suspect.
    """
    preferred = eligible
    stalled = review.workers_without_progress if review.no_progress else frozenset[WorkerId]()
    for unfit in (stalled, suspect_workers(snapshot, entries)):
        preferred = [worker for worker in preferred if worker not in unfit] or preferred
    return preferred
