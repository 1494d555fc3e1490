"""Choice of the slot that copies a partition.

A partition goes to the slot with the fewest partitions, and back to the one it had last if that keeps
the slots balanced. It must go back there if that slot's copier died while it still touched the
partition: bytes of its last commit may be under way yet, and only the initialisation of the same
transactional id by the next run of the same slot puts an end to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LastSlot:
    """The slot that a partition had last; `required`: it must go back there."""

    slot: int
    required: bool


def choose_slot(counts: Mapping[int, int], last: LastSlot | None) -> int:
    """Slot for a partition; `counts` are partitions per slot, for all slots.

    >>> choose_slot({0: 2, 1: 1}, None)
    1
    >>> choose_slot({0: 1, 1: 1}, LastSlot(slot=1, required=False))
    1
    """
    smallest = min(counts, key=lambda slot: (counts[slot], slot))
    if last is None or last.slot not in counts:
        return smallest
    if last.required or counts[last.slot] == counts[smallest]:
        return last.slot
    return smallest
