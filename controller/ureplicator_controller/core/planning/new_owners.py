"""Partitions that need another owner, and the worker that gets each of them.

    a partition has no owner, or its owner is lost, drained,
    has no capacity or is not for its route                       placed at once
    counts are uneven (a worker joined)                           moved once joins have settled
    no progress, or uneven load                                   moved by a load review (`load_review`)

A partition that has a live owner and may stay with it is moved for the sake of others only in the
second and third case, and only if the switches allow it. How a worker is chosen is in
`balance.placement`, and from which ones in `balance.pools`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ureplicator_common.model import Partition, Route, WorkerId
from ureplicator_controller.core.balance.even_counts import EvenCounts, even_counts
from ureplicator_controller.core.balance.load_balancing import BalancedFleet, balance_loads
from ureplicator_controller.core.balance.placement import Move, Placement
from ureplicator_controller.core.balance.pools import select_pools
from ureplicator_controller.core.planning.load_review import LoadReview, preferred_workers
from ureplicator_controller.core.planning.membership import (
    Membership,
    departure_reason,
    lacks_capacity,
)
from ureplicator_controller.core.planning.partitions import PartitionView, PartitionViews
from ureplicator_controller.core.planning.switches import may_move
from ureplicator_controller.core.state.exclusions import (
    BLACKLISTED,
    DELETING,
    PAUSED,
    POSITION_REQUESTED,
    ROUTE_PAUSED,
    ROUTE_RESUMED,
    STOPPED,
    exclusion_reason,
    is_configured,
)
from ureplicator_controller.core.state.fleet_index import NO_WORKER, RouteWorker
from ureplicator_controller.core.state.loads import Rates, settled_rates
from ureplicator_controller.core.state.snapshot import Snapshot


def select_owners(
    *,
    snapshot: Snapshot,
    views: PartitionViews,
    membership: Membership,
    review: LoadReview,
    now_s: float,
) -> float | None:
    """Set `move` of every partition that gets another owner; return when the next delay ends.

    Opens the views of more topics, where partitions may move for the sake of others.
    """
    selection = _OwnerSelection(
        snapshot=snapshot, views=views, membership=membership, review=review, now_s=now_s
    )
    selection.place(selection.find_unplaced())
    return selection.wake_at_s


class _OwnerSelection:
    """Working state of one plan: the partitions by owner, and the next time that matters."""

    def __init__(
        self,
        *,
        snapshot: Snapshot,
        views: PartitionViews,
        membership: Membership,
        review: LoadReview,
        now_s: float,
    ) -> None:
        self.wake_at_s: float | None = None
        self._snapshot = snapshot
        self._views = views
        self._membership = membership
        self._review = review
        self._now_s = now_s
        self._pools = select_pools(
            snapshot,
            preferred=preferred_workers(
                snapshot,
                membership.eligible,
                review,
                (view.before for view in views.each() if view.before is not None),
            ),
            counted=(*membership.delayed, *membership.eligible),
            owners=self._owners,
        )
        self._placement = Placement(self._pools)
        self._eligible = frozenset(membership.eligible)

    def _owners(self) -> Iterator[tuple[Route, WorkerId]]:
        for view in self._views.each():
            if view.owner is not None:
                yield view.key.route, view.owner
        yield from self._views.counts.elements()

    def _wake_by(self, at_s: float) -> None:
        self.wake_at_s = at_s if self.wake_at_s is None else min(self.wake_at_s, at_s)

    # Partitions without an owner that may keep them.

    def find_unplaced(self) -> list[PartitionView]:
        """Count all partitions by owner; return the active ones that need another owner."""
        self._views.open_owned(self._may_lose)
        for (route, worker), number in self._views.counts.items():
            self._placement.add_fixed(worker, route, number)
        return [view for view in self._views.each() if self._needs_owner(view)]

    def _may_lose(self, pair: RouteWorker) -> bool:
        """True if a worker may have to give partitions of the route away, or has them for a time only."""
        route, worker = pair
        return (
            worker not in self._eligible
            or lacks_capacity(self._snapshot, worker)
            or self._is_foreign(worker, route)
        )

    def _needs_owner(self, view: PartitionView) -> bool:
        """True if a partition needs another owner; count it for its owner if it does not."""
        if view.is_unreadable:
            self._count_unreadable(view)
            return False
        excluded = exclusion_reason(
            view.intent,
            view.partition.number,
            is_route_configured=is_configured(self._snapshot, view.key.route),
            is_route_paused=self._is_route_paused(view),
            is_blacklisted=view.key in self._snapshot.blacklist,
        )
        if excluded:
            view.move = Move(None, excluded)
            return False
        reason = self._unplaced_reason(view)
        without_progress = self._review.no_progress
        no_progress = without_progress.get(view.partition, "") if without_progress else ""
        if reason or no_progress:
            view.move = Move(None, reason or no_progress, no_progress=not reason)
            return True
        if view.owner is not None:
            self._count(view, view.owner)
        return False

    def _is_route_paused(self, view: PartitionView) -> bool:
        """True for a paused route. While the switches cannot be read, what was paused with its route
        stays so."""
        if self._snapshot.are_switches_readable:
            return view.key.route in self._snapshot.switches.paused_routes
        entry = view.before
        return entry is not None and entry.worker is None and entry.reason == ROUTE_PAUSED

    def _count(self, view: PartitionView, owner: WorkerId) -> None:
        """Count for its owner. A partition moved for lack of progress is not moved for even counts."""
        if view.before is not None and view.before.no_progress_moves:
            self._placement.add_fixed(owner, view.key.route)
        else:
            self._placement.add_movable(owner, view.key, view.partition)
        if owner in self._membership.delayed:
            self._wake_by(self._membership.delayed[owner])
        elif self._now_s < self._membership.joins_settled_at_s and lacks_capacity(
            self._snapshot, owner
        ):
            self._wake_by(self._membership.joins_settled_at_s)

    def _count_unreadable(self, view: PartitionView) -> None:
        """Count for the worker that has it; the partition itself is not changed."""
        if view.owner is not None:
            self._placement.add_fixed(view.owner, view.key.route)
        elif view.assigned:
            self._placement.add_fixed(next(iter(view.assigned)), view.key.route)

    def _unplaced_reason(self, view: PartitionView) -> str:
        """Reason why an active partition needs an owner; "" if it has one that may keep it."""
        entry = view.before
        if entry is None:
            return "new partition" if view.key in self._snapshot.ideal else "new topic"
        owner = entry.worker
        if owner is None:
            return _return_reason(entry.reason)
        switches, is_leaving = self._snapshot.switches, owner in self._membership.leaving
        if owner in self._snapshot.sessions or view.assignment_of(owner):
            reason = departure_reason(
                owner, self._membership, self._snapshot
            ) or self._foreign_reason(view, owner)
            return reason if may_move(switches, is_leaving) else ""
        if switches.frozen and not is_leaving:
            return ""
        return f"worker {owner} lost before it was assigned the partition"

    def _foreign_reason(self, view: PartitionView, owner: WorkerId) -> str:
        """Reason to leave a worker that is not in the pool of the route; "" if it is, or no other is."""
        route = view.key.route
        return f"worker {owner} is not for route {route}" if self._is_foreign(owner, route) else ""

    def _is_foreign(self, worker: WorkerId, route: Route) -> bool:
        placement = self._placement
        return placement.can_place(route) and not placement.is_member(worker, route)

    # New owners.

    def place(self, unplaced: Sequence[PartitionView]) -> None:
        """Choose owners: for the unplaced partitions, then for even counts, then for even load."""
        placement = self._placement
        placeable: list[PartitionView] = []
        for view in unplaced:
            if placement.can_place(view.key.route):
                placeable.append(view)
            else:
                self._keep_lost_owner(view)
        if not self._membership.eligible:
            return
        if placeable or self._review.is_due or EvenCounts(placement).has_moves():
            placement.use_rates(self._rates())
        for view in sorted(placeable, key=self._order):
            move = view.move or Move(None, "")
            view.move = replace(move, worker=placement.place(view.key, view.partition))
        moves = self._moves_for_balance(is_placing=bool(placeable))
        self._views.open({partition.key for partition in moves})
        for partition, move in moves.items():
            self._views.by_topic[partition.key][partition.number].move = move

    def _order(self, view: PartitionView) -> tuple[int, float]:
        """Narrow pools first, then what copies most."""
        return self._pools.number_of(view.key.route), -self._placement.estimate.rate(view.partition)

    def _moves_for_balance(self, *, is_placing: bool) -> Mapping[Partition, Move]:
        """Moves to even counts; if counts are even and nothing is being placed, to even load."""
        is_allowed = may_move(self._snapshot.switches, False)
        moves = self._moves_to_even_counts() if is_allowed else {}
        if moves and self._now_s < self._membership.joins_settled_at_s:
            self._wake_by(self._membership.joins_settled_at_s)
            return {}
        if moves:
            return moves
        for (
            delay_ends_at_s
        ) in self._membership.delayed.values():  # its share is reserved until then
            self._wake_by(delay_ends_at_s)
        return {} if is_placing else self._moves_for_load()

    def _moves_to_even_counts(self) -> Mapping[Partition, Move]:
        if not EvenCounts(self._placement).has_moves():
            return {}
        for view in self._views.open_all():
            if view.owner is not None:
                self._placement.make_movable(view.owner, view.key, view.partition)
        return even_counts(self._placement)

    def _moves_for_load(self) -> Mapping[Partition, Move]:
        """Moves to even load, if a review is due and no join or rebalance delay is pending."""
        is_stable = (
            not self._membership.delayed and self._now_s >= self._membership.joins_settled_at_s
        )
        is_allowed = may_move(self._snapshot.switches, False)
        if not (is_stable and self._review.is_due and is_allowed):
            return {}
        placement, pools, at_rest = self._placement, self._pools, self._views.owned_at_rest()
        fleet = BalancedFleet(
            owned={
                worker: [*partitions, *at_rest.get(worker, ())]
                for worker, partitions in placement.owned().items()
            },
            counts=placement.counts,
            spare=EvenCounts(placement).spare(),
            slots={worker: pools.offer(worker).slots for worker in placement.counts},
            pool=lambda partition: pools.number_of(partition.route),
            pools=[frozenset(pool.eligible) for pool in pools.each],
            failing=self._review.failing,
        )
        return balance_loads(fleet, self._rates(), self._snapshot.limits)

    def _rates(self) -> Rates:
        return settled_rates(self._snapshot.loads)

    def _keep_lost_owner(self, view: PartitionView) -> None:
        """Keep a lost owner where no worker is eligible: if it comes back, it just continues."""
        owner = view.owner
        if view.move is not None and (owner is None or owner in self._membership.leaving):
            view.move = Move(None, f"{view.move.reason}; {self._no_worker(view.key.route)}")
        else:
            view.move = None

    def _no_worker(self, route: Route) -> str:
        """The reason, with the tags that no eligible worker has."""
        stored = self._snapshot.routes.get(route)
        tags = stored.value.workers.tags if stored and self._membership.eligible else ()
        return f"{NO_WORKER} has tags {', '.join(tags)}" if tags else NO_WORKER


def _return_reason(reason: str) -> str:
    """Reason why a partition gets an owner again, from the reason why it had none."""
    if reason.startswith(STOPPED):
        return "resumed"
    returned = {
        PAUSED: "resumed",
        ROUTE_PAUSED: ROUTE_RESUMED,
        BLACKLISTED: "removed from the blacklist",
        DELETING: "new topic",
        POSITION_REQUESTED: "position changed",
    }
    return returned.get(reason, reason.partition(f"; {NO_WORKER}")[0])
