"""Rounds: the records of chunks as rows for a query. Pure.

    chunk of partition 0  |  chunk of partition 4  | ...
    segment               |  segment               |        of one round
    rows 0 ... 311        |  rows 312 ... 700      |

A round takes records in order, of one or more chunks, until it is full. Each row of the result names the
row that it comes from, so it belongs to that row's segment; within it the order is that of the rows. A round
that fails is divided, by segments and then in halves, so what remains is the record at fault.

Records stay in their stored batches, decompressed; a *piece* is the places of some of them in one batch.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field

from ureplicator_worker.batches.records import read_zigzag
from ureplicator_worker.copier.record.decoding import Found, StoredRecords
from ureplicator_worker.sql.pieces import Piece


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
    """`starts`: first row of each piece. `size_bytes`: of decoded records."""

    segments: list[Segment] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    rows: int = 0
    size_bytes: int = 0

    def begin(self, task: Task, position: int) -> None:
        self.segments.append(Segment(task, self.rows, self.rows, position))

    def add(self, piece: Piece) -> None:
        """All records of a stored batch."""
        self._append(piece)
        self.size_bytes += len(piece.stored.data)

    def _append(self, piece: Piece) -> None:
        if piece.places:
            self.pieces.append(piece)
            self.starts.append(self.rows)
            self.rows += len(piece.places)

    def add_found(self, found: Found, stored: StoredRecords) -> None:
        """A record that was read by itself."""
        _record, at, base = found
        last = self.pieces[-1] if self.rows > self.segments[-1].first else None
        if last is not None and last.stored is stored and last.base == base:
            last.places.append(at)
            self.rows += 1
        else:
            self._append(Piece(stored, [at], base))
        length, behind = read_zigzag(stored.data, at)
        self.size_bytes += behind + length - at

    def end(self, *, last: bool = False, error: str = "") -> None:
        """The segment has no more rows here."""
        segment = self.segments[-1]
        segment.stop, segment.last, segment.error = self.rows, last, error
        if segment.stop > segment.first:
            segment.next_offset = self.offset(self.rows - 1) + 1

    def offset(self, row: int) -> int:
        """Offset of a row at the source."""
        number = bisect.bisect_right(self.starts, row) - 1
        return self.pieces[number].offset(row - self.starts[number])

    def piece(self, row: int) -> Piece:
        return self.pieces[bisect.bisect_right(self.starts, row) - 1]

    def between(self, first: int, stop: int) -> Iterator[tuple[int, Piece]]:
        """(first row, piece) of all of which some rows are in the range."""
        if first == stop:
            return
        number = bisect.bisect_right(self.starts, first) - 1
        while number < len(self.pieces) and self.starts[number] < stop:
            yield self.starts[number], self.pieces[number]
            number += 1

    def part(self, segment: Segment, first: int, stop: int) -> Round:
        """Rows of a segment as a round."""
        ends = stop == segment.stop
        next_offset = segment.next_offset if ends else self.offset(stop)
        of_it = Segment(
            segment.task,
            0,
            stop - first,
            next_offset,
            ends and segment.last,
            segment.error if ends else "",
        )
        part = Round([of_it])
        for start, piece in self.between(first, stop):
            part._append(piece.part(max(first - start, 0), stop - start))
        return part

    def divided(self) -> Iterator[Round]:
        """The smaller rounds, in order, of more than one row or segment."""
        if len(self.segments) > 1:
            for segment in self.segments:
                yield self.part(segment, segment.first, segment.stop)
            return
        (segment,) = self.segments
        middle = self.rows // 2
        yield self.part(segment, 0, middle)
        yield self.part(segment, middle, self.rows)
