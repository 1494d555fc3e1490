"""Brake on mass loss: when too many workers are lost at once, nothing moves.

    few lost --(more than max_lost_share of the workers)--> mass loss --(a delay ends)--> brake held
        ^                                                                                  |
        +---- enough are back, or operators confirm the loss: then the delay runs again ---+

A worker that is lost alone is replaced by the others. If most are lost, the cause is rarely in the
workers: a rack without power, a network that is cut. The rest would get several times its load, and all
of it would move again when the others return. So the brake keeps partitions with their owners, as if the
fleet were frozen. The living workers go on copying, partitions without an owner are placed, and what
operators request is done.

Counted are workers, not partitions: the question is whether the rest can carry the load. Lost is a worker
that has no session and still owns partitions, unless operators drain it. So workers whose partitions moved
count no more, and losses one after the other, each failed over, hold no brake. Of two workers one may be
lost: its share, one half, is not above the default. Without any worker that is left there is nothing to
hold back.

Operators confirm the loss of certain workers (`Switches.confirmed_lost`). Those count neither as lost nor
as workers until they are back, or own nothing more: then the leader takes them out of the list. When the
brake ends since workers return, the rest of them has `rebalance_s` once more: they, too, may be on
their way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ureplicator_common.model import WorkerId
from ureplicator_common.printable import listed
from ureplicator_controller.core.state.external_view import ideal_entries
from ureplicator_controller.core.state.snapshot import Snapshot

MAX_NAMES = 10


@dataclass(frozen=True, slots=True)
class MassLoss:
    """Workers that are lost at once: too many of the `workers` of the fleet."""

    lost: tuple[WorkerId, ...]
    workers: int

    def __str__(self) -> str:
        names = listed(self.lost, MAX_NAMES)
        return (
            f"mass loss: {len(self.lost)} of {self.workers} workers are lost ({names});"
            " their partitions stay with them until enough are back or operators confirm the loss"
        )


def mass_loss(snapshot: Snapshot) -> MassLoss | None:
    """The loss that holds the brake once a delay has ended; None if few workers are lost, or all."""
    left = sum(_lasts(snapshot, worker) for worker in snapshot.sessions)
    absent = _absent(snapshot) - snapshot.switches.confirmed_lost
    if not left or not _is_excess(snapshot, len(absent), left):
        return None
    lost = sorted(absent & _owners(snapshot))
    if not _is_excess(snapshot, len(lost), left):
        return None
    return MassLoss(tuple(lost), left + len(lost))


def is_brake_held(snapshot: Snapshot, now_s: float) -> bool:
    """True if the brake holds back partitions that would move at this time."""
    delay_s, since = snapshot.delays.rebalance_s, snapshot.absent_since
    due = {worker for worker in _absent(snapshot) if now_s - since.get(worker, now_s) >= delay_s}
    loss = mass_loss(snapshot) if due else None
    return loss is not None and not due.isdisjoint(loss.lost)


def braked(snapshot: Snapshot, now_s: float) -> Snapshot:
    """Snapshot for a plan: frozen while the brake is held."""
    if not is_brake_held(snapshot, now_s):
        return snapshot
    return replace(snapshot, switches=replace(snapshot.switches, frozen=True))


def delay_ends_at_s(snapshot: Snapshot, worker: WorkerId, now_s: float) -> float:
    """Time at which the partitions of an absent worker may move."""
    began_s = snapshot.absent_since.get(worker, now_s)
    if snapshot.brake_held_at_s is not None and worker not in snapshot.switches.confirmed_lost:
        began_s = max(began_s, snapshot.brake_held_at_s)
    return began_s + snapshot.delays.rebalance_s


def lost_workers(snapshot: Snapshot) -> frozenset[WorkerId]:
    """Workers that are lost at this time, whether operators confirmed that or not."""
    absent = _absent(snapshot)
    return frozenset(absent & _owners(snapshot)) if absent else frozenset()


def _is_excess(snapshot: Snapshot, lost: int, left: int) -> bool:
    return lost > snapshot.limits.max_lost_share * (lost + left)


def _absent(snapshot: Snapshot) -> frozenset[WorkerId]:
    """Workers without a session that operators do not drain, and whose nodes can be read."""
    known = {*snapshot.known, *snapshot.assignments}
    gone = known - snapshot.sessions.keys() - snapshot.unreadable_workers
    return frozenset(worker for worker in gone if not _is_drained(snapshot, worker))


def _lasts(snapshot: Snapshot, worker: WorkerId) -> bool:
    """True of a live worker that neither leaves nor is drained."""
    live = snapshot.live.get(worker)
    leaves = live is not None and live.value.leaving
    return not leaves and not _is_drained(snapshot, worker)


def _is_drained(snapshot: Snapshot, worker: WorkerId) -> bool:
    stored = snapshot.known.get(worker)
    return stored is not None and stored.value.is_drained


def _owners(snapshot: Snapshot) -> set[WorkerId]:
    return {entry.worker for entry in ideal_entries(snapshot) if entry.worker is not None}
