"""Division of a byte limit among claimants by what each has used.

A claimant that is limited uses its whole share, so its use alone does not show what it could use. Hence a
*demand*: GROWTH times what it used. While the demands fit into the limit, each is met and the rest is
spread evenly; otherwise the smallest are met and the others get equal shares (max-min fairness). A claimant
whose load grows thus doubles its share with each division, at the cost of those that use more.

Claimants without anything to copy get a small part all the same: a partition may come to them at any
moment, and must neither starve until the next division nor exceed the limit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

K = TypeVar("K")

IDLE_PART = 0.05
"""Part of the limit for all claimants alike, with or without load."""
GROWTH = 2.0
TOLERANCE = 0.2
"""A division is kept while no share differs from the wanted one by more than this part."""


def divide(limit: int, used: Mapping[K, float], others: Collection[K] = ()) -> dict[K, int]:
    """Claimant -> its share; the sum is at most `limit`, unless that is less than one for each.

    `used`: what each claimant with something to copy has used. `others`: claimants without.
    """
    claimants = {*used, *others}
    if not claimants:
        return {}
    if not used:
        return {claimant: max(1, limit // len(claimants)) for claimant in claimants}
    floor = IDLE_PART * limit / len(claimants)
    filled = _filled(limit * (1 - IDLE_PART), {key: GROWTH * rate for key, rate in used.items()})
    return {claimant: max(1, int(floor + filled.get(claimant, 0.0))) for claimant in claimants}


def _filled(total: float, demands: Mapping[K, float]) -> dict[K, float]:
    """Max-min fair shares of `total`; what is left when all demands are met is spread evenly."""
    shares: dict[K, float] = {}
    left, waiting = total, sorted(demands, key=lambda key: demands[key])
    for number, key in enumerate(waiting):
        shares[key] = min(demands[key], left / (len(waiting) - number))
        left -= shares[key]
    return {key: share + max(0.0, left) / len(shares) for key, share in shares.items()}


def is_close(former: Mapping[K, int], wanted: Mapping[K, int], limit: int) -> bool:
    """True if the former division still serves: same claimants, not above the limit, shares alike."""
    return (
        former.keys() == wanted.keys()
        and sum(former.values()) <= limit
        and all(abs(former[key] - wanted[key]) <= TOLERANCE * former[key] for key in wanted)
    )
