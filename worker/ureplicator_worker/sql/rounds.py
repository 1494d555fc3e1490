"""Rounds: the records of chunks as rows for a query, and its rows as records for the target. Pure.

    chunk of partition 0  |  chunk of partition 4  | ...
    segment               |  segment               |        of one round
    rows 0 ... 311        |  rows 312 ... 700      |

A round takes records in order, of one or more chunks, until it is full. Each row of the result names the
row that it comes from, so it belongs to that row's segment; within it the order is that of the rows. A round
that fails is divided, by segments and then in halves, so what remains is the record at fault.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from ureplicator_worker.copier.record.decoding import Found, StoredRecords
from ureplicator_worker.copier.record.encoding import BadOutput, Builders, Ready, encoded
from ureplicator_worker.handlers import Header, Output, Record
from ureplicator_worker.sql.query import ROW, Query, QueryFailed

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": _HEADERS,
}
SCHEMA = pa.schema([*_TYPES.items(), (ROW, pa.int32())])
"""`query.COLUMNS` as Arrow has them, and the number of the row."""

NO_TIME_MS = -1
MAX_TIME_MS = ((1 << 63) - 1) // 1_000
"""Spark counts microseconds in 64 bits, Kafka milliseconds."""

Target = tuple[str, int]
Emission = tuple[int, Target, bytes, int]
"""Row of the round, target partition, encoded record, time."""


@dataclass(slots=True, eq=False)
class Task:
    """A chunk. `closed`: its last message was sent."""

    topic: str
    partition: int
    target: str
    next_offset: int
    closed: bool = False


@dataclass(slots=True)
class Segment:
    """Rows `first` to `stop` of a round are of one task. `next_offset`: everything before it is in this
    round or a former one. `last`: the task ends with it; with `error`, since it cannot be read further."""

    task: Task
    first: int
    stop: int
    next_offset: int
    last: bool = False
    error: str = ""


@dataclass(slots=True)
class Round:
    """`places`: of each record: its stored batch, its place there, and the base of its offset."""

    segments: list[Segment] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    places: list[tuple[StoredRecords, int, int]] = field(default_factory=list)
    size_bytes: int = 0

    def begin(self, task: Task, position: int) -> None:
        rows = len(self.records)
        self.segments.append(Segment(task, rows, rows, position))

    def add(self, record: Record, stored: StoredRecords, at: int, base: int) -> None:
        self.records.append(record)
        self.places.append((stored, at, base))
        self.size_bytes += len(record.key or b"") + len(record.value or b"")

    def extend(self, found: Sequence[Found], stored: StoredRecords) -> None:
        """All that a stored batch has."""
        self.records += [record for record, _, _ in found]
        self.places += [(stored, at, base) for _, at, base in found]
        self.size_bytes += len(stored.data)

    def end(self, *, last: bool = False, error: str = "") -> None:
        """The segment has no more rows here."""
        segment = self.segments[-1]
        segment.stop, segment.last, segment.error = len(self.records), last, error
        if segment.stop > segment.first:
            segment.next_offset = self.records[-1].offset + 1

    def part(self, segment: Segment, first: int, stop: int) -> Round:
        """These rows of a segment as a round."""
        ends = stop == segment.stop
        next_offset = segment.next_offset if ends else self.records[stop].offset
        of_it = Segment(
            segment.task,
            0,
            stop - first,
            next_offset,
            ends and segment.last,
            segment.error if ends else "",
        )
        return Round([of_it], self.records[first:stop], self.places[first:stop])

    def divided(self) -> Iterator[Round]:
        """Smaller rounds, in order, of more than one row or segment."""
        if len(self.segments) > 1:
            for segment in self.segments:
                yield self.part(segment, segment.first, segment.stop)
            return
        (segment,) = self.segments
        middle = len(self.records) // 2
        yield self.part(segment, 0, middle)
        yield self.part(segment, middle, len(self.records))


def table_of(round_: Round, inputs: frozenset[str]) -> pa.Table:
    """Rows of the view; columns that the query does not compute with are null. Raises QueryFailed."""
    count = len(round_.records)
    columns: list[Any] = []
    for name, type_ in _TYPES.items():
        if name in inputs:
            columns.append(pa.array(_VALUES[name](round_), type_))
        else:
            columns.append(pa.nulls(count, type_))
    columns.append(pa.array(np.arange(count, dtype=np.int32)))
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _headers(headers: Sequence[Header]) -> list[dict[str, Any]] | None:
    """Bytes of names that are not UTF-8 are replaced: Spark has no such strings."""
    if not headers:
        return None
    return [
        {"key": name.encode(errors="surrogateescape").decode(errors="replace"), "value": value}
        for name, value in headers
    ]


def _times_us(of: Round) -> list[int]:
    """Raises QueryFailed: a producer may have sent any number, such as nanoseconds."""
    times_ms = [each.timestamp_ms for each in of.records]
    for time_ms in (min(times_ms), max(times_ms)):
        if not -MAX_TIME_MS <= time_ms <= MAX_TIME_MS:
            raise QueryFailed(f"timestamp {time_ms} ms is out of range of Spark's timestamps")
    return [time_ms * 1_000 for time_ms in times_ms]


_VALUES: dict[str, Callable[[Round], list[Any]]] = {
    "key": lambda of: [each.key for each in of.records],
    "value": lambda of: [each.value for each in of.records],
    "topic": lambda of: [each.topic for each in of.records],
    "partition": lambda of: [each.partition for each in of.records],
    "offset": lambda of: [each.offset for each in of.records],
    "timestamp": _times_us,
    "timestampType": lambda of: [int(each.stamped_ms is not None) for each, _, _ in of.places],
    "headers": lambda of: [_headers(each.headers) for each in of.records],
}


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
        rows = table.column(ROW).to_pylist()
        if any(later < row for row, later in itertools.pairwise(rows)):
            order = sorted(range(len(rows)), key=rows.__getitem__)
            rows = [rows[each] for each in order]
            table = table.take(pa.array(order))
        self._rows, self._table = rows, table
        self._partition_count = partition_count
        self._at = 0

    def emitted(self, segment: Segment) -> Emitted:
        """Of the segments in order. Raises CorruptBatch for times too far apart for one batch."""
        first = self._at
        while self._at < len(self._rows) and self._rows[self._at] < segment.stop:
            self._at += 1
        builders = Builders()
        if self._query.whole:
            self._splice(segment, self._rows[first : self._at], builders)
            count = self._at - first
            return Emitted(tuple(builders.take()), count, count)
        emissions, failed = self._emissions(segment.task, first, self._at)
        for row, target, rest, time_ms in emissions:
            codec = self._round.places[row][0].header.codec
            offset = self._round.records[row].offset
            builders.append(target, rest, offset=offset, time_ms=time_ms, codec=codec)
        kept = len({each[0] for each in emissions})
        return Emitted(tuple(builders.take()), len(emissions), kept, failed)

    def _splice(self, segment: Segment, rows: Sequence[int], builders: Builders) -> None:
        """Records that stay as they are, as bytes; those of a stored batch together."""
        target = (segment.task.target, segment.task.partition)
        picked: list[int] = []
        before: tuple[StoredRecords, int] | None = None
        places = self._round.places
        for row in rows:
            stored, place, base = places[row]
            if before is None or stored is not before[0] or base != before[1]:
                if before is not None:
                    builders.pick(target, before[0], picked, before[1])
                before, picked = (stored, base), []
            picked.append(place)
        if before is not None:
            builders.pick(target, before[0], picked, before[1])

    def _emissions(
        self, task: Task, first: int, stop: int
    ) -> tuple[list[Emission], RecordFailed | None]:
        """All outputs of the rows before one that failed."""
        rows = self._rows[first:stop]
        columns = [self._column(name, rows, first) for name in _OUTPUTS]
        emissions: list[Emission] = []
        for row, key, value, headers, time_us, number, topic in zip(rows, *columns, strict=True):
            record = self._round.records[row]
            try:
                target = self._target(task, record, topic, number)
                rest = encoded(Output(key, value, headers_of(headers)))
                time_ms = record.timestamp_ms if time_us is None else _time_ms(time_us)
            except BadOutput as error:
                before = [each for each in emissions if each[0] < row]
                return before, RecordFailed(row, str(error))
            emissions.append((row, target, rest, time_ms))
        return emissions, None

    def _column(self, name: str, rows: Sequence[int], first: int) -> Sequence[Any]:
        """Values for these rows of the result: computed, of the record, or missing."""
        if name in self._query.computed:
            column = self._table.column(name).slice(first, len(rows))
            return list((column.cast(pa.int64()) if name == "timestamp" else column).to_pylist())
        if name in self._query.passed and name in _OF_A_RECORD:
            return [getattr(self._round.records[row], name) for row in rows]
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
    for each in headers:
        if each is None or each["key"] is None:
            raise BadOutput("a header has no key")
        found.append((each["key"], each["value"]))
    return tuple(found)
