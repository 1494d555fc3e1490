"""Copiers that keep the offsets of the source, in memory, and what a reader of everything sees.

After each turn: a position's claim holds. From its `since` on each copied record lies at its source offset
plus the shift. Fillers are there only while nothing is copied, below the offset where the log is to begin.
Brokers store where logs begin every `CHECKPOINT_S`, and one that is killed knows no more than that.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from ureplicator_common.kafka.provenance import Provenance, SameOffsets
from ureplicator_testkit.copier.fenced_fleet import FENCED, FencedFleet
from ureplicator_testkit.copier.ledger_fleet import put
from ureplicator_testkit.copier.transaction_fleet import committed
from ureplicator_testkit.kafka.cluster import TopicPartition
from ureplicator_testkit.records.batches import Record, marker
from ureplicator_worker.copier.raw import gap_filling

SAME = replace(FENCED, same_offsets=".*")
OTHER = 77
"""Producer of others."""
CHECKPOINT_S, STORED_S, REPEAT_S = 0.5, 0.55, 0.05


class SameFleet(FencedFleet):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._stored: defaultdict[TopicPartition, int] = defaultdict(int)
        """Starts of the target's logs."""
        self._unstored_s = 0.0
        self._hasty = patch.multiple(gap_filling, STORED_S=STORED_S, REPEAT_S=REPEAT_S)
        self._hasty.start()
        super().__init__(*arguments, **named)

    def close(self) -> None:
        super().close()
        self._hasty.stop()

    def turn(self, *, skip_s: float = 0.03) -> None:
        super().turn(skip_s=skip_s)
        self._unstored_s += skip_s
        if self._unstored_s >= CHECKPOINT_S:
            self._unstored_s = 0.0
            self._stored.update((key, log.start) for key, log in self.target.logs.items())

    def begin(self, *numbers: int) -> None:
        """`w1` copies five records of each partition."""
        for number in numbers:
            self.give(number, "w1")
            put(self, number, 5)
        self.run_until_copied()

    def leave_gap(self, size: int = 3, *, number: int = 0) -> None:
        """Markers of another producer at the source, and a record behind them."""
        for _ in range(size):
            written = marker(base_offset=0, producer_id=OTHER, commit=True)
            self.source.logs["t", number].put(written)
        put(self, number, 1)

    def kill_broker(self, node: int) -> None:
        """A broker of the target is killed, and runs again at once."""
        for key, leader in self.target.leaders.items():
            if leader == node:
                self.target.logs[key].start = self._stored[key]
        self.target.cut(node)

    def claim(self, number: int) -> SameOffsets:
        """State of equal offsets by the stored position."""
        provenance = Provenance.decode(self.ledger.read(("t", number)).metadata)
        assert provenance is not None
        assert provenance.same is not None
        return provenance.same

    def shifts(self, number: int) -> list[int]:
        """Target offset less source offset, of each record that was copied."""
        key = ("t", number)
        places = {row.value: row.offset for row in committed(self.source, key)}
        return [row.offset - places[row.value] for row in self._copied(key)]

    def _copied(self, key: TopicPartition) -> list[Record]:
        rows = super()._copied(key)
        fillers = [row for row in rows if row.value is None and row.key is None]
        copied = [row for row in rows if row.value is not None]
        shown = [row for row in fillers if row.offset >= self.target.logs[key].start]
        if shown:
            assert not copied, (key, "fillers beside what was copied")
            assert shown[-1].offset < self.claim(key[1]).filling, (key, "a filler too many")
        return copied

    def _check(self, key: TopicPartition, position: int) -> None:
        if key in self.elected:
            return  # a log without a record loses its producers, too, and batches in flight are taken again
        super()._check(key, position)
        provenance = Provenance.decode(self.ledger.read(key).metadata)
        if provenance is None or provenance.same is None:
            return
        same = provenance.same
        places = {row.value: row.offset for row in committed(self.source, key)}
        for row in self._copied(key):
            at = places.get(row.value, -1)
            if same.since <= at < position:
                assert row.offset - at == same.shift, (key, row.offset, at, same)
