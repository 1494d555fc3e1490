"""Committed records of one partition in order, through librdkafka; the only module of the audit that uses
it.

Partitions are assigned, so no group is joined and nothing is committed. Memory is bounded: librdkafka reads
ahead `queued.max.messages.kbytes`, and a chunk holds `CHUNK_BYTES` or one record; less at a byte rate
(`pace`).

The end of a log for readers of committed records may be a marker, or records of an aborted transaction: no
record is ever returned there, but the event for the end of the partition is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from ureplicator_common.errors import PermanentError
from ureplicator_common.kafka import ClusterUnavailable, Extent
from ureplicator_common.kafka.security.settings import librdkafka
from ureplicator_worker.audit.core.side import Chunk, Content
from ureplicator_worker.audit.pace import Pace
from ureplicator_worker.audit.signals import TaskSignals

CHUNK_RECORDS = 2_000
FIRST_RECORDS = 100
CHUNK_BYTES = 4 << 20
POLL_S = 0.2
SILENCE_S = 30.0
"""A log that does not reach its end has no response for so long: the cluster is away."""
RESPONSE_S = 10.0
PEEKED = 1_000
WRITE_S = 60.0

_OWN: Mapping[str, Any] = {
    "group.id": "ureplicator-audit",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "check.crcs": True,
    "allow.auto.create.topics": False,
    "fetch.wait.max.ms": 50,
    "log_level": 0,
}


_WRITING: Mapping[str, Any] = {
    "enable.idempotence": True,
    "message.max.bytes": 1_000_000_000,
    "batch.num.messages": 1,
    "log_level": 0,
}
"""`message.max.bytes`: the limit is the target's."""


class RecordsDeleted(ClusterUnavailable):
    """The log no longer has the offset: retention or DeleteRecords passed it while it was read."""


class PartitionLog:
    """One partition of one cluster, for one thread. `rate_bytes_per_s`: 0 is no limit.

    `committed`: false to read the records of open and aborted transactions, too. `signals`: chunks end with
    Cancelled when they say so.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        topic: str,
        partition: int,
        *,
        timestamps: bool = True,
        rate_bytes_per_s: float = 0,
        committed: bool = True,
        signals: TaskSignals | None = None,
    ) -> None:
        self._name = f"{topic}/{partition} at {properties.get('bootstrap.servers', '')}"
        self._topic, self._partition = topic, partition
        self._timestamps = timestamps
        self._pace = Pace(rate_bytes_per_s)
        self._signals = signals or TaskSignals("", partition)
        try:
            isolation = {} if committed else {"isolation.level": "read_uncommitted"}
            self._consumer = Consumer(
                {**librdkafka(properties), **_OWN, **_ahead(self._pace), **isolation}
            )
        except KafkaException as error:
            raise PermanentError(f"{self._name}: {error.args[0].str()}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def extent(self) -> Extent:
        """The extent from the first record to the end of what is read here. Raises ClusterUnavailable."""
        try:
            found = self._consumer.get_watermark_offsets(self._at(), timeout=RESPONSE_S)
        except KafkaException as error:
            raise self._translated(error.args[0]) from error
        if found is None:
            raise ClusterUnavailable(f"{self._name}: no response")
        return Extent(*found)

    def offset_at(self, timestamp_ms: int) -> int | None:
        """The first record that is not older; None: all are. Raises ClusterUnavailable."""
        try:
            found = self._consumer.offsets_for_times([self._at(timestamp_ms)], timeout=RESPONSE_S)[
                0
            ]
        except KafkaException as error:
            raise self._translated(error.args[0]) from error
        if found.error is not None:
            raise self._translated(found.error)
        return found.offset if found.offset >= 0 else None

    def oldest_of_next(self, first: int, end: int) -> int | None:
        """Lowest timestamp of the first `PEEKED` records; None without records."""
        times: list[int] = []
        for chunk in self.chunks(first, end):
            times += [content[3] for content in chunk.contents if content[3] is not None]
            if len(times) >= PEEKED:
                break
        return min(times, default=None)

    def chunks(self, first: int, end: int) -> Iterator[Chunk]:
        """Records from `first` to before `end`, and a last, empty chunk that ends there.

        Raises ClusterUnavailable, RecordsDeleted, PermanentError, Cancelled."""
        if first < end:
            self._consumer.assign([self._at(first)])
            yield from self._read(end)
            self._consumer.unassign()
        yield Chunk((), (), max(first, end), 0)

    def _read(self, end: int) -> Iterator[Chunk]:
        count, seen_s = self._pace.first_count(FIRST_RECORDS), time.monotonic()
        most_bytes = self._pace.portion_bytes(CHUNK_BYTES)
        while True:
            self._signals.check()
            messages = self._consumer.consume(count, timeout=POLL_S)
            offsets, contents, ended = self._contents(messages, end)
            if offsets:
                size = sum(len(content[1] or b"") + len(content[0] or b"") for content in contents)
                self._signals.sleep(self._pace.wait_s(size, now_s=time.monotonic()))
                yield Chunk(offsets, contents, offsets[-1] + 1, size)
                count = max(1, min(CHUNK_RECORDS, most_bytes * len(offsets) // max(1, size)))
                seen_s = time.monotonic()
            if ended:
                return
            if time.monotonic() - seen_s > SILENCE_S:
                raise ClusterUnavailable(f"{self._name}: nothing to read for {SILENCE_S:.0f} s")

    def _contents(
        self, messages: Sequence[Message], end: int
    ) -> tuple[list[int], list[Content], bool]:
        offsets: list[int] = []
        contents: list[Content] = []
        for message in messages:
            offset: Any = message.offset()
            error = message.error()
            if error is not None:
                if self._is_end(error, offset, end):
                    return offsets, contents, True
                continue
            if offset >= end:
                return offsets, contents, True
            headers: Any = message.headers()
            stamp = message.timestamp()[1] if self._timestamps else None
            offsets.append(offset)
            contents.append((message.key(), message.value(), tuple(headers or ()), stamp))
        return offsets, contents, bool(offsets) and offsets[-1] == end - 1

    def _is_end(self, error: KafkaError, offset: int, end: int) -> bool:
        """Errors that pass are left to librdkafka. Raises the others."""
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            return offset >= end
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):  # noqa: SLF001
            raise RecordsDeleted(f"{self._name}: {error.str()}")
        if not error.retriable():
            raise self._translated(error)
        return False

    def _at(self, offset: int | None = None) -> TopicPartition:
        if offset is None:
            return TopicPartition(self._topic, self._partition)
        return TopicPartition(self._topic, self._partition, offset)

    def _translated(self, error: KafkaError) -> ClusterUnavailable | PermanentError:
        text = f"{self._name}: {error.str()}"
        permanent = (
            KafkaError.UNKNOWN_TOPIC_OR_PART,
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
            KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
        )
        return PermanentError(text) if error.code() in permanent else ClusterUnavailable(text)


def _ahead(pace: Pace) -> dict[str, Any]:
    """Settings for reading ahead: at a byte rate it counts, since each round throws its rest away."""
    kbytes = pace.read_ahead_kbytes()
    most = {"fetch.message.max.bytes": min(1 << 20, kbytes << 10)}
    return {"queued.max.messages.kbytes": kbytes} | (most if pace.rate_bytes_per_s else {})


class PartitionWriter:
    """Appends records to one partition, in order, each in a batch of its own: what the target's limit for
    batches refuses is one record."""

    def __init__(self, properties: Mapping[str, str], topic: str, partition: int) -> None:
        self._name = f"{topic}/{partition} at {properties.get('bootstrap.servers', '')}"
        self._topic, self._partition = topic, partition
        try:
            self._producer = Producer({**librdkafka(properties), **_WRITING})
        except KafkaException as error:
            raise PermanentError(f"{self._name}: {error.args[0].str()}") from error

    def write(self, records: Mapping[int, Content]) -> dict[int, str]:
        """Records that the target refused, by their numbers; all others are acknowledged. Raises
        ClusterUnavailable: some may not be."""
        failed: dict[int, KafkaError] = {}
        for number, content in records.items():
            self._send(number, content, failed)
        waiting = len(records) + 1
        while left := self._producer.flush(WRITE_S):
            if left >= waiting:
                raise ClusterUnavailable(f"{self._name}: not acknowledged within {WRITE_S:.0f} s")
            waiting = left
        if lost := [error for error in failed.values() if error.code() < 0]:  # librdkafka's own
            raise ClusterUnavailable(f"{self._name}: {lost[0].str()}")
        return {number: f"the target refuses it: {error.str()}" for number, error in failed.items()}

    def _send(self, number: int, content: Content, failed: dict[int, KafkaError]) -> None:
        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed[number] = error

        key, value, headers, timestamp = content
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value,
                    key,
                    self._partition,
                    on_delivery=delivered,
                    timestamp=timestamp,
                    headers=list(headers),
                )
            except BufferError:
                self._producer.poll(POLL_S)
            except KafkaException as error:
                failed[number] = error.args[0]
                return
            else:
                return
