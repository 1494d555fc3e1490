"""The log of a topic with one partition, read to its end: what is new in it, each time.

    topic id --> next offset --> response --> batches --> records that count --> `add`
       |            |               |
       |            |               +-- offset out of range: `clear`, on from the start of the log
       |            +------------------ none yet: the start of the log, or `last` before its end
       +------------------------------- another topic of this name, or none any more: `clear`

Of a leader that moves, is away, refuses, throttles (KIP-219) or cannot say what comes next, the error is
temporary, and the next call goes on at the same offset.

A response without a batch does not show that the log has ended. Compaction leaves holes, and below the last
stable offset the batch behind one may be of an open transaction, which only read_uncommitted shows. A read of
tiered storage that is not done in time has none either (KIP-405).
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from kafka.errors import CorruptRecordError, UnsupportedCodecError
from kafka.protocol.consumer import FetchResponse
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatch

from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Broker,
    ClusterClient,
)
from ureplicator_common.kafka.errors import ErrorCode, error_name, refusal
from ureplicator_common.kafka.list_offsets import offset_at
from ureplicator_common.kafka.log_offsets import fetch_request
from ureplicator_common.kafka.topics.single_records import NUMBER, only_leader

FETCH_BYTES = 1 << 20
RETRY_S = 0.2


class LogRecord(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None


class StoredBatch(NamedTuple):
    """A batch with the offsets `first` to `last`. `ends`: it is a marker; `aborts`: of an aborted
    transaction."""

    first: int
    last: int
    producer_id: int
    transactional: bool
    ends: bool
    aborts: bool
    records: Sequence[LogRecord]


class _OutOfRange(ClusterUnavailable):
    """The log was truncated to before an offset, or begins behind it."""


class PartitionLog:
    """A reading of one log. For one thread at a time.

    `add` takes the first offset of a batch and its records, in order, each batch once; `clear` is called when
    nothing of what was added counts any more. `last`: begin so many offsets before the end of the log; None:
    at its start. `committed`: leave out open transactions and all behind them, and the records of aborted
    ones. `unreadable`: the error for batches that are not Kafka's or of a codec that is not installed.

    Each call may raise ClusterUnavailable, `unreadable`, and what `add` raises.
    """

    def __init__(
        self,
        client: ClusterClient,
        topic: str,
        *,
        add: Callable[[int, Sequence[LogRecord]], None],
        clear: Callable[[], None],
        unreadable: Callable[[str], OperatingError],
        committed: bool = True,
        last: int | None = None,
        fetch_bytes: int = FETCH_BYTES,
    ) -> None:
        self._client, self._topic = client, topic
        self._add, self._clear = add, clear
        self._unreadable = unreadable
        self._committed = committed
        self._last = last
        self._fetch_bytes = fetch_bytes
        self._topic_id = ""
        self._offset: int | None = None
        self.stable_end = self.end = 0
        """As of the last response."""

    def read(self) -> bool:
        """Read to the end. False if the topic does not exist."""
        leader = self._leader()
        while leader is not None and not self._step(leader):
            pass
        return leader is not None

    def step(self) -> bool:
        """Read one response. True if it reached the end, or if the topic does not exist."""
        leader = self._leader()
        return leader is None or self._step(leader)

    def batch_at(self, first: int, *, max_bytes: int) -> Sequence[LogRecord]:
        """Records of the batch that begins at this offset; none if it is gone. A broker returns the whole
        batch, also above `max_bytes` (KIP-74)."""
        leader = only_leader(self._client, self._topic)
        try:
            row = self._fetch(leader, first, max_bytes=max_bytes)
        except _OutOfRange:
            return ()
        found = (batch.records for batch in self._batches(row) if batch.first == first)
        return next(found, ())

    def _leader(self) -> Broker | None:
        view = self._client.view([self._topic])
        topic_id = view.topic_ids.get(self._topic, "")
        if not topic_id and self._topic not in view.missing:
            raise ClusterUnavailable(f"topic {self._topic}: {view.absence(self._topic)}")
        if topic_id != self._topic_id:
            self._begin(None)
            self._topic_id = topic_id
        if not topic_id:
            return None
        leader = view.leader_of(self._topic, NUMBER)
        if leader is None:
            raise ClusterUnavailable(f"topic {self._topic} has no leader", delay_s=RETRY_S)
        return leader

    def _begin(self, offset: int | None) -> None:
        self._offset = offset
        self.stable_end = self.end = 0
        self._clear()

    def _step(self, leader: Broker) -> bool:
        """One response; True if it reached the end."""
        try:
            before = self._first(leader) if self._offset is None else self._offset
            row = self._fetch(leader, before)
        except _OutOfRange:
            before = offset_at(self._client, leader, (self._topic, NUMBER), EARLIEST)
            self._begin(before)
            row = self._fetch(leader, before)
        after = before
        for batch in _counting(self._batches(row), row.aborted_transactions or ()):
            if batch.last >= after:
                self._add(
                    batch.first, [record for record in batch.records if record.offset >= before]
                )
                self._offset = after = batch.last + 1
        self.stable_end, self.end = int(row.last_stable_offset), int(row.high_watermark)
        end = self.stable_end if self._committed else self.end
        if before == after < end:
            self._pass_hole(leader, after, end)
            return True
        return after >= end

    def _first(self, leader: Broker) -> int:
        """The offset to begin at. It may be before the start of the log."""
        if self._last is None:
            return 0
        return max(0, offset_at(self._client, leader, (self._topic, NUMBER), LATEST) - self._last)

    def _pass_hole(self, leader: Broker, offset: int, end: int) -> None:
        """Go on at the end if the next batch is not before it."""
        if self._committed:
            row = self._fetch(leader, offset, isolation=READ_UNCOMMITTED)
            following = next(self._batches(row), None)
            if following is not None and following.first >= end:
                self._offset = end
                return
        raise ClusterUnavailable(
            f"topic {self._topic}: a response without records at offset {offset}, though the log has some up"
            f" to {end}",
            delay_s=RETRY_S,
        )

    def _fetch(
        self,
        leader: Broker,
        offset: int,
        *,
        max_bytes: int | None = None,
        isolation: int | None = None,
    ) -> Any:
        """The row of a response without an error."""
        size = max_bytes or self._fetch_bytes
        if isolation is None:
            isolation = READ_COMMITTED if self._committed else READ_UNCOMMITTED
        request = fetch_request(
            {(self._topic, NUMBER): offset},
            max_bytes_each=size,
            max_bytes=size,
            isolation=isolation,
        )
        row = _only_row(self._client.call(leader, request, FetchResponse), self._topic)
        if row.error_code:
            reason = refusal(row.error_code, f"READ on topic {self._topic}", self._client.name)
            is_behind = row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            kind = _OutOfRange if is_behind else ClusterUnavailable
            raise kind(f"topic {self._topic}: {reason}", delay_s=RETRY_S)
        return row

    def _batches(self, row: Any) -> Iterator[StoredBatch]:
        """Whole batches; a cut one at the end is left out."""
        try:
            for stored in MemoryRecords(bytes(row.records or b"")):
                yield _stored(stored)
        except (CorruptRecordError, UnsupportedCodecError, struct.error) as error:
            raise self._unreadable(f"topic {self._topic} cannot be read: {error}") from error


def _stored(stored: DefaultRecordBatch) -> StoredBatch:
    """Raises CorruptRecordError, UnsupportedCodecError, struct.error."""
    first = stored.base_offset
    if not isinstance(stored, DefaultRecordBatch):
        raise CorruptRecordError(f"a batch of an old format at offset {first}")
    if not stored.validate_crc():
        raise CorruptRecordError(f"a wrong checksum at offset {first}")
    ends = stored.is_control_batch
    records = list(stored)
    return StoredBatch(
        first=first,
        last=first + stored.last_offset_delta,
        producer_id=stored.producer_id,
        transactional=stored.is_transactional,
        ends=ends,
        aborts=ends and any(record.abort for record in records),
        records=[LogRecord(record.offset, record.key, record.value) for record in records],
    )


def _counting(batches: Iterable[StoredBatch], aborted: Iterable[Any]) -> Iterator[StoredBatch]:
    """The batches, without the records of markers and of aborted transactions: rows of the response, each
    with a producer and its first offset."""
    to_come = deque(sorted((row.first_offset, row.producer_id) for row in aborted))
    void: set[int] = set()
    for batch in batches:
        while to_come and to_come[0][0] <= batch.last:
            void.add(to_come.popleft()[1])
        if batch.aborts:
            void.discard(batch.producer_id)
        is_void = batch.ends or (batch.transactional and batch.producer_id in void)
        yield batch._replace(records=()) if is_void else batch


def _only_row(response: Any, topic: str) -> Any:
    """The row of a response to a fetch of one partition.

    Raises ClusterUnavailable, also for a response that is throttled by a quota, which has no rows: the
    request may be sent again on the same connection after its delay (KIP-219).
    """
    rows = [row for topic_row in response.responses for row in topic_row.partitions]
    if not response.error_code and len(rows) == 1:
        return rows[0]
    if response.throttle_time_ms and not response.error_code:
        delay_s = response.throttle_time_ms / 1_000
        raise ClusterUnavailable(
            f"topic {topic}: reading is throttled for {delay_s:.1f} s, by a quota of the cluster",
            delay_s=delay_s,
        )
    raise ClusterUnavailable(
        f"topic {topic}: fetch: {error_name(response.error_code)}", delay_s=RETRY_S
    )
