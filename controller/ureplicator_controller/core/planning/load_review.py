"""The leader's look at loads, every minute: what moves although its worker lives and keeps it.

A load is news every few seconds and from every worker, but nothing that follows from it is urgent.
So it wakes nobody; a plan whose time has come looks, and says when the next one should.

    stuck     partitions without progress go to another worker        `stuck`
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
    ailing,
    blamed,
    forgiven,
    mended,
    to_move,
)
from ureplicator_controller.core.planning.switches import is_asked, may_go
from ureplicator_controller.core.state.loads import LOOK_EVERY_S
from ureplicator_controller.core.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Look:
    """`stuck`: partitions to move, and why; to none of the `ailing` workers. `mended`: ideal
    entries without what need not be remembered any more. Nothing of all that unless it `is_due`."""

    is_due: bool = False
    next_at_s: float | None = None
    stuck: Mapping[Partition, str] = field(default_factory=dict)
    ailing: Set[WorkerId] = frozenset()
    mended: Mapping[Partition, IdealEntry] = field(default_factory=dict)


def look(snapshot: Snapshot, takers: Sequence[WorkerId], now_s: float) -> Look:
    """What there is to see, if it is time."""
    if not snapshot.loads:
        return Look(mended=forgiven(snapshot) if is_asked(snapshot) else {})
    if snapshot.look_at_s is None or now_s < snapshot.look_at_s:
        return Look(next_at_s=snapshot.look_at_s)
    sick = ailing(snapshot)
    is_of_use = bool(set(takers) - sick) and may_go(snapshot.switches, False)
    return Look(
        is_due=True,
        next_at_s=now_s + LOOK_EVERY_S,
        stuck=to_move(snapshot) if is_of_use else {},
        ailing=sick,
        mended=forgiven(snapshot) if is_asked(snapshot) else mended(snapshot),
    )


def fit_takers(snapshot: Snapshot, takers: Sequence[WorkerId], seen: Look) -> Sequence[WorkerId]:
    """Without those that something is stuck on, or was, as long as others are left."""
    fit = takers
    for unfit in (seen.ailing if seen.stuck else set(), blamed(snapshot)):
        fit = [worker for worker in fit if worker not in unfit] or fit
    return fit
