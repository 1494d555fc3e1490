"""Workers that hold a partition, that released it, and that its next owner must fence.

Three terms, from weak to strong:

    live holder  a live worker that has it assigned, or reports it, or has not yet confirmed the
                 assignment that revoked it; meanwhile the partition is assigned to no other worker
    holder       was assigned it and never confirmed the release; it need not be alive: its process may
                 be frozen, and resume
    released     a live worker, in the session that was assigned the partition, has confirmed the
                 assignment that revoked it (`seen_zxid`) and does not report it: it holds nothing

The next owner fences the transactional ids of every other holder (`AssignmentEntry.fence`) before it
reads the position. From then on they can never commit the partition.

A holder leaves the list in two ways only:

* It confirms the release. A new session of the same worker never confirms for a former one: it is
  another process, and knows nothing of the frozen one.
* The owner is ONLINE under the owner epoch that the ideal state names. A copier is ONLINE only after it
  has fenced (`kafka.positions`: step 3 before 5), so the others were fenced, and fencing is permanent.
  Without this rule each restart of a copier would fence its predecessor again, which by then may be
  alive and copy other partitions with the same ids: two workers could keep fencing each other.

A worker that restarts has a new session. The list keeps the former one, also when the new one is
assigned the partition, until that second proof renews it. (A worker that is back within the delay causes
no write at all, so the list could not even be updated.) Its new process initialises all transactional
ids that the worker ever had before it copies, which fences the former process: ONLINE proves that this
was done, and from then on the new session may confirm. If the partition is revoked before the worker was
ever ONLINE, there is no proof: it cannot confirm, it stays on the list, and the next owner fences it.
That costs the worker's other partitions a re-initialisation at worst.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ureplicator_common.model import MAX_SLOTS, Route, SessionId, WorkerId, transactional_ids
from ureplicator_controller.core.planning.partitions import PartitionView
from ureplicator_controller.core.state.external_view import reported_state
from ureplicator_controller.core.state.snapshot import Snapshot

NO_SESSION = SessionId(0)
"""Placeholder for an unrecorded session: no live session equals it, so it never confirms."""


class HolderRules:
    """The rules above, applied to one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._sessions = snapshot.sessions
        self._behind = frozenset(worker for worker in self._sessions if self._is_behind(worker))

    def _is_behind(self, worker: WorkerId) -> bool:
        """True if the worker has not confirmed its latest assignment yet."""
        assignment = self._snapshot.assignments.get(worker)
        current = reported_state(self._snapshot, worker)
        seen_zxid = current.seen_zxid if current else -1
        return assignment is not None and seen_zxid < assignment.mzxid

    def live_holders(
        self, view: PartitionView, holders: Mapping[WorkerId, SessionId]
    ) -> Sequence[WorkerId]:
        """Live workers that hold the partition, in order."""
        found = {worker for worker in view.assigned if worker in self._sessions}
        found.update(view.reported)
        found.update(view.stale_reports)
        found.update(worker for worker in holders if worker in self._behind)
        return sorted(found)

    def is_held(self, view: PartitionView) -> bool:
        """True unless no worker has it assigned, dead ones included, and no live one holds it."""
        return bool(
            view.is_unreadable or view.assigned or self.live_holders(view, view.holders_before)
        )

    def has_released(self, view: PartitionView, worker: WorkerId, session: SessionId) -> bool:
        """True if this session of the worker has confirmed the release of the partition."""
        return (
            self._sessions.get(worker) == session
            and reported_state(self._snapshot, worker) is not None
            and worker not in self._behind
            and view.assignment_of(worker) is None
            and not view.is_reported_by(worker)
        )

    def remaining_holders(self, view: PartitionView) -> dict[WorkerId, SessionId]:
        """Workers that may still be able to commit the partition, with the session that got it."""
        owner = self._proven_owner(view)
        holders = dict(view.holders_before) if owner is None else {owner: self._sessions[owner]}
        for worker in view.assigned:
            holders.setdefault(worker, self._sessions.get(worker, NO_SESSION))
        return {
            worker: session
            for worker, session in holders.items()
            if not self.has_released(view, worker, session)
        }

    def _proven_owner(self, view: PartitionView) -> WorkerId | None:
        """The owner, if it is ONLINE under the owner epoch of the ideal state."""
        entry = view.before
        if entry is None or entry.worker is None or entry.worker not in entry.holders:
            return None
        is_proven = view.is_assigned(entry.worker, entry) and view.is_online(entry.worker, entry)
        return entry.worker if is_proven else None


class FenceIds:
    """Transactional ids by worker and route, computed once per plan."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._ids: dict[tuple[Route, WorkerId], tuple[str, ...]] = {}

    def of(self, route: Route, workers: Sequence[WorkerId]) -> tuple[str, ...] | None:
        """All ids that these workers may use on a route; None if they are unknown for one of them."""
        ids: tuple[str, ...] = ()
        for worker in workers:
            slots = max_slots_of(self._snapshot, worker)
            if slots is None:
                return None
            if (route, worker) not in self._ids:
                self._ids[route, worker] = transactional_ids(
                    fleet=self._snapshot.fleet, route=route, worker=worker, slots=slots
                )
            ids += self._ids[route, worker]
        return ids


def max_slots_of(snapshot: Snapshot, worker: WorkerId) -> int | None:
    """Largest number of slots that a worker ever had; None if it is unknown.

    Where its record cannot be read, it is the most that any worker may have.
    """
    known = snapshot.known.get(worker)
    if known is None and worker in snapshot.unreadable_workers:
        return MAX_SLOTS
    live = snapshot.live.get(worker)
    if known is None and live is None:
        return None
    return max(known.value.max_slots if known else 0, live.value.slots if live else 0)
