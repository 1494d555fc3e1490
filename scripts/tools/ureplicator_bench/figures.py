"""One result of a measurement, and whether it is within its limit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """A measurement and its limit (None: for information)."""

    what: str
    value: float
    unit: str
    limit: float | None = None

    @property
    def good(self) -> bool:
        return self.limit is None or self.value < self.limit
