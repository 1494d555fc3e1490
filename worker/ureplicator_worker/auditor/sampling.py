"""Ranges to compare behind the copy within a byte budget. Pure.

Reading all records of both sides costs more CPU than the copy itself, which never decodes one. So a route
has a byte rate. As long as new records fit the rate, all of them are compared. Beyond it, the newest
part of each partition is compared and the rest skipped and counted: a fault of a copier or of a target that
lasts is found in a sample, a single lost record may not be. What was compared is stated as coverage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ureplicator_common.audits import VerifiedRange

MIN_OFFSETS = 100
"""Least part of a partition that is worth a task: finding the copy of its first record costs as much."""


@dataclass(frozen=True, slots=True)
class NewRecords:
    """Source offsets of one partition that were copied and not looked at. `target_next`: where the copy of
    the first one lies; -1: not known. `record_bytes`: mean size of its records."""

    first: int
    next: int
    target_next: int
    record_bytes: float

    @property
    def size_bytes(self) -> float:
        return (self.next - self.first) * self.record_bytes


@dataclass(frozen=True, slots=True)
class Sample:
    """Source offsets to compare, after `skipped` ones that are left out."""

    first: int
    next: int
    target_first: int
    skipped: int


def samples(new: Mapping[int, NewRecords], *, budget_bytes: float) -> dict[int, Sample]:
    """The whole of each partition if that fits the budget, else the same share of each, its newest."""
    total_bytes = sum(each.size_bytes for each in new.values())
    share = min(1.0, budget_bytes / total_bytes) if total_bytes else 1.0
    return {number: _sample(each, share) for number, each in new.items() if each.first < each.next}


def _sample(new: NewRecords, share: float) -> Sample:
    offsets = new.next - new.first
    wanted = min(offsets, max(MIN_OFFSETS, int(offsets * share)))
    if wanted == offsets:
        return Sample(new.first, new.next, new.target_next, 0)
    return Sample(new.next - wanted, new.next, -1, offsets - wanted)


def passed_offsets(
    chosen: Mapping[int, Sample], compared: Mapping[int, VerifiedRange]
) -> tuple[int, int]:
    """Offsets that were skipped, and all that were passed, of the partitions that could be compared."""
    skipped = passed = 0
    for number, sample in chosen.items():
        if number in compared:
            skipped += sample.skipped
            passed += sample.skipped + max(0, compared[number].next - sample.first)
    return skipped, passed
