"""Evaluation of queries in the process of a slot: chunks from the copier become batches for the target.

Its messages are those of a handler's process (`copier.record.frames`). `assign` brings the query of a topic;
one that is refused fails its partition. Chunks of one query that are waiting are evaluated together, so many
quiet partitions cost one round and not one each. A round that takes longer than its time limit sends nothing,
and the copier ends the process; with it ends the JVM, whose standard input closes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from ureplicator_common.errors import PermanentError
from ureplicator_worker.batches.header import CorruptBatch
from ureplicator_worker.copier.record.channel import Channel, Inbox
from ureplicator_worker.copier.record.decoding import StoredRecords
from ureplicator_worker.copier.record.frames import Frame, Head
from ureplicator_worker.copier.record.user_errors import log_python_stack, log_stack, reason_of
from ureplicator_worker.sql.pieces import Piece, whole_piece
from ureplicator_worker.sql.query import Query, QueryFailed, QueryRefused, SessionLost
from ureplicator_worker.sql.results import NOTHING, Emitted, Results
from ureplicator_worker.sql.rounds import Round, Segment, Task
from ureplicator_worker.sql.tables import table_of

Place = tuple[str, int]
"""Topic and partition of the source."""


class Evaluator(Protocol):
    def compile(self, text: str) -> Query: ...

    def evaluate(self, query: Query, table: pa.Table) -> pa.Table: ...


@dataclass(frozen=True, slots=True)
class Assigned:
    """A partition, the query of its topic, and the limits of its rounds."""

    query: Query
    max_rows: int
    max_bytes: int


class SqlHost:
    """`start(config)` starts Spark, and may raise anything: functions are the user's."""

    def __init__(self, channel: Channel, *, start: Callable[[Head], Evaluator]) -> None:
        self._channel = channel
        self._inbox = Inbox(channel)
        self._start = start
        self._sql: Evaluator
        self._queries: dict[str, Query] = {}
        self._assigned: dict[Place, Assigned] = {}
        self._failed: dict[Place, str] = {}
        self._since_s = 0.0

    def begin(self) -> bool:
        """Start Spark; False if that fails."""
        config, _ = self._channel.receive()
        try:
            self._sql = self._start(config)
        except PermanentError as error:
            self._channel.send({"broken": f"sql: {error}"})
            return False
        except BaseException as error:
            log_stack("sql: Spark and its functions", error)
            self._channel.send({"broken": f"sql: {reason_of(error)}"})
            return False
        self._channel.send({"ready": True})
        return True

    def step(self) -> bool:
        """Carry out what comes next; False if Spark is gone. Raises CopierGone."""
        self._since_s = time.monotonic()
        head, payload = self._inbox.next()
        place = head["topic"], head["partition"]
        try:
            if head["do"] == "assign":
                self._assign(place, head)
            elif head["do"] == "release":
                self._assigned.pop(place, None)
                self._failed.pop(place, None)
                self._channel.send({"done": True})
            else:
                self._chunks(place, (head, payload))
        except SessionLost as error:
            self._channel.send({"broken": f"sql: {error}"})
            return False
        return True

    def _assign(self, place: Place, head: Head) -> None:
        """A query that Spark does not take fails the partition, and so do chunks that follow already."""
        self._failed.pop(place, None)
        text = head["query"]
        try:
            query = self._queries.get(text) or self._sql.compile(text)
        except QueryRefused as error:
            self._failed[place] = f"sql: {error}"
            self._channel.send({"failed": self._failed[place]})
            return
        self._queries[text] = query
        self._assigned[place] = Assigned(query, head["maxRows"], head["maxBytes"])
        self._channel.send({"done": True})

    def _chunks(self, place: Place, frame: Frame) -> None:
        """Chunks: this one, and those behind it that go through the same query."""
        if place in self._failed:
            self._channel.send({"failed": self._failed[place]})
            return
        assigned = self._assigned[place]
        round_ = self._chunk(Round(), assigned, frame)
        while (following := self._next_of(assigned, wait=bool(frame[0].get("more")))) is not None:
            frame = following
            round_ = self._chunk(round_, assigned, frame)
        self._evaluate(round_, assigned)

    def _next_of(self, assigned: Assigned, *, wait: bool) -> Frame | None:
        """The next chunk, if it is there, or known to come, and of the same query."""
        frame = self._inbox.peek(wait=wait)
        if frame is None or frame[0].get("do") != "handle":
            return None
        place = frame[0]["topic"], frame[0]["partition"]
        if place in self._failed or self._assigned[place] != assigned:
            return None
        return self._inbox.next()

    def _chunk(self, round_: Round, assigned: Assigned, frame: Frame) -> Round:
        """Put a chunk's records into the round; one that is full is evaluated, and the next is returned."""
        head, payload = frame
        task = Task(head["topic"], head["partition"], head["target"], head["next"])
        sizes = head["batches"]
        round_.begin(task, sizes[0][1])
        at = 0
        for size, position in sizes:
            round_, error = self._batch(round_, assigned, task, (payload[at : at + size], position))
            if error is not None:
                round_.end(last=True, error=f"corrupt: {error}")
                return round_
            at += size
        round_.end(last=True)
        return round_

    def _batch(
        self, round_: Round, assigned: Assigned, task: Task, batch: tuple[memoryview, int]
    ) -> tuple[Round, CorruptBatch | None]:
        """The records of a stored batch from a position on, up to where it is corrupt."""
        view, position = batch
        try:
            stored = StoredRecords(view, position=position)
        except CorruptBatch as error:
            return round_, error
        piece = _whole_piece(stored, position)
        if piece is not None and _fits(Round(), assigned, stored):
            if not _fits(round_, assigned, stored):
                round_ = self._next_round(round_, assigned, task, position)
            round_.add(piece)
            return round_, None
        try:
            for found in stored.read(topic=task.topic, partition=task.partition, position=position):
                if round_.rows >= assigned.max_rows or round_.size_bytes >= assigned.max_bytes:
                    round_ = self._next_round(round_, assigned, task, found[0].offset)
                round_.add_found(found, stored)
        except CorruptBatch as error:
            return round_, error
        return round_, None

    def _next_round(self, round_: Round, assigned: Assigned, task: Task, position: int) -> Round:
        round_.end()
        self._evaluate(round_, assigned)
        following = Round()
        following.begin(task, position)
        return following

    def _evaluate(self, round_: Round, assigned: Assigned) -> None:
        """Send what becomes of a round. One that fails is divided, down to the record at fault."""
        if all(segment.task.closed for segment in round_.segments):
            return
        if len(round_.segments) == 1 and self._place(round_.segments[0]) in self._failed:
            self._fail(round_.segments[0].task, "")
            return
        if not round_.rows:
            for segment in round_.segments:
                self._report(segment, NOTHING)
            return
        try:
            table = self._sql.evaluate(assigned.query, table_of(round_, assigned.query.inputs))
        except (QueryFailed, CorruptBatch) as error:
            kind = "sql" if isinstance(error, QueryFailed) else "corrupt"
            if round_.rows == 1 and len(round_.segments) == 1:
                task, offset = round_.segments[0].task, round_.offset(0)
                where = f"{task.topic}/{task.partition} at offset {offset}"
                log_python_stack(where, str(error.__cause__))
                self._fail(task, f"{kind}: {error} (at offset {offset})")
                return
            for part in round_.divided():
                self._evaluate(part, assigned)
            return
        count = self._inbox.partition_count
        results = Results(round_, assigned.query, table, partition_count=count)
        for segment in round_.segments:
            self._send(round_, segment, results)

    def _send(self, round_: Round, segment: Segment, results: Results) -> None:
        try:
            emitted = results.emitted(segment)
        except CorruptBatch as error:
            offset = round_.offset(segment.first)
            self._fail(
                segment.task,
                f"corrupt: {error} (in {segment.stop - segment.first} records from offset {offset})",
            )
            return
        if self._place(segment) in self._failed:
            self._fail(segment.task, "")
        elif emitted.failed is not None:
            offset = round_.offset(emitted.failed.row)
            self._handled(offset, emitted, rows=emitted.failed.row - segment.first)
            self._fail(segment.task, f"sql: {emitted.failed} (at offset {offset})")
        else:
            self._report(segment, emitted)

    def _report(self, segment: Segment, emitted: Emitted) -> None:
        rows = segment.stop - segment.first
        if rows:
            self._handled(segment.next_offset, emitted, rows=rows)
        if segment.error:
            self._fail(segment.task, f"{segment.error} (at offset {segment.next_offset})")
        elif segment.last:
            segment.task.closed = True
            now_s = time.monotonic()
            busy_ms = (now_s - self._since_s) * 1_000
            self._since_s = now_s
            self._channel.send({"done": True, "busyMs": round(busy_ms, 3)})

    def _handled(self, next_offset: int, emitted: Emitted, *, rows: int) -> None:
        head = {
            "handled": next_offset,
            "batches": [batch.described() for batch in emitted.ready],
            "counts": {
                "records": rows,
                "outputs": emitted.outputs,
                "dropped": rows - emitted.kept,
                "dead_letters": 0,
            },
        }
        self._channel.send(head, [batch.built.data for batch in emitted.ready])

    def _fail(self, task: Task, reason: str) -> None:
        """The partition stops here; what else is there of it fails with the same reason."""
        if task.closed:
            return
        task.closed = True
        reason = self._failed.setdefault((task.topic, task.partition), reason)
        self._channel.send({"failed": reason})

    @staticmethod
    def _place(segment: Segment) -> Place:
        return segment.task.topic, segment.task.partition


def _fits(round_: Round, assigned: Assigned, stored: StoredRecords) -> bool:
    rows, size_bytes = stored.header.records, len(stored.data)
    return (
        round_.rows + rows <= assigned.max_rows
        and round_.size_bytes + size_bytes <= assigned.max_bytes
    )


def _whole_piece(stored: StoredRecords, position: int) -> Piece | None:
    """None also for a batch that must be read one by one up to where it is corrupt."""
    try:
        return whole_piece(stored, position)
    except CorruptBatch:
        return None
