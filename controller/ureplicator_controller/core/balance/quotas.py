"""Quota of each worker: its share of a number of partitions, by its slots and by what it has already.

Partitions are divided as water fills vessels that stand beside each other. A worker is a vessel as wide as
it has slots (`weight`), and what it copies of other pools (`base`) is in it already. The level is the same in
all workers that get anything; one whose base is above the level gets nothing.

      level  ---------+-------+----+
                      |  new  |new | full |
                      |  new  |base| full |
                      +-------+----+------+
      weight            4       2     3

A share is a whole number, so some workers have a fraction too few. Each of these gets one more: first those
that have it already, which saves a move, then those that lack most of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ureplicator_common.model import WorkerId


@dataclass(frozen=True, slots=True)
class Vessel:
    """One worker: its slots, what it has of other pools, and what it has of the number to divide."""

    weight: int
    base: int = 0
    count: int = 0


def quotas(total: int, vessels: Mapping[WorkerId, Vessel]) -> dict[WorkerId, int]:
    """Divide `total` partitions; the sum of the quotas is `total`, unless there are no workers."""
    shares, remainders = _shares(total, vessels)
    left = total - sum(shares.values()) if remainders else 0

    def order(worker: WorkerId) -> tuple[bool, int, int, WorkerId]:
        count = vessels[worker].count
        return count <= shares[worker], -remainders[worker], -count, worker

    for worker in sorted(remainders, key=order)[:left]:
        shares[worker] += 1
    return shares


def whole_shares(total: int, vessels: Mapping[WorkerId, Vessel]) -> dict[WorkerId, int]:
    """Whole parts of the shares."""
    return _shares(total, vessels)[0]


def _shares(
    total: int, vessels: Mapping[WorkerId, Vessel]
) -> tuple[dict[WorkerId, int], dict[WorkerId, int]]:
    """Whole parts of the shares of all workers, and the remainders of those below the level."""
    open_ = dict(vessels)
    while open_:
        volume = total + sum(vessel.base for vessel in open_.values())
        width = sum(vessel.weight for vessel in open_.values())
        full = [w for w, vessel in open_.items() if volume * vessel.weight < vessel.base * width]
        if not full:
            parts = {w: divmod(volume * vessel.weight, width) for w, vessel in open_.items()}
            shares = {w: parts[w][0] - open_[w].base if w in open_ else 0 for w in vessels}
            return shares, {worker: remainder for worker, (_, remainder) in parts.items()}
        for worker in full:
            del open_[worker]
    return {}, {}
