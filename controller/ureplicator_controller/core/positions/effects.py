"""Effect of another position: records that are copied once more, or never. Pure.

Counts are offsets of the source's log, so they are upper bounds: compaction and markers of transactions
leave holes in it.
"""

from __future__ import annotations

from dataclasses import dataclass

from ureplicator_common.kafka import Extent


@dataclass(frozen=True, slots=True)
class PositionEffect:
    """Effect on one partition; the counts are None where no position is stored.

    `begins_at`: offset at which copying continues. `repeated`: offsets that are copied again. `skipped`:
    offsets that are not copied. `lost`: offsets from the present position on that the source has deleted
    already, whatever the next position is. `refused`: why it cannot be done.
    """

    before: int | None
    begins_at: int
    repeated: int | None = None
    skipped: int | None = None
    lost: int | None = None
    refused: str = ""


def effect_of(before: int | None, begins_at: int, extent: Extent) -> PositionEffect:
    """Effect of copying from `begins_at` instead of `before` (None: nothing is stored)."""
    refused = out_of_range(begins_at, extent)
    if before is None:
        return PositionEffect(before, begins_at, refused=refused)
    present = min(max(before, extent.start), extent.end)
    return PositionEffect(
        before,
        begins_at,
        repeated=max(0, present - begins_at),
        skipped=max(0, begins_at - present),
        lost=max(0, extent.start - before),
        refused=refused,
    )


def out_of_range(offset: int, extent: Extent) -> str:
    """Reason why copying cannot begin at an offset; "" if it can. The end itself is the next record."""
    if offset < extent.start:
        return f"offset {offset} is out of range: the source begins at {extent.start}"
    if offset > extent.end:
        return f"offset {offset} is out of range: the source ends at {extent.end}"
    return ""
