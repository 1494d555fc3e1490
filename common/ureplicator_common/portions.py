"""Portions of a sequence, for work that is done in bounded steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def portions(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Slices of at most `size` items, in order."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
