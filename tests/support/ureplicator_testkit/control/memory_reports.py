"""Reports of a sync, kept for a test to look at."""

from __future__ import annotations

from collections.abc import Mapping

from ureplicator_controller.engines.syncs.reports import NO_HARM


class MemoryReports:
    """`passes`: states of each pass and what was left; `harms`: what it found of target topics; `failures`:
    errors of those that failed."""

    def __init__(self) -> None:
        self.passes: list[tuple[dict[str, int], str]] = []
        self.failures: list[str] = []
        self.ages_s: list[float | None] = []
        self.harms: list[Mapping[str, str]] = []

    def passed(
        self,
        epoch: int,
        states: Mapping[str, int],
        left: str,
        *,
        age_s: float | None = None,
        harm: Mapping[str, str] = NO_HARM,
    ) -> None:
        self.harms.append(harm)
        self.ages_s.append(age_s)
        self.passes.append((dict(states), left))

    def failed(self, epoch: int, error: str) -> None:
        self.failures.append(error)
