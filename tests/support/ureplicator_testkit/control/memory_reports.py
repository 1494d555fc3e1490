"""Reports of a sync, kept for a test to look at."""

from __future__ import annotations

from collections.abc import Mapping


class MemoryReports:
    """`passes`: states of each pass and what was left; `failures`: errors of those that failed."""

    def __init__(self) -> None:
        self.passes: list[tuple[dict[str, int], str]] = []
        self.failures: list[str] = []
        self.ages_s: list[float | None] = []

    def passed(
        self, epoch: int, states: Mapping[str, int], left: str, *, age_s: float | None = None
    ) -> None:
        self.ages_s.append(age_s)
        self.passes.append((dict(states), left))

    def failed(self, epoch: int, error: str) -> None:
        self.failures.append(error)
