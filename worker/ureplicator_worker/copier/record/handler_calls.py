"""One chunk in the process of a handler: each record through the handler, its outputs into batches.

Results go back while the chunk is worked on, after REPORT_AFTER_S or REPORT_BYTES: a slow handler shows
progress, and outputs that multiply need bounded memory. All outputs of a record are in the same result.

What the handler raises concerns the record: it goes to the dead-letter topic, or the chunk ends there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ureplicator_worker.batches.header import CorruptBatch
from ureplicator_worker.copier.record.decoding import StoredRecords
from ureplicator_worker.copier.record.encoding import (
    BadOutput,
    Builders,
    Ready,
    checked,
    encoded,
    partition_of,
)
from ureplicator_worker.copier.record.time_limit import TimeLimit
from ureplicator_worker.copier.record.user_errors import log_stack, place_of, reason_of
from ureplicator_worker.handlers import BY_KEY, Handler, Output, Record

REPORT_AFTER_S = 0.2
REPORT_BYTES = 1 << 20
CLOCK_EVERY = 64
"""Records between two readings of the clock; the time limit bounds each of them."""

PASSED_BYTES = 16 << 10
"""Stored batches that stay as they are, and are at least so large, are sent as they are; smaller ones are
put together."""
DEAD_LETTER = "ureplicator.dead-letter."
"""Prefix of the headers that a dead letter has besides its own."""
MAX_REASON = 500
MAX_STACKS = 20
"""Stacks that one process logs."""

Emission = tuple[tuple[str, int], bytes, int]
"""Target partition, encoded record, time."""


class ChunkFailed(Exception):
    """The partition cannot go on at `offset`."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"{reason} (at offset {offset})")
        self.offset = offset


class ChunkWork:
    """`partition_count(topic)` of the target; 0: it does not exist. `report(next_offset, batches)`."""

    def __init__(
        self,
        handler: Handler,
        *,
        dead_letter_topic: str,
        limit: TimeLimit,
        partition_count: Callable[[str], int],
        report: Callable[[int, Iterable[Ready]], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._handle = handler.handle
        self._dead_letter_topic = dead_letter_topic
        self._limit = limit
        self._partition_count = partition_count
        self._report = report
        self._now_s = now_s
        self._builders = Builders()
        self._logged: set[str] = set()
        self._target = ("", 0)
        self._stored: StoredRecords
        self._same = self._same_at = self._same_base = 0
        """Records in a row that stay as they are: their number, and the place of the first."""
        self._reported_s = 0.0
        self._records = self._replaced = self._emitted = self._dropped = self._dead_letters = 0

    def take_counts(self) -> dict[str, int]:
        """Counts of the records since the last call. Those that stay as they are do not count one by
        one."""
        counts = {
            "records": self._records,
            "outputs": self._records - self._replaced + self._emitted,
            "dropped": self._dropped,
            "dead_letters": self._dead_letters,
        }
        self._records = self._replaced = self._emitted = self._dropped = self._dead_letters = 0
        return counts

    def run(
        self, topic: str, partition: int, target: str, batches: Sequence[tuple[memoryview, int]]
    ) -> None:
        """Stored batches, each from a position on. Raises ChunkFailed, after a last report."""
        self._target = (target, partition)
        self._reported_s = self._now_s()
        self._limit.begin()
        try:
            for view, position in batches:
                self._batch(view, topic, partition, position)
        finally:
            self._limit.end()

    def _batch(self, view: memoryview, topic: str, partition: int, position: int) -> None:
        next_offset, count = position, 0
        try:
            stored = self._stored = StoredRecords(view, position=position)
            for record, at, base in stored.read(
                topic=topic, partition=partition, position=position
            ):
                emissions = self._emissions(record)
                if emissions is None:
                    if base != self._same_base:
                        self._take_same()
                    if not self._same:
                        self._same_at, self._same_base = at, base
                    self._same += 1
                else:
                    self._append(record, emissions)
                next_offset = record.offset + 1
                count += 1
                if count >= CLOCK_EVERY or self._limit.slow:
                    self._records += count
                    count = 0
                    self._report_if_due(next_offset)
        except CorruptBatch as error:
            self._records += count
            self._flush(next_offset)
            raise ChunkFailed(next_offset, f"corrupt: {error}") from error
        except ChunkFailed as error:
            self._records += count
            self._flush(error.offset)
            raise
        self._records += count
        header = stored.header
        if stored.whole and self._same == header.records and len(view) >= PASSED_BYTES:
            self._builders.pass_on(self._target, view, header)
            self._same = 0
        self._take_same()
        self._report_if_due(next_offset)

    def _append(self, record: Record, emissions: Iterable[Emission]) -> None:
        self._take_same()
        codec = self._stored.header.codec
        for target, rest, time_ms in emissions:
            self._builders.append(target, rest, offset=record.offset, time_ms=time_ms, codec=codec)

    def _take_same(self) -> None:
        """Records that stay as they are go into the batch of the target together, before what follows."""
        if self._same:
            self._builders.splice(
                self._target, self._stored, self._same_at, self._same, self._same_base
            )
            self._same = 0

    def finish(self, next_offset: int) -> None:
        """The rest of the outputs."""
        self._flush(next_offset)

    def _emissions(self, record: Record) -> list[Emission] | None:
        """Outputs of the record; None: it stays as it is."""
        try:
            outputs = self._limit.call(self._handle, record)
            if len(outputs) == 1 and outputs[0] is record:
                return None
            emissions = [self._emission(record, checked(output)) for output in outputs]
        except (CorruptBatch, ChunkFailed):
            raise
        except BaseException as error:
            emissions = [self._dead_letter(record, error)]
            self._dead_letters += 1
        self._replaced += 1
        self._emitted += len(emissions)
        self._dropped += not emissions
        return emissions

    def _emission(self, record: Record, output: Output) -> Emission:
        """A topic that is missing is no fault of the record: it does not go to the dead-letter topic."""
        rest = encoded(output)
        topic = output.topic or self._target[0]
        number = record.partition if output.partition is None else output.partition
        if (topic, number) == self._target:
            return self._target, rest, output.timestamp_ms
        count = self._partition_count(topic)
        if count == 0:
            raise ChunkFailed(record.offset, f"handler: the target has no topic {topic}")
        if number == BY_KEY:
            number = record.partition if output.key is None else partition_of(output.key, count)
        if not 0 <= number < count:
            raise BadOutput(f"{topic} has no partition {number}: it has {count}")
        return (topic, number), rest, output.timestamp_ms

    def _dead_letter(self, record: Record, error: BaseException) -> Emission:
        """Raises ChunkFailed if there is no topic for it."""
        reason = reason_of(error)[:MAX_REASON]
        self._log(record, error)
        topic = self._dead_letter_topic
        if not topic:
            raise ChunkFailed(record.offset, f"handler: {reason}") from error
        count = self._partition_count(topic)
        if count == 0:
            missing = f"dead-letter topic {topic} does not exist on the target"
            raise ChunkFailed(record.offset, f"{missing}; handler: {reason}") from error
        about = {
            "topic": record.topic,
            "partition": str(record.partition),
            "offset": str(record.offset),
            "reason": reason,
        }
        added = tuple(
            (DEAD_LETTER + name, value.encode(errors="replace")) for name, value in about.items()
        )
        output = record.output(headers=record.headers + added)
        return (topic, record.partition % count), encoded(output), record.timestamp_ms

    def _log(self, record: Record, error: BaseException) -> None:
        """The stack, once for each place: a handler may fail at every record."""
        place = f"{type(error).__name__} {place_of(error)}"
        if place not in self._logged and len(self._logged) < MAX_STACKS:
            self._logged.add(place)
            log_stack(f"{record.topic}/{record.partition} at offset {record.offset}", error)

    def _report_if_due(self, next_offset: int) -> None:
        full = self._builders.size_bytes >= REPORT_BYTES
        if full or self._now_s() - self._reported_s > REPORT_AFTER_S:
            self._flush(next_offset)

    def _flush(self, next_offset: int) -> None:
        self._take_same()
        self._report(next_offset, self._builders.take())
        self._reported_s = self._now_s()


def outputs_of(result: Any) -> Sequence[Any]:
    """All outputs that a handler returned; what it yields is taken here."""
    if isinstance(result, tuple | list) and not isinstance(result, Record | Output):
        return result
    if result is None or isinstance(result, Record | Output | str | bytes):
        raise BadOutput(f"handle returned {type(result).__name__}, not an iterable of outputs")
    return list(result)
