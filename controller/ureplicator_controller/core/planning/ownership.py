"""Who holds a partition, who let it go for certain, and whom its next owner must fence.

Three words, from weak to strong:

    held       a live worker is told to hold it, or says it holds it, or did not answer yet the
               assignment that took it away: meanwhile nobody else is given the partition
    holder     was given it and never confirmed that it let go; it need not live: its process may
               be frozen, and thaw
    confirmed  a live worker, of the session that was given it, answered the assignment that took
               it away (`seen_zxid`) and does not list it: it holds nothing any more

The next owner fences the transactional ids of every other holder (`AssignmentEntry.fence`) before
it reads the position: from then on they can never commit the partition.

A holder leaves the list in two ways only:

* It confirms. A new session of the same worker never confirms for an old one: it is another
  process, and knows nothing of the frozen one.
* The owner is ONLINE under the owner epoch that the ideal state names. ONLINE comes after the
  fencing (`kafka.positions`: step 3 before 5), so the others were fenced, and a fence is for ever. Without
  this, each re-initialisation of a copier would fence its predecessor again, which by then may be
  alive and copying other partitions with the same ids: two workers could go on fencing each other.

A worker that restarts brings a new session, and the list keeps the former one, also when the new
one is given the partition, until that second proof renews it. (Back within the delay means no
write at all: the list could not even know.) Its new process initialises all transactional ids that
the worker ever had before it copies, which fences the former process: being ONLINE proves that
this was done, and from then on the new session may confirm. If it is told to let go before it was
ever ONLINE, nothing proves it: nobody can confirm, the worker stays on the list, and the next
owner fences it. That costs the worker's other partitions a re-initialisation at worst.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ureplicator_common.model import (
    Route,
    SessionId,
    WorkerId,
    transactional_ids,
)
from ureplicator_controller.core.planning.partitions import PartitionView
from ureplicator_controller.core.state.snapshot import Snapshot

NO_SESSION = SessionId(0)
"""Holds the place of a session nobody wrote down: no live session equals it, so it never
confirms."""


class HolderRules:
    """The rules above, for one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._sessions = snapshot.sessions
        self._behind = frozenset(worker for worker in self._sessions if self._is_behind(worker))

    def _is_behind(self, worker: WorkerId) -> bool:
        """Has not answered its last assignment."""
        assignment = self._snapshot.assignments.get(worker)
        said = self._snapshot.current.get(worker)
        answers = said is not None and said.owner == self._sessions[worker]
        seen_zxid = said.value.seen_zxid if said is not None and answers else -1
        return assignment is not None and seen_zxid < assignment.mzxid

    def live_holders(
        self, case: PartitionView, holders: Mapping[WorkerId, SessionId]
    ) -> Sequence[WorkerId]:
        """Live workers that hold it, in order."""
        held = {worker for worker, _ in case.told if worker in self._sessions}
        held.update(worker for worker, _ in case.said)
        held.update(case.former)
        held.update(worker for worker in holders if worker in self._behind)
        return sorted(held)

    def confirmed(self, case: PartitionView, worker: WorkerId, session: SessionId) -> bool:
        """Whether this session of the worker let go of the partition for certain."""
        said = self._snapshot.current.get(worker)
        return (
            self._sessions.get(worker) == session
            and said is not None
            and said.owner == session
            and worker not in self._behind
            and case.told_to(worker) is None
            and not case.is_listed_by(worker)
        )

    def remaining(self, case: PartitionView) -> dict[WorkerId, SessionId]:
        """Who still may be able to commit the partition, with the session that was given it."""
        owner = self._proven(case)
        if owner is not None:
            holders = {owner: self._sessions[owner]}
        else:
            holders = dict(case.before.holders) if case.before else {}
        for worker, _ in case.told:
            holders.setdefault(worker, self._sessions.get(worker, NO_SESSION))
        return {
            worker: session
            for worker, session in holders.items()
            if not self.confirmed(case, worker, session)
        }

    def _proven(self, case: PartitionView) -> WorkerId | None:
        """The owner, if it is ONLINE under the epoch it was made owner with."""
        entry = case.before
        if entry is None or entry.worker is None or entry.worker not in entry.holders:
            return None
        told = case.told_to(entry.worker)
        if told is None or told.owner_epoch != entry.owner_epoch:
            return None
        return entry.worker if case.is_online(entry.worker, entry) else None


class FenceIds:
    """Transactional ids by worker and route, computed once per plan."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._ids: dict[tuple[Route, WorkerId], tuple[str, ...]] = {}

    def of(self, route: Route, workers: Sequence[WorkerId]) -> tuple[str, ...] | None:
        """All ids those workers may hold; None if that is not known of one of them."""
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
    """The most slots a worker ever had, None if nobody wrote it down."""
    known = snapshot.known.get(worker)
    live = snapshot.live.get(worker)
    if known is None and live is None:
        return None
    return max(known.value.max_slots if known else 0, live.value.slots if live else 0)
