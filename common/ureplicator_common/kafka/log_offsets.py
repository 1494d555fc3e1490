"""What source logs hold, for thousands of partitions at once and a handful of requests.

Three questions, none of them asked by topic or by partition:

* *How far do the logs reach?* One Metadata request tells the leaders, then two ListOffsets requests go
  to each broker, with all partitions that it leads. Ends are last stable offsets: what lies behind, in
  open transactions, is not to be copied yet.
* *How old is the record at an offset?* No request tells that, and ListOffsets answers only the reverse.
  So a Fetch begins there, and only the header of the first batch is looked at. A broker gives whole
  batches or nothing: a first request asks for `SMALL_BYTES` of each partition, a second one with much
  more room for those whose batch is larger. What both bring is bounded, however many are asked for;
  the rest must be asked for again. No record is decoded, and no fetch session is opened.
* *How long do records live?* One DescribeConfigs request for all topics, for three settings each.

A broker that is away takes its own partitions along and no others.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator, Mapping, Sequence

from kafka.protocol.admin import DescribeConfigsRequest, DescribeConfigsResponse
from kafka.protocol.consumer import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)

from ureplicator_common.kafka import (
    BatchTime,
    ClusterUnavailable,
    Extent,
    Lifetime,
    PartitionUnavailable,
)
from ureplicator_common.kafka.client import (
    EARLIEST,
    LATEST,
    LIST_OFFSETS_VERSION,
    READ_COMMITTED,
    Broker,
    ClusterClient,
    ClusterView,
)
from ureplicator_common.kafka.errors import error_name

TopicPartition = tuple[str, int]

FETCH_VERSION = 12
DESCRIBE_CONFIGS_VERSION = 1
TOPIC_RESOURCE = 2
SETTINGS = ("cleanup.policy", "retention.ms", "retention.bytes")

SMALL_BYTES = 16 << 10
"""As much as a producer puts into one batch by default."""
LARGE_BYTES = 1 << 20
"""As much as a broker takes as one batch by default; the first of a request comes however large."""
ANSWER_BYTES = 4 << 20

_BATCH = struct.Struct(">qiibIhiqq")
"""Base offset, length, leader epoch, format, checksum, attributes, last offset delta, two times."""
_OLD = struct.Struct(">qiIBBq")
"""A message of format 1: offset, size, checksum, format, attributes, time."""
_LENGTH = struct.Struct(">i")
_TIME_OF_LAST = 0x08 | 0x40
"""Stamped by the broker, or the first time is that of a tombstone's end: only the other time is true."""


class KafkaLogReader:
    """`LogReader` of one cluster. Belongs to one thread at a time."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._view: ClusterView | None = None

    def extents(
        self, wanted: Mapping[str, Sequence[int]]
    ) -> Mapping[TopicPartition, Extent | PartitionUnavailable]:
        self._view = view = self._client.view(list(wanted))
        keys = [(topic, number) for topic, numbers in wanted.items() for number in numbers]
        found: dict[TopicPartition, Extent | PartitionUnavailable] = {}
        led = _by_leader(view, keys)
        for broker, some in led.items():
            found |= self._extents_at(broker, some)
        return {key: found.get(key) or _no_leader(key) for key in keys}

    def batch_times(
        self, offsets: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, BatchTime]:
        if not offsets:
            return {}
        view = self._view or self._client.view(sorted({topic for topic, _ in offsets}))
        found: dict[TopicPartition, BatchTime] = {}
        for broker, keys in _by_leader(view, list(offsets)).items():
            found |= self._times_at(broker, {key: offsets[key] for key in keys})
        return found

    def lifetimes(self, topics: Sequence[str]) -> Mapping[str, Lifetime]:
        if not topics:
            return {}
        answer = self._client.call_any(lambda: _configs_request(topics), DescribeConfigsResponse)
        return {
            row.resource_name: lifetime({each.name: each.value for each in row.configs})
            for row in answer.results
            if not row.error_code
        }

    def close(self) -> None:
        self._client.close()

    def _extents_at(
        self, broker: Broker, keys: Sequence[TopicPartition]
    ) -> dict[TopicPartition, Extent | PartitionUnavailable]:
        """Starts first: a log that grows meanwhile still reads as one that has a start and an end."""
        try:
            starts = self._offsets_at(broker, keys, EARLIEST)
            ends = self._offsets_at(broker, keys, LATEST)
        except ClusterUnavailable as error:
            return dict.fromkeys(keys, PartitionUnavailable(str(error)))
        return {key: _extent(key, starts.get(key), ends.get(key)) for key in keys}

    def _offsets_at(
        self, broker: Broker, keys: Sequence[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, tuple[int, int]]:
        """(error code, offset) of each."""
        request = _offsets_request(keys, timestamp_ms)
        answer = self._client.call(broker, request, ListOffsetsResponse)
        return {
            (topic.name, row.partition_index): (row.error_code, row.offset)
            for topic in answer.topics
            for row in topic.partitions
        }

    def _times_at(
        self, broker: Broker, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, BatchTime]:
        """What came before the broker went away is kept."""
        found: dict[TopicPartition, BatchTime] = {}
        try:
            for most_bytes in (SMALL_BYTES, LARGE_BYTES):
                missing = {key: offset for key, offset in offsets.items() if key not in found}
                if missing:
                    found |= self._fetch(broker, missing, most_bytes=most_bytes)
        except ClusterUnavailable:
            return found
        return found

    def _fetch(
        self, broker: Broker, offsets: Mapping[TopicPartition, int], *, most_bytes: int
    ) -> dict[TopicPartition, BatchTime]:
        request = _fetch_request(offsets, most_bytes=most_bytes)
        answer = self._client.call(broker, request, FetchResponse)
        return {
            key: time
            for topic in answer.responses
            for row in topic.partitions
            if (key := (topic.topic, row.partition_index)) in offsets
            and (time := batch_time(bytes(row.records or b""), offsets[key])) is not None
        }


def batch_time(records: bytes, offset: int) -> BatchTime | None:
    """Time of the first batch that reaches to `offset`; None if there is none whole enough to tell.

    A batch may begin behind the offset, where compaction left a hole: it is what comes next there.
    """
    for at in _batches(records):
        time = _time(records, at) if records[at + 16] >= 2 else _old_time(records, at)
        if time.last >= offset:
            return BatchTime(min(time.first, offset), time.last, time.timestamp_ms)
    return None


def _batches(records: bytes) -> Iterator[int]:
    """Where each batch begins whose header is whole; a broker may cut the last one."""
    at = 0
    while len(records) - at >= _OLD.size:
        if records[at + 16] >= 2 and len(records) - at < _BATCH.size:
            return
        yield at
        (length,) = _LENGTH.unpack_from(records, at + 8)
        at += 12 + max(length, 0)


def _time(records: bytes, at: int) -> BatchTime:
    first, _length, _epoch, _magic, _crc, attributes, delta, first_ms, newest_ms = (
        _BATCH.unpack_from(records, at)
    )
    return BatchTime(first, first + delta, newest_ms if attributes & _TIME_OF_LAST else first_ms)


def _old_time(records: bytes, at: int) -> BatchTime:
    """Format 0 has no time at all."""
    last, _size, _crc, magic, _attributes, time_ms = _OLD.unpack_from(records, at)
    return BatchTime(last, last, time_ms if magic == 1 else -1)


def lifetime(settings: Mapping[str, str | None]) -> Lifetime:
    """What a topic's settings mean: nothing but compaction removes records of a compacted topic."""
    if "delete" not in (settings.get("cleanup.policy") or "delete"):
        return Lifetime()
    return Lifetime(
        retention_ms=_limit(settings.get("retention.ms")),
        retention_bytes=_limit(settings.get("retention.bytes")),
    )


def _limit(text: str | None) -> int | None:
    """Kafka writes "without limit" as -1."""
    return int(text) if text and int(text) >= 0 else None


def _by_leader(
    view: ClusterView, keys: Sequence[TopicPartition]
) -> dict[Broker, list[TopicPartition]]:
    """Those that somebody leads, in the order given."""
    led: dict[Broker, list[TopicPartition]] = {}
    for key in keys:
        leader = view.leaders.get(key)
        broker = view.brokers.get(leader.node_id) if leader else None
        if broker is not None:
            led.setdefault(broker, []).append(key)
    return led


def _by_topic(keys: Sequence[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in keys:
        topics.setdefault(topic, []).append(number)
    return topics


def _extent(
    key: TopicPartition, start: tuple[int, int] | None, end: tuple[int, int] | None
) -> Extent | PartitionUnavailable:
    if start is None or end is None:
        return _no_leader(key)
    code = start[0] or end[0]
    if code:
        return PartitionUnavailable(f"offsets of {key[0]}/{key[1]}: {error_name(code)}")
    return Extent(start[1], end[1])


def _no_leader(key: TopicPartition) -> PartitionUnavailable:
    return PartitionUnavailable(f"{key[0]}/{key[1]} has no leader, or does not exist")


def _offsets_request(keys: Sequence[TopicPartition], timestamp_ms: int) -> ListOffsetsRequest:
    rows = ListOffsetsRequest.ListOffsetsTopic
    return ListOffsetsRequest(
        version=LIST_OFFSETS_VERSION,
        replica_id=-1,
        isolation_level=READ_COMMITTED,
        topics=[
            rows(
                name=topic,
                partitions=[
                    rows.ListOffsetsPartition(
                        partition_index=number, current_leader_epoch=-1, timestamp=timestamp_ms
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in _by_topic(keys).items()
        ],
    )


def _fetch_request(offsets: Mapping[TopicPartition, int], *, most_bytes: int) -> FetchRequest:
    rows = FetchRequest.FetchTopic
    return FetchRequest(
        version=FETCH_VERSION,
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=ANSWER_BYTES,
        isolation_level=READ_COMMITTED,
        session_id=0,
        session_epoch=-1,
        topics=[
            rows(
                topic=topic,
                topic_id=uuid.UUID(int=0),
                partitions=[
                    rows.FetchPartition(
                        partition=number,
                        current_leader_epoch=-1,
                        fetch_offset=offsets[(topic, number)],
                        last_fetched_epoch=-1,
                        log_start_offset=-1,
                        partition_max_bytes=most_bytes,
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in _by_topic(list(offsets)).items()
        ],
        forgotten_topics_data=[],
        rack_id="",
    )


def _configs_request(topics: Sequence[str]) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        version=DESCRIBE_CONFIGS_VERSION,
        resources=[
            DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=TOPIC_RESOURCE,
                resource_name=topic,
                configuration_keys=list(SETTINGS),
            )
            for topic in topics
        ],
        include_synonyms=False,
    )
