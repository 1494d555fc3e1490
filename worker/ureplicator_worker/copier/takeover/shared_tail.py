"""Records behind a position whose producer is shared with its former owner, which may still send. Pure.

Both send the same records in the same order under the same sequences, so the leader takes each once. The
state of the producer at the leader tells the next sequence; the log is read up to the batch before it, for
the record that was copied last. What the former owner appends meanwhile is read, too, or refuses our next
batch (OUT_OF_ORDER_SEQUENCE_NUMBER), and the partition begins again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ureplicator_common.kafka.provenance import DataProducer
from ureplicator_common.kafka.transactions.producers import Producer
from ureplicator_worker.batches.header import SEQUENCE_MODULUS
from ureplicator_worker.copier.behind import Behind
from ureplicator_worker.copier.takeover.target_tail import TargetTail


class SharedTail(TargetTail):
    """See `TargetTail`. `following`: the next sequence by the leader; the log may not show it yet. `known`:
    the leader knows the producer; else the log must hold nothing of it."""

    def __init__(
        self,
        *,
        sent: DataProducer,
        target_end: int,
        end: int,
        following: int,
        known: bool,
    ) -> None:
        newer = Producer(sent.id, sent.epoch + 1)
        super().__init__(sent=sent, target_end=target_end, fence=newer, end=end, collects=False)
        self._next, self._known = following, known
        if known and following == sent.sequence:
            self.behind = Behind(0, end, shared=sent)

    def add(self, records: bytes, row: Any = None) -> None:
        """See `TargetTail.add`. A producer that was fenced since is not shared."""
        super().add(records, row)
        if self.behind is None and self.offset >= self._end and self._is_reached():
            self._conclude()
            self._share()

    def _is_reached(self) -> bool:
        """The batch before the next sequence was read, or is to be looked for further back."""
        if not self._last:
            return self._next == self._sent.sequence or self._first() > self._floor
        return (self._following() - self._next) % SEQUENCE_MODULUS < SEQUENCE_MODULUS // 2

    def _share(self) -> None:
        if self.behind is None or (self._last and not self._known):
            return
        sequence = self._following() if self._last else self._sent.sequence
        shared = self._sent._replace(sequence=sequence)
        self.behind = replace(self.behind, end=max(self._end, self.behind.end), shared=shared)
