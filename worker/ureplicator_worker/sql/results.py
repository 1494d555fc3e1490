"""Rows of a result as records for the target. Pure.

Records that a query only selects are spliced into new batches as bytes, and whole stored batches of which
none is left out are sent as they are. The others, and records that come more than once, are made of the
computed columns and the record's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ureplicator_worker.batches.offsets import SourceOffsets
from ureplicator_worker.batches.records import Built
from ureplicator_worker.copier.record.decoding import StoredRecords
from ureplicator_worker.copier.record.encoding import BadOutput, Builders, Ready, encoded
from ureplicator_worker.handlers import Header, Output, Record
from ureplicator_worker.sql.pieces import Piece
from ureplicator_worker.sql.query import ROW, Query
from ureplicator_worker.sql.rounds import Round, Segment, Task
from ureplicator_worker.sql.splicing import spliced

NO_TIME_MS = -1
PASSED_BYTES = 16 << 10
"""Stored batches of which no record is left out are sent as they are if they are at least so large; smaller
ones are put together."""

Target = tuple[str, int]
Emission = tuple[int, Target, bytes, int]
"""Row of the round, target partition, encoded record, time."""


class RecordFailed(Exception):
    """No record can be made of the result for this row."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row


@dataclass(frozen=True, slots=True)
class Emitted:
    """Batches for the target of a segment. `outputs`: records in them; `kept`: rows that these come from."""

    ready: tuple[Ready, ...] = ()
    outputs: int = 0
    kept: int = 0
    failed: RecordFailed | None = None


NOTHING = Emitted()


class Results:
    """Rows of a result, and the records that they are. `partition_count(topic)` of the target; 0: there is no
    such topic."""

    def __init__(
        self,
        round_: Round,
        query: Query,
        table: pa.Table,
        *,
        partition_count: Callable[[str], int],
    ) -> None:
        self._round = round_
        self._query = query
        rows = table.column(ROW).to_numpy()
        if (rows[1:] < rows[:-1]).any():
            order = np.argsort(rows, kind="stable")
            rows, table = rows[order], table.take(pa.array(order))
        self._rows: npt.NDArray[np.int32] = rows
        self._table = table
        self._partition_count = partition_count
        self._records: dict[int, Record] = {}

    def emitted(self, segment: Segment) -> Emitted:
        """Outputs of one segment. Raises CorruptBatch for times too far apart for one batch."""
        first, stop = np.searchsorted(self._rows, (segment.first, segment.stop)).tolist()
        if self._query.whole and self._ascend(first, stop):
            ready = tuple(self._whole(segment))
            return Emitted(ready, stop - first, stop - first)
        builders = Builders()
        self._records = self._read(segment, first, stop)
        emissions, failed = self._emissions(segment.task, first, stop)
        for row, target, rest, time_ms in emissions:
            offset = self._records[row].offset
            codec = self._round.piece(row).stored.header.codec
            builders.append(target, rest, offset=offset, time_ms=time_ms, codec=codec)
        kept = len({emission[0] for emission in emissions})
        return Emitted(tuple(builders.take()), len(emissions), kept, failed)

    def _ascend(self, first: int, stop: int) -> bool:
        """No record comes more than once, as from a generator: records can be spliced."""
        rows = self._rows[first:stop]
        return bool((rows[1:] > rows[:-1]).all())

    def _whole(self, segment: Segment) -> Iterator[Ready]:
        """Batches of the records that stay as they are."""
        target = (segment.task.target, segment.task.partition)
        waiting: list[Piece] = []
        for piece in self._kept(segment):
            if _passes(piece):
                yield from (Ready(target, built) for built in _spliced(waiting))
                waiting = []
                yield Ready(target, _passed(piece.stored))
            else:
                waiting.append(piece)
        yield from (Ready(target, built) for built in _spliced(waiting))

    def _kept(self, segment: Segment) -> Iterator[Piece]:
        """The part of each piece that the result has."""
        pieces = list(self._round.between(segment.first, segment.stop))
        starts = [start for start, _ in pieces]
        bounds = np.searchsorted(self._rows, [*starts, segment.stop]).tolist()
        for (start, piece), first, stop in zip(pieces, bounds[:-1], bounds[1:], strict=True):
            if stop - first == len(piece.places):
                yield piece
            elif stop > first:
                rows = (self._rows[first:stop] - start).tolist()
                yield Piece(piece.stored, [piece.places[row] for row in rows], piece.base)

    def _read(self, segment: Segment, first: int, stop: int) -> dict[int, Record]:
        """Records of the rows `first` to `stop` of the result."""
        topic, partition = segment.task.topic, segment.task.partition
        wanted = set(self._rows[first:stop].tolist())
        records: dict[int, Record] = {}
        for start, piece in self._round.between(segment.first, segment.stop):
            rows = {at: start + index for index, at in enumerate(piece.places)}
            for record, at, _ in piece.stored.read(topic=topic, partition=partition, position=0):
                if rows.get(at) in wanted:
                    records[rows[at]] = record
                if at >= piece.places[-1]:
                    break
        return records

    def _emissions(
        self, task: Task, first: int, stop: int
    ) -> tuple[list[Emission], RecordFailed | None]:
        """All outputs of the rows before one that failed."""
        rows = self._rows[first:stop].tolist()
        columns = [self._column(name, rows, first) for name in _OUTPUTS]
        emissions: list[Emission] = []
        for row, key, value, headers, time_us, number, topic in zip(rows, *columns, strict=True):
            record = self._records[row]
            try:
                target = self._target(task, record, topic, number)
                rest = encoded(Output(key, value, headers_of(headers)))
                time_ms = record.timestamp_ms if time_us is None else _time_ms(time_us)
            except BadOutput as error:
                before = [emission for emission in emissions if emission[0] < row]
                return before, RecordFailed(row, str(error))
            emissions.append((row, target, rest, time_ms))
        return emissions, None

    def _column(self, name: str, rows: Sequence[int], first: int) -> Sequence[Any]:
        """Values for these rows of the result: computed, of the record, or missing."""
        if name in self._query.computed:
            column = self._table.column(name).slice(first, len(rows))
            return list((column.cast(pa.int64()) if name == "timestamp" else column).to_pylist())
        if name in self._query.passed and name in _OF_A_RECORD:
            return [getattr(self._records[row], name) for row in rows]
        return [None] * len(rows)

    def _target(self, task: Task, record: Record, topic: str | None, number: int | None) -> Target:
        """The source's topic and partition, also by name and number, mean the route's target topic and the
        same partition. Raises BadOutput."""
        own = topic is None or topic == task.topic
        if own and (number is None or number == task.partition):
            return task.target, task.partition
        name = task.target if topic is None or own else topic
        count = self._partition_count(name)
        if not count:
            raise BadOutput(f"the target has no topic {name}")
        if number is None:
            number = record.partition % count
        if not 0 <= number < count:
            raise BadOutput(f"{name} has no partition {number}: it has {count}")
        return name, number


def _passes(piece: Piece) -> bool:
    """The batch can be sent as it is, if all of the piece is."""
    stored = piece.stored
    whole = stored.whole and len(piece.places) == stored.header.records
    return whole and len(stored.view) >= PASSED_BYTES


def _passed(stored: StoredRecords) -> Built:
    """A stored batch, wholly as it is."""
    header = stored.header
    offsets = SourceOffsets.from_(header.base_offset)
    return Built(bytearray(stored.view), header.records, offsets, header.max_timestamp_ms)


def _spliced(pieces: list[Piece]) -> Iterator[Built]:
    return spliced(pieces) if pieces else iter(())


_OUTPUTS = ("key", "value", "headers", "timestamp", "partition", "topic")
_OF_A_RECORD = ("key", "value", "headers")
"""Columns that pass unchanged are the record's; so are time, partition and topic where there is no value."""


def _time_ms(time_us: int) -> int:
    """Time of a record. Raises BadOutput for one that Kafka does not take; -1 is none."""
    time_ms = time_us // 1_000
    if time_ms < NO_TIME_MS:
        raise BadOutput(f"timestamp is {time_ms} ms")
    return time_ms


def headers_of(headers: Any) -> tuple[Header, ...]:
    """Headers of a record, or of a result: structs of key and value. Raises BadOutput."""
    if not headers:
        return ()
    if isinstance(headers, tuple):
        return headers
    found = []
    for header in headers:
        if header is None or header["key"] is None:
            raise BadOutput("a header has no key")
        found.append((header["key"], header["value"]))
    return tuple(found)
