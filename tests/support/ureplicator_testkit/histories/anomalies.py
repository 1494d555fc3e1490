"""Kinds of anomalies that a history can have."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

SHOWN = 5


class Kind(StrEnum):
    LOST = "lost"
    """Acknowledged, or in the source's log, and not where it must be."""
    REPEATED = "repeated"
    """There twice; at least once, unless a lost writer accounts for it."""
    REORDERED = "reordered"
    """The first occurrence comes after one that follows it at the source."""
    PHANTOM = "phantom"
    """Nothing that the source's log holds: aborted, never sent, or of another place."""
    CHANGED = "changed"
    """Another key, value, headers or time than at the source."""
    TORN = "torn"
    """A part of a transaction is visible without the rest: a record without its position."""
    STEP_BACK = "step back"
    """A reader found an offset again, or one before."""
    VANISHED = "vanished"
    """A reader found what the log does not hold there at the end."""
    SKIPPED = "skipped"
    """A reader passed by an offset where the log holds a record at the end."""
    STALE_COMMIT = "stale commit"
    """A commit of an older owner, or of a position that goes back."""
    NO_PROOF = "no proof"
    """The history lacks what a judgement needs."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """`place`: cluster, reader and partition."""

    kind: Kind
    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.place}: {self.text}"


def listed(found: Collection[object]) -> str:
    """Their number, and the first ones."""
    first = ", ".join(str(item) for item in sorted(found, key=str)[:SHOWN])
    return f"{len(found)} ({first}{', ...' if len(found) > SHOWN else ''})"
