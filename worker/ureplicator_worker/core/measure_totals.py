"""Measures of copiers, added up over the runs of each slot. Pure.

What a run counted after its last report is not known once it has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from operator import add

from ureplicator_common.model import Route
from ureplicator_worker.lifeline.measures import Measures, TransactionCounts
from ureplicator_worker.lifeline.messages import CopierId

NOTHING = Measures()


@dataclass(slots=True)
class _SlotTotals:
    run: int = 0
    last: Measures = NOTHING
    total: Measures = NOTHING


@dataclass(slots=True)
class MeasureTotals:
    """`transactions`: of all slots, by route."""

    transactions: dict[Route, TransactionCounts] = field(default_factory=dict)
    _slots: dict[int, _SlotTotals] = field(default_factory=dict)

    @property
    def slots(self) -> dict[int, Measures]:
        """Totals of each slot; memory as of the last report."""
        return {number: slot.total for number, slot in sorted(self._slots.items())}

    def count(self, copier: CopierId, now: Measures) -> None:
        """Add what grew since the last report of the run."""
        slot = self._slots.setdefault(copier.slot, _SlotTotals())
        before = slot.last if slot.run == copier.run else NOTHING
        total = slot.total
        slot.total = Measures(
            _plus(total.fetch_to_ack_ms, _grown(now.fetch_to_ack_ms, before.fetch_to_ack_ms)),
            total.fetch_to_ack_sum_ms
            + max(0, now.fetch_to_ack_sum_ms - before.fetch_to_ack_sum_ms),
            total.cpu_ms + max(0, now.cpu_ms - before.cpu_ms),
            now.memory_bytes,
        )
        for route, counts in now.transactions.items():
            grown = _grown(counts, before.transactions.get(route, TransactionCounts()))
            known = self.transactions.get(route, TransactionCounts())
            self.transactions[route] = TransactionCounts(*map(add, known, grown))
        slot.run, slot.last = copier.run, now


def _grown(now: Sequence[int], before: Sequence[int]) -> tuple[int, ...]:
    return tuple(max(0, new - old) for new, old in zip_longest(now, before, fillvalue=0))


def _plus(one: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip_longest(one, other, fillvalue=0))
