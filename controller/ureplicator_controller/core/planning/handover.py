"""Handover of a partition: owner, holders and assignments, one safe step after the other.

A partition goes from one worker to another in these steps. Each is one transaction, and each may be the
last one for any length of time, since the leader may die after it:

    1. ideal state  the new owner, with a new owner epoch
    2. revoke       removed from the assignment of every worker but the owner (dead ones too: a worker
                    that comes back must not find what another one owns by then)
    3. (wait)       until no live worker holds it (`holders`): it drains, commits, and reports so
    4. ideal state  confirmed holders are removed, the owner is added with its session
    5. assign       added to the owner's assignment, with the transactional ids to fence
    6. (wait)       until the owner is ONLINE
    7. both         fenced holders are removed, and the list of ids to fence with them

If no live worker holds the partition, 1 and 4 are one write, and 5 follows in the same plan. If a live
worker copies it, step 2 is delayed until there is room for another move (`MoveRoom`), and until the new owner
lives: meanwhile that worker goes on. The owner
becomes a holder before it is assigned the partition: in the reverse order, a leader that dies in
between would leave a worker that copies and that no later owner would fence.

Owner epochs order the owners of a partition. Each change of owner takes a new one, never an old one
again: `max(previous + 1, leader epoch << 20)`. The second term keeps them growing even if an ideal
state was lost (deleted by hand): a later leader starts above all epochs that an earlier one can have
used. An assignment entry never changes within its epoch: if the ideal state returns to a worker that
still holds the partition under an older epoch, it is revoked, released and assigned like any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ureplicator_common.model import (
    OwnerEpoch,
    Partition,
    PartitionState,
    Route,
    SessionId,
    TopicKey,
    WorkerId,
)
from ureplicator_common.znode_contents import Assignment, AssignmentEntry, IdealEntry
from ureplicator_common.znodes.workers import MAX_ASSIGNED
from ureplicator_controller.core.planning.holders import FenceIds, HolderRules
from ureplicator_controller.core.planning.no_progress import with_move_count
from ureplicator_controller.core.planning.partitions import PartitionView, PartitionViews
from ureplicator_controller.core.planning.steps import WriteAssignment
from ureplicator_controller.core.state.exclusions import DELETING
from ureplicator_controller.core.state.failures import begins_to_fail
from ureplicator_controller.core.state.snapshot import Snapshot

EPOCH_SHIFT = 20
"""A million changes of owner per partition and leader before the terms of two leaders could meet;
2**31 leaders (ZooKeeper's version) still fit into 53 bits, what JSON readers keep exactly."""


def next_epoch(previous: int, leader_epoch: int) -> OwnerEpoch:
    """Owner epoch above all that were used before."""
    return OwnerEpoch(max(previous + 1, leader_epoch << EPOCH_SHIFT))


class MoveRoom:
    """Number of partitions of a route that may still be taken from workers that copy them.

    Under way are those that a live worker is yet to release. Room is given once half of the limit is free:
    each revocation writes an assignment, which its worker has to confirm. Each route has its own room: where
    a target does not respond, a release takes many seconds.
    """

    def __init__(
        self, *, snapshot: Snapshot, views: PartitionViews, holder_rules: HolderRules
    ) -> None:
        self._limit = snapshot.limits.concurrent_moves
        self._views = views
        self._holder_rules = holder_rules
        self._left: dict[Route, int] = {}

    def take(self, route: Route) -> bool:
        """Take room for one partition, if there is any."""
        if route not in self._left:
            free = self._limit - self._under_way(route)
            self._left[route] = free if 2 * free >= self._limit else 0
        self._left[route] -= 1
        return self._left[route] >= 0

    def _under_way(self, route: Route) -> int:
        views = (view for view in self._views.each() if view.key.route == route and view.owner)
        return sum(map(self._is_awaited, views))

    def _is_awaited(self, view: PartitionView) -> bool:
        """True if it waits for a live worker that it was revoked from."""
        if view.is_settled():
            return False
        holding = self._holder_rules.live_holders(view, view.holders_before)
        return not view.assigned.keys() >= set(holding)


class Handover:
    """Ideal entries and assignments of one plan.

    `changed`: topics whose ideal state must be written. `waiting`: partitions that cannot be assigned
    because of these workers. `recovered`: ideal entries without what `no_progress` had recorded.
    """

    def __init__(
        self,
        *,
        snapshot: Snapshot,
        views: PartitionViews,
        recovered: Mapping[Partition, IdealEntry],
        reasons: Counter[str],
    ) -> None:
        self.changed: set[TopicKey] = set()
        self.waiting: dict[Partition, tuple[WorkerId, ...]] = {}
        self.holder_rules = HolderRules(snapshot)
        self._snapshot = snapshot
        self._recovered = recovered
        self._reasons = reasons
        self._fence_ids = FenceIds(snapshot)
        self._room = MoveRoom(snapshot=snapshot, views=views, holder_rules=self.holder_rules)
        self._kept: set[Partition] = set()
        """Partitions that wait for room: the worker that copies them goes on."""
        self._assignments: dict[WorkerId, dict[Partition, AssignmentEntry]] = {}
        self._assigned_to: set[WorkerId] = set()

    def decide(self, view: PartitionView) -> None:
        """Decide the partition's next ideal entry and its assignments."""
        self._decide_entry(view)
        self._update_assignments(view)

    # The ideal state.

    def _decide_entry(self, view: PartitionView) -> None:
        """Set the next entry; assign the partition to its owner if no holder prevents that."""
        before = view.before
        is_recovered = bool(self._recovered) and view.partition in self._recovered
        is_recorded = not is_recovered and not begins_to_fail(before, view.reported)
        is_final = view.move is None and view.is_settled() and is_recorded
        if view.is_unreadable or is_final:
            view.after = before
            return
        if before is None and view.key not in self._snapshot.topics and not view.assigned:
            return
        entry = self._next_entry(view)
        holders: Mapping[WorkerId, SessionId] = self.holder_rules.remaining_holders(view)
        if entry.worker is not None and not view.is_assigned(entry.worker, entry):
            holders = self._try_to_assign(view, entry.worker, entry, holders)
        elif entry.worker is None and _is_release_required(view, entry):
            self._wait_for(view, self.holder_rules.live_holders(view, holders))
        view.after = entry if entry.holders == holders else replace(entry, holders=holders)
        if before is None or _must_be_written(before, view.after):
            self.changed.add(view.key)

    def _next_entry(self, view: PartitionView) -> IdealEntry:
        """Entry with the new owner and epoch if the partition moves, else the entry as it is."""
        now_ms = self._snapshot.wall_ms
        before = self._recovered.get(view.partition, view.before)
        before = before or IdealEntry(None, OwnerEpoch(0), now_ms, "")
        if begins_to_fail(before, view.reported):
            before = replace(before, failing_since_ms=now_ms)
        move = view.move
        if move is None:
            return before
        if view.before is not None and move.worker == before.worker:
            return replace(before, reason=move.reason)
        self._reasons[move.reason] += 1
        epoch = next_epoch(before.owner_epoch, self._snapshot.epoch)
        entry = IdealEntry(move.worker, epoch, now_ms, move.reason)
        if move.worker is None:
            return entry
        entry = replace(entry, failing_since_ms=before.failing_since_ms)
        suspects = self._snapshot.sessions if move.no_progress else {}
        return with_move_count(entry, before, suspects)

    def _try_to_assign(
        self,
        view: PartitionView,
        owner: WorkerId,
        entry: IdealEntry,
        holders: Mapping[WorkerId, SessionId],
    ) -> Mapping[WorkerId, SessionId]:
        """Assign the partition if possible now; return the holders, including the new owner.

        If the owner is already a holder since a former session, that session stays (see `holders`).
        """
        if self._is_kept(view, owner):
            self._kept.add(view.partition)
            return holders
        if owner not in self._snapshot.sessions:
            return holders
        live_holders = self.holder_rules.live_holders(view, holders)
        if live_holders:
            self._wait_for(view, live_holders)
            return holders
        others = sorted(worker for worker in holders if worker != owner)
        fence = self._fence_ids.of(view.key.route, others)
        if fence is None:
            self._wait_for(view, others)
            return holders
        if self._is_full(owner):
            self._reasons[f"{owner} already has {MAX_ASSIGNED} partitions, the maximum"] += 1
            return holders
        self._assignment_of(owner)[view.partition] = AssignmentEntry(entry.owner_epoch, fence)
        self._assigned_to.add(owner)
        self._reasons[f"assigned to {owner}"] += 1
        return {owner: self._snapshot.sessions[owner], **holders}

    def _is_kept(self, view: PartitionView, owner: WorkerId) -> bool:
        """True if the worker that copies the partition keeps it for now."""
        if len(view.assigned) != 1:
            return False
        (worker,) = view.assigned
        reported = view.reported.get(worker)
        if reported is None or reported.state is not PartitionState.ONLINE:
            return False
        return owner not in self._snapshot.sessions or not self._room.take(view.key.route)

    def _is_full(self, worker: WorkerId) -> bool:
        """True if the worker's assignment has reached the bound of its node."""
        stored = self._snapshot.assignments.get(worker)
        entries = self._assignments.get(worker, stored.value.entries if stored else {})
        return len(entries) >= MAX_ASSIGNED

    def _wait_for(self, view: PartitionView, workers: Sequence[WorkerId]) -> None:
        if workers:
            self.waiting[view.partition] = tuple(workers)

    # The assignments.

    def _update_assignments(self, view: PartitionView) -> None:
        """Revoke the partition from other workers; shorten the owner's list of ids to fence."""
        is_final = view.after is view.before and view.is_settled()
        if view.is_unreadable or is_final or view.partition in self._kept:
            return
        for worker, assignment in view.assigned.items():
            entry = view.after
            if entry and entry.worker == worker and entry.owner_epoch == assignment.owner_epoch:
                self._shorten_fence(view, worker, assignment, entry)
            else:
                del self._assignment_of(worker)[view.partition]
                self._reasons[f"revoked from {worker}"] += 1

    def _shorten_fence(
        self, view: PartitionView, worker: WorkerId, assignment: AssignmentEntry, entry: IdealEntry
    ) -> None:
        """Remove ids only: a holder's slots may grow, but not those it had for this partition."""
        others = sorted(holder for holder in entry.holders if holder != worker)
        fence = self._fence_ids.of(view.key.route, others)
        if fence is not None and not set(assignment.fence) <= set(fence):
            self._assignment_of(worker)[view.partition] = replace(assignment, fence=fence)

    def _assignment_of(self, worker: WorkerId) -> dict[Partition, AssignmentEntry]:
        """Assignment to be written for a worker, initially as stored."""
        if worker not in self._assignments:
            stored = self._snapshot.assignments.get(worker)
            self._assignments[worker] = dict(stored.value.entries) if stored else {}
        return self._assignments[worker]

    def assignment_steps(self) -> Iterator[WriteAssignment]:
        """Revocations first: what is assigned afterwards must be in no other assignment."""
        for worker in sorted(
            self._assignments, key=lambda worker: (worker in self._assigned_to, worker)
        ):
            stored = self._snapshot.assignments.get(worker)
            yield WriteAssignment(
                worker,
                Assignment(self._assignments[worker]),
                stored.version if stored else None,
                revokes_only=worker not in self._assigned_to,
            )


def _is_release_required(view: PartitionView, entry: IdealEntry) -> bool:
    """True if something waits for the release, so that a worker that never releases it is evicted."""
    awaited = view.intent is not None and view.intent.awaits_position(view.partition.number)
    return entry.reason == DELETING or awaited


def _must_be_written(before: IdealEntry, entry: IdealEntry) -> bool:
    """Compare all but renewed sessions: a worker that is back within the delay causes no write."""
    return (
        before.worker != entry.worker
        or before.owner_epoch != entry.owner_epoch
        or before.reason != entry.reason
        or before.no_progress_moves != entry.no_progress_moves
        or before.suspect_session != entry.suspect_session
        or before.failing_since_ms != entry.failing_since_ms
        or before.holders.keys() != entry.holders.keys()
        or (entry.worker is None and before.holders != entry.holders)
    )
