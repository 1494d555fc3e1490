"""The leader's plan: `plan(snapshot, now_s) -> Plan`. Pure.

Contents of a plan, each decided in a module of its own:

    membership      eligible, delayed, leaving and lost workers, and those without capacity
    load_review     partitions without progress, once a minute
    new_owners      partitions that need another owner, and which worker gets them (`core.balance`)
    handover        how a partition goes to its new owner: ideal state, assignments, fencing
        holders         workers that may still be able to commit a partition
    retirement      removal of deleted topics
    bookkeeping     facts that outlive sessions: slots, committed positions
    eviction        live workers that do not release a partition in time
    limit_shares    shares of byte limits
    switches        what operators may switch off, and rebalances that they request
    owner_changes   what a plan moves, and its id
    state.mass_loss the brake: nothing moves while too many workers are lost

A live worker that never releases a partition would block it (`Plan.waiting`). It is evicted, and the
rest of the plan is made as if it were gone already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ureplicator_common.model import Partition, WorkerId
from ureplicator_controller.core.planning.bookkeeping import (
    forget_workers,
    mark_committed_positions,
    next_forgotten_s,
    register_workers,
)
from ureplicator_controller.core.planning.eviction import (
    after_eviction,
    eviction_steps,
    overdue_at_s,
    overdue_workers,
    pending_releases,
)
from ureplicator_controller.core.planning.handover import Handover
from ureplicator_controller.core.planning.limit_shares import next_division_s, share_steps
from ureplicator_controller.core.planning.load_review import LoadReview, review_loads
from ureplicator_controller.core.planning.membership import membership
from ureplicator_controller.core.planning.new_owners import select_owners
from ureplicator_controller.core.planning.owner_changes import owner_changes, plan_id
from ureplicator_controller.core.planning.partitions import PartitionViews
from ureplicator_controller.core.planning.retirement import topic_steps
from ureplicator_controller.core.planning.steps import Step
from ureplicator_controller.core.planning.switches import (
    PLAN_HAS_CHANGED,
    end_rebalance,
    forget_confirmed,
    is_rebalance_due,
    without_delays,
)
from ureplicator_controller.core.state.fleet_index import FleetIndexer
from ureplicator_controller.core.state.mass_loss import braked
from ureplicator_controller.core.state.snapshot import PendingRelease, ReleaseRequest, Snapshot


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps of one cycle, in order, and what the next cycle needs.

    `wake_at_s`: end of the next pending delay; None if there is no delay. `reasons`: for the log.
    `waiting`: partitions that cannot be assigned because of these workers: they are alive and still
    hold the partition, or their transactional ids are unknown. `pending_releases`: since when
    the live ones are waited for; the leader passes it to the next plan with the snapshot.
    """

    steps: tuple[Step, ...]
    wake_at_s: float | None
    reasons: tuple[str, ...]
    waiting: Mapping[Partition, tuple[WorkerId, ...]] = field(default_factory=dict)
    pending_releases: Mapping[ReleaseRequest, PendingRelease] = field(default_factory=dict)
    load_review_at_s: float | None = None


def plan(snapshot: Snapshot, now_s: float, indexer: FleetIndexer | None = None) -> Plan:
    """Plan the steps from this snapshot towards what operators want.

    With the indexer of former plans, what has not changed since is not looked at again; the plan is the same.
    """
    if is_rebalance_due(snapshot):
        return _plan_rebalance(snapshot, now_s, indexer)
    return _plan_with_evictions(snapshot, now_s, indexer)


def _plan_rebalance(snapshot: Snapshot, now_s: float, indexer: FleetIndexer | None) -> Plan:
    """Plan once without delays, whatever the switches are; pending delays end with it."""
    decided = _plan_with_evictions(without_delays(snapshot), now_s, indexer)
    wanted = snapshot.switches.rebalance_plan
    if wanted and plan_id(owner_changes(snapshot, decided.steps)) != wanted:
        return _refuse_rebalance(snapshot, now_s, indexer)
    return replace(
        decided,
        steps=(*decided.steps, *end_rebalance(snapshot)),
        reasons=("rebalance requested", *decided.reasons),
    )


def _refuse_rebalance(snapshot: Snapshot, now_s: float, indexer: FleetIndexer | None) -> Plan:
    """Plan as it is without the request, which wants another plan than the one that is due now."""
    decided = _plan_with_evictions(snapshot, now_s, indexer)
    return replace(
        decided,
        steps=(*decided.steps, *end_rebalance(snapshot, PLAN_HAS_CHANGED)),
        reasons=(f"rebalance refused: {PLAN_HAS_CHANGED}", *decided.reasons),
    )


def _plan_with_evictions(snapshot: Snapshot, now_s: float, indexer: FleetIndexer | None) -> Plan:
    """Plan; if that shows overdue workers, evict them and plan again as if they were gone."""
    decided = _plan_once(snapshot, now_s, indexer)
    overdue = overdue_workers(snapshot, decided.pending_releases, now_s)
    if not overdue:
        return decided
    after = _plan_once(after_eviction(snapshot, overdue, now_s), now_s, indexer)
    reasons = (
        f"worker {worker} evicted: did not release {overdue[worker]}" for worker in sorted(overdue)
    )
    return replace(
        after,
        steps=(*eviction_steps(snapshot, overdue), *after.steps),
        reasons=(*reasons, *after.reasons),
    )


def _plan_once(seen: Snapshot, now_s: float, indexer: FleetIndexer | None) -> Plan:
    snapshot = braked(seen, now_s)
    workers = membership(snapshot, now_s)
    review = review_loads(snapshot, workers.eligible, now_s)
    views = PartitionViews(snapshot, indexer.of(snapshot) if indexer else None)
    if workers.eligible:
        views.open_unowned()
    views.open({partition.key for partition in (*review.no_progress, *review.recovered)})
    delay_ends_at_s = select_owners(
        snapshot=snapshot, views=views, membership=workers, review=review, now_s=now_s
    )
    reasons: Counter[str] = Counter()
    handover = Handover(snapshot=snapshot, views=views, recovered=review.recovered, reasons=reasons)
    for view in views.each():
        handover.decide(view)
    steps = (
        *forget_confirmed(seen),
        *register_workers(snapshot, reasons),
        *mark_committed_positions(snapshot, views.each(), reasons),
        *share_steps(snapshot, reasons),
        *topic_steps(snapshot, views, handover=handover, reasons=reasons),
        *handover.assignment_steps(),
        *forget_workers(snapshot, now_s, reasons),
    )
    pending = pending_releases(snapshot, handover.waiting, now_s)
    return Plan(
        steps=steps,
        wake_at_s=_wake_at_s(snapshot, delay_ends_at_s, pending, review, now_s),
        reasons=tuple(f"{why} ({n})" if n > 1 else why for why, n in sorted(reasons.items())),
        waiting=handover.waiting,
        pending_releases=pending,
        load_review_at_s=review.next_at_s,
    )


def _wake_at_s(
    snapshot: Snapshot,
    delay_ends_at_s: float | None,
    pending: Mapping[ReleaseRequest, PendingRelease],
    review: LoadReview,
    now_s: float,
) -> float | None:
    """Earliest time at which a plan of the same snapshot would differ."""
    times = (
        delay_ends_at_s,
        min((overdue_at_s(release, snapshot.delays) for release in pending.values()), default=None),
        review.next_at_s,
        next_division_s(snapshot, now_s),
        next_forgotten_s(snapshot, now_s),
    )
    return min((at_s for at_s in times if at_s is not None), default=None)
