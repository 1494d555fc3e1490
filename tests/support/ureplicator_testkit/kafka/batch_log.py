"""One partition's log in memory, which accepts batches by a broker's rules.

Base offset 0, a correct checksum, as many records as offsets, and idempotence: the last five batches of a
producer are remembered. An unknown producer may begin anywhere, a newer epoch of a known one with sequence 0,
and so may one of which only control records are known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_testkit.kafka.cluster import Log
from ureplicator_testkit.records.batches import (
    CONTROL,
    HEADER_BYTES,
    TRANSACTIONAL,
    checksum_fits,
    compacted,
    decode,
    marker,
    patched,
)
from ureplicator_testkit.records.batches import field as header_field

REMEMBERED = 5
SEQUENCES = 1 << 31
INVALID_RECORD = 87
MARKER_TYPE = slice(HEADER_BYTES + 7, HEADER_BYTES + 9)
"""Place of the type in the record in a marker: behind five varints of a byte each and the version of
its key."""
ABORT = b"\0\0"

Outcome = tuple[int, int]
"""Error code, and an offset; -1 with an error."""


@dataclass(frozen=True, slots=True)
class KnownProducer:
    """State of a producer in a log; -1 stands for nothing."""

    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start: int


@dataclass
class BatchLog(Log):
    """One partition. `taken`: batches as they were produced or put, with their offsets set. `aborted`:
    producer id, first and last offset (the marker's) of aborted transactions.

    `expired_ms`: producers whose last batch is of a time before are forgotten, at once, but those whose last
    is a control record (`marked`): it has the time of the broker. `coordinator_epochs`: of the last control
    record on request. `_times_ms`: of the last batches of producers. `_epochs`: the first offset of each, of
    the batches `_followed`. `_passed`: an offset, and how many batches end before it. `_removed`: batches as
    they were before retention or compaction, by their first offset.
    """

    taken: list[bytes] = field(default_factory=list)
    max_bytes: int = 1 << 20
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    transactions: dict[int, int] = field(default_factory=dict)
    producers: dict[int, deque[tuple[int, int, int]]] = field(default_factory=dict)
    producer_epochs: dict[int, int] = field(default_factory=dict)
    coordinator_epochs: dict[int, int] = field(default_factory=dict)
    marked: set[int] = field(default_factory=set)
    expired_ms: int = -1
    _times_ms: dict[int, int] = field(default_factory=dict)
    _epochs: dict[int, int] = field(default_factory=dict)
    _followed: int = 0
    _passed: tuple[int, int] = (0, 0)
    _removed: dict[int, bytes] = field(default_factory=dict)

    def put(self, *batches: bytes) -> None:
        """Append batches as they are, under the next offsets."""
        for batch in batches:
            placed = patched(batch, base_offset=self.end, leader_epoch=self.epoch)
            self.taken.append(placed)
            self._follow_transaction(placed)
            self.end += header_field(batch, "last_offset_delta") + 1

    def _follow_transaction(self, batch: bytes) -> None:
        """Transactions are open from their first batch to their marker."""
        attributes, producer = header_field(batch, "attributes"), header_field(batch, "producer_id")
        base = header_field(batch, "base_offset")
        if attributes & CONTROL:
            self._fence(producer, header_field(batch, "producer_epoch"))
            first = self.transactions.pop(producer, None)
            if first is not None and batch[MARKER_TYPE] == ABORT:
                self.aborted.append((producer, first, base))
        elif attributes & TRANSACTIONAL:
            self.transactions.setdefault(producer, base)
        self.open_from = min(self.transactions.values(), default=None)

    def _fence(self, producer: int, epoch: int) -> None:
        """A control record under a newer epoch: nothing of the former is accepted any more."""
        if epoch > self.producer_epochs.get(producer, 0):
            self.producer_epochs[producer] = epoch
            self.producers.pop(producer, None)
        self.marked.add(producer)

    def mark(self, producer: int, epoch: int, *, coordinator_epoch: int, commit: bool) -> int:
        """Append a control record (WriteTxnMarkers); error code. The sequence goes on in the same epoch."""
        self._expire()
        if epoch < self.producer_epochs.get(producer, epoch):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if coordinator_epoch < self.coordinator_epochs.get(producer, coordinator_epoch):
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        written = marker(base_offset=0, producer_id=producer, producer_epoch=epoch, commit=commit)
        self.put(written)
        self.producer_epochs[producer] = epoch
        self.coordinator_epochs[producer] = coordinator_epoch
        self._times_ms[producer] = header_field(written, "max_timestamp")
        return ErrorCode.NONE

    def known_producers(self) -> dict[int, KnownProducer]:
        """State of producers as DescribeProducers shows it."""
        self._expire()
        return {
            producer: KnownProducer(
                epoch,
                known[-1][1] if (known := self.producers.get(producer)) else -1,
                self._times_ms.get(producer, -1),
                self.coordinator_epochs.get(producer, -1),
                self.transactions.get(producer, -1),
            )
            for producer, epoch in self.producer_epochs.items()
        }

    def forget_producers(self) -> None:
        for producer in {*self.producer_epochs, *self.marked}:
            self._forget(producer)

    def _forget(self, producer: int) -> None:
        self.marked.discard(producer)
        self.producers.pop(producer, None)
        self.producer_epochs.pop(producer, None)
        self.coordinator_epochs.pop(producer, None)
        self._times_ms.pop(producer, None)

    def _expire(self) -> None:
        for producer, time_ms in [*self._times_ms.items()]:
            if time_ms < self.expired_ms and producer not in self.marked:
                self._forget(producer)

    def delete_before(self, offset: int) -> Outcome:
        """The log start after DeleteRecords. An offset of -1: all that consumers see."""
        wanted = self.high_watermark if offset == -1 else offset
        if not 0 <= wanted <= self.high_watermark:
            return ErrorCode.OFFSET_OUT_OF_RANGE, -1
        self.delete(wanted)
        return ErrorCode.NONE, self.start

    def delete(self, start: int) -> None:
        """Records before the offset are gone. A batch that reaches beyond stays, as with DeleteRecords."""
        self.start = max(self.start, min(start, self.end))
        self._replace(lambda batch: batch if last_offset(batch) >= self.start else None)

    def compact(self, end: int) -> None:
        """Leave of each key only the newest record before the offset, of those outside of transactions. The
        last batch of a producer stays, if empty (KIP-98)."""
        newest: dict[bytes | None, int] = {}
        cleaned = [batch for batch in self.taken if last_offset(batch) < end and is_plain(batch)]
        for batch in cleaned:
            newest |= {record.key: record.offset for record in decode(batch)}
        lasts = {header_field(batch, "producer_id"): batch for batch in self.taken}

        def clean(batch: bytes) -> bytes | None:
            if batch not in cleaned:
                return batch
            kept = {row.offset for row in decode(batch) if newest[row.key] == row.offset}
            producer = header_field(batch, "producer_id")
            if kept or (producer >= 0 and lasts[producer] == batch):
                return compacted(batch, kept)
            return None

        self._replace(clean)

    def _replace(self, change: Callable[[bytes], bytes | None]) -> None:
        changed: list[bytes] = []
        for batch in self.taken:
            other = change(batch)
            if other != batch:
                self._removed.setdefault(header_field(batch, "base_offset"), batch)
            if other is not None:
                changed.append(other)
        self._followed = max(0, self._followed - len(self.taken) + len(changed))
        self._passed = (0, 0)
        self.taken = changed

    def recover(self, *, kept: int | None = None) -> None:
        """A broker reads the state of producers from the log that it has: but for the `kept` one, what was
        deleted is unknown."""
        present = {} if kept is None else {kept: self.producer_epochs.get(kept, 0)}
        for batch in self.taken:
            producer = header_field(batch, "producer_id")
            epoch = header_field(batch, "producer_epoch")
            present[producer] = max(epoch, present.get(producer, epoch))
        former = self.producer_epochs
        self.producer_epochs = {id: at for id, at in present.items() if id in former}
        self.producers = {
            id: self.producers[id]
            if id in self.producers and epoch == former[id]
            else self._remembered(id)
            for id, epoch in self.producer_epochs.items()
        }

    def _remembered(self, producer: int) -> deque[tuple[int, int, int]]:
        """Sequences and offsets of a producer's last batches in its present epoch, by those in the log."""
        own = (producer, self.producer_epochs[producer])
        sent = (
            batch
            for batch in self.taken
            if (header_field(batch, "producer_id"), header_field(batch, "producer_epoch")) == own
            and not header_field(batch, "attributes") & CONTROL
        )
        return deque(map(_sequences, sent), maxlen=REMEMBERED)

    @property
    def whole(self) -> list[bytes]:
        """Batches as they were appended, also those that were removed since."""
        if not self._removed:
            return self.taken
        present = {header_field(batch, "base_offset"): batch for batch in self.taken}
        return [batch for _, batch in sorted((present | self._removed).items())]

    def truncate(self, end: int) -> None:
        """Lose what lies behind, and what the producers sent there (an unclean election)."""
        self.taken = [batch for batch in self.taken if header_field(batch, "base_offset") < end]
        self._removed = {base: batch for base, batch in self._removed.items() if base < end}
        self.end = end
        self._followed, self._passed = 0, (0, 0)
        self._epochs.clear()
        self.aborted.clear()
        self.transactions.clear()
        for batch in self.taken:
            self._follow_transaction(batch)
        for producer in [*self.producers]:
            self.producers[producer] = kept = self._remembered(producer)
            if not kept and producer not in self.marked:
                self._forget(producer)

    def produce(self, batch: bytes) -> Outcome:
        """The base offset."""
        count = header_field(batch, "records")
        if header_field(batch, "base_offset"):
            return INVALID_RECORD, -1
        if len(batch) > self.max_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        if not checksum_fits(batch):
            return ErrorCode.CORRUPT_MESSAGE, -1
        if header_field(batch, "last_offset_delta") != count - 1:
            return INVALID_RECORD, -1
        if header_field(batch, "producer_id") < 0:
            self.put(batch)
            return ErrorCode.NONE, self.end - count
        return self._produce_once(batch)

    def _produce_once(self, batch: bytes) -> Outcome:
        producer, epoch = header_field(batch, "producer_id"), header_field(batch, "producer_epoch")
        first, last, _ = _sequences(batch)
        self._expire()
        known_epoch = self.producer_epochs.get(producer)
        if known_epoch is not None and epoch < known_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        known = self.producers.get(producer, ()) if epoch == known_epoch else ()
        for old_first, old_last, offset in known:
            if (old_first, old_last) == (first, last):
                return ErrorCode.NONE, offset
        following = (known[-1][1] + 1) % SEQUENCES if known else 0
        if known_epoch is not None and first != following:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        base = self.end
        self.producers[producer] = deque((*known, (first, last, base)), maxlen=REMEMBERED)
        self.producer_epochs[producer] = epoch
        self.marked.discard(producer)
        self._times_ms[producer] = header_field(batch, "max_timestamp")
        self.put(batch)
        return ErrorCode.NONE, base

    def committed(self, *, stable: bool = True) -> list[bytes]:
        """Batches that a consumer with read_committed gets, from the beginning, before anything was removed.
        Not `stable`: also those behind the beginning of a transaction that is open, of which it gets none."""
        found = []
        for batch in self.whole:
            base, producer = header_field(batch, "base_offset"), header_field(batch, "producer_id")
            attributes = header_field(batch, "attributes")
            if stable and base >= self.stable_end:
                break
            void = attributes & TRANSACTIONAL and (
                base >= self.transactions.get(producer, self.end)
                or any(
                    producer == aborted and first <= base < last
                    for aborted, first, last in self.aborted
                )
            )
            if not attributes & CONTROL and not void:
                found.append(batch)
        return found

    def diverging(self, offset: int, last_epoch: int) -> tuple[int, int] | None:
        """Largest epoch up to the last fetched one, and its end, if the log is not the one that was read
        (KIP-595)."""
        for batch in self.taken[self._followed :]:
            epoch = header_field(batch, "leader_epoch")
            self._epochs.setdefault(epoch, header_field(batch, "base_offset"))
        self._followed = len(self.taken)
        known = max((epoch for epoch in self._epochs if epoch <= last_epoch), default=-1)
        end = next((base for epoch, base in self._epochs.items() if epoch > known), self.end)
        return (known, end) if known >= 0 and (known < last_epoch or end < offset) else None

    def fetch(self, offset: int, limit: int, *, stable: bool = True) -> list[bytes]:
        """Batches, whole, from the one that holds the offset, one at least. `stable`: as far as they are
        shown with read_committed."""
        end = self.stable_end if stable else self.high_watermark
        found: list[bytes] = []
        size = 0
        passed_to, first = self._passed
        for place in range(first if passed_to <= offset else 0, len(self.taken)):
            batch = self.taken[place]
            base = header_field(batch, "base_offset")
            if base + header_field(batch, "last_offset_delta") < offset:
                continue
            if not found:
                self._passed = offset, place
            size += len(batch)
            if (found and size > limit) or base >= end:
                break
            found.append(batch)
        return found

    def aborted_in(self, offset: int, fetched: list[bytes]) -> list[tuple[int, int]]:
        """Producer id and first offset of the aborted transactions that overlap with a response."""
        end = header_field(fetched[-1], "base_offset") + 1 if fetched else offset
        return [
            (producer, first)
            for producer, first, last in self.aborted
            if last >= offset and first < end
        ]


def last_offset(batch: bytes) -> int:
    return header_field(batch, "base_offset") + header_field(batch, "last_offset_delta")


def _sequences(batch: bytes) -> tuple[int, int, int]:
    """First and last sequence, and first offset."""
    first = header_field(batch, "base_sequence")
    last = (first + header_field(batch, "last_offset_delta")) % SEQUENCES
    return first, last, header_field(batch, "base_offset")


def is_plain(batch: bytes) -> bool:
    """True if it has records, outside of a transaction."""
    attributes = header_field(batch, "attributes")
    return not attributes & (TRANSACTIONAL | CONTROL) and header_field(batch, "records") > 0
