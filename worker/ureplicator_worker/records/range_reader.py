"""The committed records of an exact range of offsets, for use inside a Spark task.

    send fetch --> response --> send the next fetch --> decode the response --> Arrow batches
                      ^                                                             |
                      +-------------------------------------------------------------+

Blocking, with one connection to the leader. The broker prepares the next response while the last one is
decoded. Fetches are read_committed; what transactions aborted is left out (`committed_batches`).

The end of a range is reached by an offset, not by a count: compaction, markers and aborted transactions
leave holes. Only a batch at the end or behind it shows that nothing is left before.

A response without a batch shows nothing, whatever offsets it names. A broker with tiered storage responds so
where its remote read takes too long (KIP-405): up to Kafka 3.7 after the `max_wait_ms` of the request, later
after its own `remote.fetch.max.wait.ms` (KIP-1018). So the range is fetched again, with a longer wait each
time.
Every second of these fetches is read_uncommitted, as the next batch may be of an open transaction, which
others do not show; nothing is taken from it but the proof that the next batch is behind the range.

A response with a throttle time is no fault: the next request is sent when that time is over, on the same
connection (KIP-219). One that is throttled by a quota has no partitions at all.

A leader that moves, a broker that is away or silent, a range whose end is not committed yet, and responses
without a batch are waited for, up to `timeout_s` without progress; time that the broker asks for does not
count. Everything else is an error of its own type (`errors`). What was yielded before an error is right; a
task that is run again reads the same records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing

import pyarrow as pa

from ureplicator_common.backoff import Backoff
from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Broker,
    ClusterClient,
    open_client,
)
from ureplicator_common.kafka.errors import ErrorCode, error_name, refusal
from ureplicator_worker.batches.committed import committed_batches
from ureplicator_worker.batches.header import CorruptBatch, Header, Kind
from ureplicator_worker.records.columns import RecordColumns
from ureplicator_worker.records.errors import (
    LogChanged,
    OffsetOutOfRange,
    RangeUnavailable,
    ReadRefused,
    RecordsUnreadable,
)
from ureplicator_worker.records.fetch_connection import (
    CLIENT_ID,
    MAX_WAIT_MS,
    FetchConnection,
    OpenConnection,
    opener,
)
from ureplicator_worker.wire.fetch_api import Fetched, Wanted
from ureplicator_worker.wire.topic_keys import TopicKeys

MAX_BATCH_BYTES = 8 << 20
TIMEOUT_S = 60.0
FETCH_BYTES = 4 << 20
RETRY_S = 0.2
CORRUPT_TRIES = 3
LONGEST_WAIT_MS = 8_000
"""Milliseconds, less than the silence after which a connection counts as broken."""
EMPTY = Backoff((0.05, 0.1, 0.2, 0.5, 1.0))
"""Pauses after responses without a batch. Brokers usually have waited by themselves, before each."""

Stored = tuple[memoryview, Header]


def read_range(
    *,
    cluster: Mapping[str, str],
    topic: str,
    partition: int,
    start: int,
    end: int,
    max_batch_bytes: int = MAX_BATCH_BYTES,
    timeout_s: float = TIMEOUT_S,
) -> Iterator[pa.RecordBatch]:
    """The committed records with `start` <= offset < `end`, in order, as batches of `columns.SCHEMA`.

    `cluster`: its properties, as in the configuration; `max_batch_bytes`: after that many decoded bytes an
    Arrow batch ends, with the stored batch that reaches them; `timeout_s`: longest time without progress.

    Raises RangeUnavailable, which may be tried again, OffsetOutOfRange, LogChanged, RecordsUnreadable and
    ReadRefused.
    """
    client = open_client("", cluster, client_id=CLIENT_ID)
    reader = RangeReader(
        client,
        topic=topic,
        partition=partition,
        start=start,
        end=end,
        max_batch_bytes=max_batch_bytes,
        timeout_s=timeout_s,
    )
    with closing(client), closing(reader):
        yield from reader.batches()


class RangeReader:
    """One reading of one range."""

    def __init__(
        self,
        client: ClusterClient,
        *,
        topic: str,
        partition: int,
        start: int,
        end: int,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        timeout_s: float = TIMEOUT_S,
        open_connection: OpenConnection | None = None,
    ) -> None:
        self._client = client
        self._topic, self._partition = topic, partition
        self._position, self._end = start, end
        self._max_batch_bytes = max_batch_bytes
        self._timeout_s = timeout_s
        self._open = open_connection or opener(client.security)
        self._columns = RecordColumns(topic=topic, partition=partition, start=start, end=end)
        self._topic_id = ""
        self._leader_epoch = self._batch_epoch = -1
        self._connection: FetchConnection | None = None
        self._corrupt_tries = 0
        self._empty = EMPTY
        self._isolation = READ_COMMITTED
        self._throttled_s = 0.0
        self._reason = ""

    def batches(self) -> Iterator[pa.RecordBatch]:
        columns = self._columns
        while self._position < self._end:
            for view, header in self._next():
                try:
                    columns.add(view, header)
                except CorruptBatch as error:
                    raise RecordsUnreadable(f"{self}: {error}") from error
                if columns.size_bytes >= self._max_batch_bytes:
                    yield from self._take()
        yield from self._take()

    def _take(self) -> Iterator[pa.RecordBatch]:
        try:
            batch = self._columns.take()
        except CorruptBatch as error:
            raise RecordsUnreadable(f"{self}, before offset {self._position}: {error}") from error
        if batch is not None:
            yield batch

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __str__(self) -> str:
        return f"{self._topic}/{self._partition}"

    def _next(self) -> list[Stored]:
        """The batches of the next response that brings the reader forward. Raises RangeUnavailable."""
        deadline_s = self._client.deadline_s(self._timeout_s)
        while True:
            before = self._position
            try:
                stored = self._fetch()
                if self._position > before:
                    return stored
                deadline_s += self._throttled_s
            except ClusterUnavailable as error:
                self._reason = str(error)
                self.close()
                self._client.pause(RETRY_S)
            if self._client.now_s() >= deadline_s:
                raise RangeUnavailable(
                    f"{self}: nothing read from offset {before} for {self._timeout_s:.0f} s: "
                    f"{self._reason}"
                )

    def _fetch(self) -> list[Stored]:
        """One response. Raises ClusterUnavailable."""
        if self._connection is None:
            self._connect()
            self._send()
        assert self._connection is not None
        view, result = self._connection.receive()
        self._throttled_s = result.throttle_ms / 1_000
        if result.error or not (result.partitions or result.throttle_ms):
            raise ClusterUnavailable(f"{self._connection.broker}: {error_name(result.error)}")
        self._reason = "no batch of the range in a response"
        if result.throttle_ms:
            self._reason = f"{self._connection.broker} throttles reading, by a quota of the cluster"
        stored = self._stored(view, result.partitions[0]) if result.partitions else []
        if self._position < self._end:
            self._send_next()
        return stored

    def _connect(self) -> None:
        """Connect to the leader. Raises ClusterUnavailable, LogChanged."""
        view = self._client.view([self._topic])
        leader = view.leaders.get((self._topic, self._partition))
        broker: Broker | None = view.brokers.get(leader.node_id) if leader else None
        if leader is None or broker is None:
            raise ClusterUnavailable(f"{self}{view.leaderless(self._topic)}")
        topic_id = view.topic_ids[self._topic]
        if self._topic_id not in ("", topic_id):
            raise LogChanged(f"topic {self._topic} was recreated while it was read")
        self._topic_id, self._leader_epoch = topic_id, leader.epoch
        keys = TopicKeys.of(self._topic, topic_id, self._partition)
        self._connection = FetchConnection(broker, keys, open_connection=self._open)

    def _send_next(self) -> None:
        """Send the next request when the broker wants it; after a response without a batch, a while
        later."""
        pause_s = max(self._throttled_s, self._empty.delay_s)
        if pause_s:
            self._client.pause(pause_s)
        try:
            self._send()
        except ClusterUnavailable:
            self.close()

    def _send(self) -> None:
        assert self._connection is not None
        tries = self._empty.failures
        self._isolation = READ_UNCOMMITTED if tries % 2 else READ_COMMITTED
        self._connection.send(
            Wanted(self._position, self._leader_epoch, self._batch_epoch, FETCH_BYTES),
            max_wait_ms=min(LONGEST_WAIT_MS, MAX_WAIT_MS << (tries + 1) // 2),
            isolation=self._isolation,
        )

    def _stored(self, view: memoryview, fetched: Fetched) -> list[Stored]:
        """Batches with records of the range; the position moves behind them. Raises ClusterUnavailable."""
        if fetched.error or fetched.diverging:
            self._refuse(fetched)
        if fetched.start == fetched.end:
            self._note_empty(fetched.last_stable)
            return []
        before = self._position
        stored: list[Stored] = []
        found = committed_batches(view, fetched, position=self._position, check_crc=True)
        try:
            for batch, header, kind in found:
                if header.base_offset >= self._end and header.magic >= 2:
                    self._position = self._end
                    break
                if self._isolation == READ_UNCOMMITTED:
                    break
                if kind is Kind.PASS or kind is Kind.REBUILD:
                    stored.append((batch, header))
                self._position = header.last_offset + 1
                self._batch_epoch = header.leader_epoch
        except CorruptBatch as error:
            if self._position == before:
                self._corrupt(error)
        else:
            self._corrupt_tries = 0
        self._empty = EMPTY if self._position > before else self._empty.failed()
        return stored

    def _note_empty(self, last_stable: int) -> None:
        self._reason = f"the log is committed up to offset {last_stable} only"
        if last_stable >= self._end:
            self._empty = self._empty.failed()
            self._reason = (
                f"brokers respond without records, though the log is committed up to {last_stable}. If "
                "they read from tiered storage, raise their remote.fetch.max.wait.ms, or try again later"
            )

    def _corrupt(self, error: CorruptBatch) -> None:
        """Nothing before it is left to read. It is fetched again: the network may have garbled it."""
        self._corrupt_tries += 1
        text = f"{self}, offset {self._position}: {error}"
        if self._corrupt_tries >= CORRUPT_TRIES:
            raise RecordsUnreadable(text) from error
        raise ClusterUnavailable(text) from error

    def _refuse(self, fetched: Fetched) -> None:
        """Raise what an error of the partition means."""
        where = f"{self}, offset {self._position}"
        if fetched.diverging:
            raise LogChanged(
                f"{where}: the log was truncated to offset {fetched.diverging[1]} since it was read"
            )
        if fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise OffsetOutOfRange(f"{where} is not in the log")
        if fetched.error == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            right = f"READ on topic {self._topic}"
            raise ReadRefused(f"{where}: {refusal(fetched.error, right, self._client.name)}")
        raise ClusterUnavailable(f"{where}: {error_name(fetched.error)}")
