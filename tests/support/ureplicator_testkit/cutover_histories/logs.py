"""Log of one partition: offsets are places in a list."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from ureplicator_common.kafka import Extent

HOLE = -1
"""A control record, or one of a transaction that was aborted: readers do not see it."""


@dataclass
class Log:
    """`entries`: numbers of records. `times`: of their appending, as numbers of events. `undecided`: offsets
    of open transactions, by their writers."""

    entries: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    undecided: dict[str, list[int]] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return len(self.entries)

    @property
    def stable_end(self) -> int:
        return min((offsets[0] for offsets in self.undecided.values()), default=self.end)

    @property
    def extent(self) -> Extent:
        return Extent(0, self.stable_end, self.end - self.stable_end)

    def append(self, record: int, time: int, *, transaction: str = "") -> int:
        """Its offset."""
        if transaction:
            self.undecided.setdefault(transaction, []).append(self.end)
        self.entries.append(record)
        self.times.append(time)
        return self.end - 1

    def finish(self, transaction: str, time: int, *, commits: bool) -> None:
        """The end of a transaction, with its control record."""
        offsets = self.undecided.pop(transaction, None)
        if offsets is None:
            return
        for offset in offsets if not commits else ():
            self.entries[offset] = HOLE
        self.append(HOLE, time)

    def shown(self, until: int, *, without: Collection[int] = ()) -> Sequence[int]:
        """Records that readers see before an offset."""
        until = min(until, self.stable_end)
        return [record for record in self.entries[:until] if record >= 0 and record not in without]
