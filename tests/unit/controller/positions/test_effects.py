"""Effect of another position: what is repeated, skipped, lost, or out of range."""

from __future__ import annotations

import pytest

from ureplicator_common.kafka import Extent
from ureplicator_controller.core.positions.effects import PositionEffect, effect_of

LOG = Extent(10, 50)


@pytest.mark.parametrize(
    ("before", "after", "repeated", "skipped", "lost"),
    [
        (30, 30, 0, 0, 0),
        (30, 12, 18, 0, 0),
        (30, 50, 0, 20, 0),
        (3, 10, 0, 0, 7),
        (3, 15, 0, 5, 7),
        (90, 20, 30, 0, 0),
        (90, 50, 0, 0, 0),
    ],
    ids=[
        "the same",
        "back",
        "to the end",
        "deleted by retention",
        "deleted, and further",
        "truncated",
        "truncated, to the end",
    ],
)
def test_counts(before: int, after: int, repeated: int, skipped: int, lost: int) -> None:
    assert effect_of(before, after, LOG) == PositionEffect(before, after, repeated, skipped, lost)


def test_nothing_is_counted_without_a_position() -> None:
    assert effect_of(None, 20, LOG) == PositionEffect(None, 20)


@pytest.mark.parametrize(
    ("after", "refused"),
    [(9, "begins at 10"), (10, ""), (50, ""), (51, "ends at 50")],
)
def test_range(after: int, refused: str) -> None:
    """The end is the offset of the next record, so it is a position."""
    found = effect_of(30, after, LOG).refused
    assert refused in found
    assert bool(refused) == bool(found)
