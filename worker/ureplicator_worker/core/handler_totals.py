"""Counters of handlers, added up over the runs of copiers and over slots. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from operator import add, sub

from ureplicator_worker.lifeline.messages import CopierId, HandlerReport

NOTHING = HandlerReport()


class HandlerTotals:
    """Topics are named as in `CopierReport.handlers`."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, str], tuple[int, HandlerReport]] = {}
        """The run of each slot, and its last report."""
        self._totals: dict[str, HandlerReport] = {}

    def count(self, copier: CopierId, reports: Mapping[str, HandlerReport]) -> None:
        """Add what was counted since the last report of the run."""
        for topic, report in reports.items():
            run, last = self._last.get((copier.slot, topic), (0, NOTHING))
            grown = HandlerReport(*map(sub, report, last if run == copier.run else NOTHING))
            total = self._totals.get(topic, NOTHING)
            self._totals[topic] = HandlerReport(*map(add, total, grown))
            self._last[copier.slot, topic] = (copier.run, report)

    def of(self, topics: Collection[str]) -> dict[str, HandlerReport]:
        """Totals of these, as far as they have a handler; all others are forgotten."""
        self._totals = {topic: report for topic, report in self._totals.items() if topic in topics}
        return self._totals
