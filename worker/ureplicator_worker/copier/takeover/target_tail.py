"""Records behind a position in the target's log, counted by the sequences of their producer. Pure.

    the end of the log ---> read back until a batch of the producer ---> on to the control record that
                                     ^                    |              fenced it: `Behind`
                                     +--- none before it -+

A sequence counts the records of a producer in a partition, and a batch keeps its sequences when it is
compacted (KIP-98; the cleaner leaves an empty batch as the last one of a producer). So the last batch before
the control record tells how many records were appended behind a position whose sequence is known: neither
records of others, nor other control records, nor what was deleted before it change that number.
"""

from __future__ import annotations

import struct
from typing import Any

from ureplicator_common.kafka.provenance import UNCOUNTED, DataProducer
from ureplicator_common.kafka.transactions.producers import Producer
from ureplicator_worker.batches.header import (
    CONTROL,
    NEWEST_MAGIC,
    SEQUENCE_MODULUS,
    Header,
    next_sequence,
    spans,
)
from ureplicator_worker.copier.behind import Behind, TargetLost, Uncountable
from ureplicator_worker.copier.takeover.witness import Witness, copies_of, last_of

BACK = 2
"""Offsets from the end to the last batch, if only the control record follows it."""
FURTHER = 16
_PRODUCER = struct.Struct(">qhi")
_PRODUCER_AT = 43


class TargetTail:
    """`offset`: to be fetched next. `behind`: the result, once it is known.

    `sent`: the producer, with the sequence at the position. `target_end`: end of the log at the position.
    `fence`: the producer of the control record. `end`: an end that the log has at least. `collects`: read
    all records from the position on. `begins`: the log was about to begin at this offset, behind fillers.
    """

    def __init__(
        self,
        *,
        sent: DataProducer,
        target_end: int,
        fence: Producer,
        end: int,
        collects: bool = False,
        begins: int = -1,
    ) -> None:
        self.behind: Behind | None = None
        self._sent, self._fence = sent, fence
        self._target_end = target_end
        self._begins = begins
        self._log_start = 0
        self._collects = collects
        self._copies: list[Witness] = []
        self._back = end if collects else BACK
        self._end = end
        self._last: bytes = b""
        self.offset = self._first()

    def _first(self) -> int:
        return max(self._log_start, self._floor, self._end - self._back)

    @property
    def _floor(self) -> int:
        """Last offset that was acknowledged before the position, or the last there is."""
        return max(0, min(self._target_end, self._end) - 1)

    def out_of_range(self, log_start: int) -> None:
        """The log begins behind the offset, or ends before it. Raises TargetLost."""
        if log_start <= self.offset:
            raise TargetLost(f"target lost offsets before {self._target_end:,}")
        self._log_start = log_start
        self._restart()

    @property
    def done(self) -> bool:
        return self.behind is not None

    def _restart(self) -> None:
        self._last = b""
        self._copies.clear()
        self.offset = self._first()

    def add(self, records: bytes, row: Any = None) -> None:
        """Batches from `offset` on. Raises CorruptBatch, TargetLost, Uncountable."""
        for start, stop in spans(records, 0, len(records)):
            header = Header(records, start)
            if header.last_offset < self.offset:
                continue
            self.offset = header.last_offset + 1
            if header.magic < NEWEST_MAGIC:
                continue  # of others, before the topic was upgraded
            id, epoch, _ = _PRODUCER.unpack_from(records, start + _PRODUCER_AT)
            if header.attributes & CONTROL:
                self._check_place(header, id=id, epoch=epoch)
                if id == self._fence.id and epoch >= self._fence.epoch:
                    self._conclude()
                    return
            elif id == self._sent.id:
                self._last = records[start:stop]
                if self._collects and header.last_offset >= self._target_end and header.records > 0:
                    self._copies += [copy.witness for copy in copies_of(self._last)]

    def _check_place(self, header: Header, *, id: int, epoch: int) -> None:
        """A control record of this fence, or of a former try, follows all that was acknowledged before. Else
        those of many tries would in time reach the end of what was lost, and hide it. Those that fill gaps
        have the epoch of the data. Raises TargetLost."""
        ours = epoch > self._sent.epoch if id == self._sent.id else id == self._fence.id
        if ours and header.base_offset < self._target_end:
            lost = f"{header.base_offset:,} to {self._target_end - 1:,}"
            raise TargetLost(f"target lost offsets {lost}")

    def _conclude(self) -> None:
        """Take the result: the control record ends before `offset`."""
        if self._sent.sequence == UNCOUNTED:
            self.behind = Behind(0, self.offset)
        elif self._last:
            self.behind = self._counted(self.offset)
        elif self._first() > max(self._floor, self._log_start):
            self._back *= FURTHER
            self._restart()
        elif self._log_start > max(self._target_end, self._begins):
            raise Uncountable(
                f"the target's log begins at {self._log_start:,}, behind what was sent after the position"
            )
        else:
            self.behind = Behind(0, self.offset)

    def _following(self) -> int:
        """Sequence behind the last batch."""
        header = Header(self._last, 0)
        _, _, base_sequence = _PRODUCER.unpack_from(self._last, _PRODUCER_AT)
        return next_sequence(base_sequence, header.last_offset - header.base_offset + 1)

    def _counted(self, end: int) -> Behind:
        header = Header(self._last, 0)
        count = (self._following() - self._sent.sequence) % SEQUENCE_MODULUS
        if count > SEQUENCE_MODULUS // 2:
            raise TargetLost(
                f"target lost {SEQUENCE_MODULUS - count:,} records that it acknowledged"
            )
        if not count:
            return Behind(0, end)
        if header.last_offset < self._target_end:
            raise TargetLost(f"target lost records before offset {self._target_end:,}")
        copies = tuple(self._copies) if self._collects else None
        first = self._target_end if header.last_offset + 1 - self._target_end == count else -1
        return Behind(count, end, first, last_of(self._last), copies)
