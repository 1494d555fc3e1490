"""Stored batches to Arrow columns, under the names and types of Spark's own Kafka source. Hot path.

Only one thing of a record is read by itself: its length, since it says where the next one begins. The
other numbers are read for all records of an Arrow batch at once, byte by byte of their varints. An Arrow
column of bytes is one buffer and the places where its values end. So the decoded batches, one behind the
other, are such a column already, of which every second value (lengths, deltas) is left out when the keys or
values are taken.

Times beyond what microseconds in 64 bits hold (the year 294247) are shown as the last one that they hold; a
record without a time has -1 ms, as in Spark's source. Headers are null where a record has none, as there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ureplicator_worker.batches.codecs import Bytes as Stored
from ureplicator_worker.batches.codecs import decompress
from ureplicator_worker.batches.header import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    CorruptBatch,
    Header,
)
from ureplicator_worker.batches.offsets import SourceOffsets
from ureplicator_worker.batches.rebuild import MAX_DECODED_BYTES, rebuild
from ureplicator_worker.batches.records import read_zigzag
from ureplicator_worker.records.varints import Bytes, Numbers, read_varints

HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
HEADERS = pa.list_(pa.field("element", HEADER))
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", HEADERS),
    ]
)
NO_TIME, CREATE_TIME, APPEND_TIME = -1, 0, 1
"""Values of `timestampType`, as in Kafka's `TimestampType`."""
MAX_MS = (1 << 63) // 1_000 - 1
ROUNDS = 16
"""Headers of a record that are read together with those of the others; what follows is read one by one."""


class RecordColumns:
    """Records of a partition with `start` <= offset < `end`, collected for one Arrow batch."""

    def __init__(self, *, topic: str, partition: int, start: int, end: int) -> None:
        self._topic = topic
        self._partition = partition
        self._start, self._end = start, end
        self._clear()

    def _clear(self) -> None:
        self._data = bytearray()
        self._places: list[int] = []
        self._runs: list[tuple[int, int, int, int, int]] = []
        """(records, offset and time from which deltas count, time of all or -1, kind of time)."""

    @property
    def size_bytes(self) -> int:
        return len(self._data)

    def add(self, view: memoryview, header: Header) -> None:
        """The records of a stored batch. Raises CorruptBatch."""
        if header.magic < 2:
            self._add_old(view, header)
            return
        stamped = bool(header.attributes & LOG_APPEND_TIME)
        stamped_ms = header.max_timestamp_ms if stamped else -1
        kind = APPEND_TIME if stamped else CREATE_TIME
        self._append(view, header)
        self._runs.append(
            (header.records, header.base_offset, header.base_timestamp_ms, stamped_ms, kind)
        )

    def _add_old(self, view: memoryview, header: Header) -> None:
        """Formats 0 and 1, by way of a batch of format 2. Raises CorruptBatch."""
        built = rebuild(view, header, position=self._start)
        if built is None:
            return
        kind = NO_TIME if header.magic == 0 else CREATE_TIME
        if header.magic and view[17] & LOG_APPEND_TIME:
            kind = APPEND_TIME
        new = Header(built.data, 0)
        self._append(memoryview(built.data), new)
        for records, base in _runs(built.offsets, new.records):
            self._runs.append((records, base, new.base_timestamp_ms, -1, kind))

    def _append(self, view: memoryview, header: Header) -> None:
        """The bytes of the records, and where each begins. Raises CorruptBatch."""
        data, places = self._data, self._places
        at, count = len(data), len(places)
        payload = view[HEADER_BYTES:]
        data += decompress(header.codec, payload, limit_bytes=MAX_DECODED_BYTES)
        try:
            find_records(data, at, header.records, places)
        except CorruptBatch as error:
            del data[at:], places[count:]
            raise CorruptBatch(f"batch at offset {header.base_offset}: {error}") from error

    def take(self) -> pa.RecordBatch | None:
        """Return what was collected; None without records in the range. Raises CorruptBatch."""
        data, places, runs = self._data, self._places, self._runs
        self._clear()
        if not places:
            return None
        read = Fields(data, np.array(places, np.int64))
        offsets, times_ms, kinds = read.places_and_times(np.array(runs, np.int64))
        inside = (offsets >= self._start) & (offsets < self._end)
        if not inside.all():
            read.keep(inside)
            offsets, times_ms, kinds = offsets[inside], times_ms[inside], kinds[inside]
        count = len(offsets)
        if not count:
            return None
        columns = [
            read.field(),
            read.field(),
            pa.repeat(pa.scalar(self._topic), count),
            pa.repeat(pa.scalar(self._partition, pa.int32()), count),
            pa.array(offsets),
            pa.array(np.clip(times_ms, -MAX_MS, MAX_MS) * 1_000).cast(SCHEMA.field(5).type),
            pa.array(kinds.astype(np.int32)),
            read.headers(),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def find_records(data: Stored, at: int, count: int, places: list[int]) -> None:
    """Note where each record begins. Lengths of one and two bytes, nearly all, are read in place.

    Raises CorruptBatch.
    """
    append = places.append
    try:
        for _ in range(count):
            append(at)
            length = data[at]
            if length < 0x80:
                at += (length >> 1) + 1
            elif data[at + 1] < 0x80:
                at += ((length & 0x7F | data[at + 1] << 7) >> 1) + 2
            else:
                length, at = read_zigzag(data, at)
                if length < 0:
                    raise CorruptBatch(f"a record of {length} bytes")
                at += length
    except IndexError as error:
        raise CorruptBatch("fewer records than the header promises") from error
    if at != len(data):
        raise CorruptBatch("more or fewer bytes than its records have")


def _runs(offsets: SourceOffsets, records: int) -> list[tuple[int, int]]:
    """(records, offset from which their index in the batch counts) of each run without holes."""
    starts = [index for index, _ in offsets.runs] + [records]
    return [
        (starts[number + 1] - index, offset - index)
        for number, (index, offset) in enumerate(offsets.runs)
    ]


class Fields:
    """Records being read, all at once, field by field in their order. Every call raises CorruptBatch.

    `places`: where each begins; they ascend.
    """

    def __init__(self, data: Stored, places: Numbers) -> None:
        self._buffer = pa.py_buffer(data)
        self._data: Bytes = np.frombuffer(data, np.uint8)
        length, self._at = read_varints(self._data, places)
        self._ends = self._at + length
        inside = self._ends <= np.append(places[1:], len(data))
        _check(inside & (length > 0), "length of a record")

    def attributes(self) -> Bytes:
        """One byte of each record, before all other fields."""
        found: Bytes = self._data[self._at]
        return found

    def rests(self) -> tuple[Numbers, Numbers]:
        """(places where the fields that are not read yet begin, ends of the records)."""
        _check(self._at <= self._ends, "length of a record")
        return self._at, self._ends

    def places_and_times(self, runs: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """(offsets, times in ms, kinds of time)."""
        self._at += 1
        delta_ms = self._numbers()
        delta = self._numbers()
        _counts, bases, bases_ms, stamped_ms, kinds = np.repeat(runs, runs[:, 0], axis=0).T
        times_ms = np.where(
            (kinds == APPEND_TIME) & (stamped_ms >= 0), stamped_ms, bases_ms + delta_ms
        )
        return bases + delta, times_ms, kinds

    def keep(self, inside: npt.NDArray[np.bool_]) -> None:
        """Keep only these records from here on."""
        self._at, self._ends = self._at[inside], self._ends[inside]

    def field(self) -> pa.Array:
        """Keys, or values."""
        start, size = self._span()
        return self._bytes(start, size)

    def pass_over(self) -> None:
        """Keys, or values, that are not wanted."""
        self._span()

    def headers(self) -> pa.Array:
        count = self._numbers()
        _check((count >= 0) & (count <= self._ends - self._at), "number of headers")
        if not count.any():
            _check(self._at == self._ends, "length of a record")
            return pa.nulls(len(count), HEADERS)
        first = np.concatenate(([0], np.cumsum(count)))
        spans = np.empty((4, int(first[-1])), np.int64)
        at, ends = self._at, self._ends
        for number in range(min(int(count.max()), ROUNDS)):
            rows = np.flatnonzero(count > number)
            self._header(rows, at, ends, spans, first[rows] + number)
        for row in np.flatnonzero(count > ROUNDS):
            for place in range(first[row] + ROUNDS, first[row + 1]):
                self._header(np.array([row]), at, ends, spans, np.array([place]))
        _check(at == ends, "length of a record")
        return self._lists(first, spans)

    def _header(
        self, rows: Numbers, at: Numbers, ends: Numbers, spans: Numbers, places: Numbers
    ) -> None:
        """The next header of these records: spans of its name and value, to these places."""
        self._at, self._ends = at[rows], ends[rows]
        for field in (0, 2):
            spans[field, places], spans[field + 1, places] = self._span()
        at[rows] = self._at

    def _lists(self, first: Numbers, spans: Numbers) -> pa.Array:
        names, name_sizes, values, sizes = spans
        _check(name_sizes >= 0, "name of a header")
        keys = _texts(self._bytes(names, name_sizes))
        pairs = pa.StructArray.from_arrays([keys, self._bytes(values, sizes)], fields=list(HEADER))
        has_some = np.packbits(np.diff(first) > 0, bitorder="little")
        buffers = [pa.py_buffer(has_some), pa.py_buffer(first.astype(np.int32))]
        return pa.Array.from_buffers(HEADERS, len(first) - 1, buffers, children=[pairs])

    def _numbers(self) -> Numbers:
        values, self._at = read_varints(self._data, self._at)
        _check(self._at <= self._ends, "number in a record")
        return values

    def _span(self) -> tuple[Numbers, Numbers]:
        """(places, sizes) of the next field of all records; a size below 0 is null."""
        size = self._numbers()
        start = self._at
        _check(size <= self._ends - start, "length of a field")
        self._at = start + np.maximum(size, 0)
        return start, size

    def _bytes(self, start: Numbers, size: Numbers) -> pa.Array:
        """The values at these places, which ascend: every second one of a column of the whole buffer."""
        count = len(start)
        places = np.empty(2 * count + 1, np.int32)
        places[0:-1:2] = start
        places[1::2] = start + np.maximum(size, 0)
        places[-1] = places[-2] if count else 0
        buffers = [None, pa.py_buffer(places), self._buffer]
        column = pa.Array.from_buffers(pa.binary(), 2 * count, buffers)
        null = size < 0
        wanted = pa.array(np.arange(0, 2 * count, 2), mask=null if null.any() else None)
        return column.take(wanted)


def _check(right: npt.NDArray[np.bool_], what: str) -> None:
    if not right.all():
        raise CorruptBatch(f"{what} is wrong in {np.count_nonzero(~right)} of {len(right)} records")


def _texts(names: pa.Array) -> pa.Array:
    """Names of headers; bytes that are not UTF-8 are replaced, as Kafka's Java client does."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text(name) for name in names.to_pylist()], pa.string())


def _text(name: Any) -> str:
    return bytes(name).decode(errors="replace")
