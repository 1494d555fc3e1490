"""Offsets, times and retention of source logs, for thousands of partitions in a few requests.

Three kinds of lookup, none of them per topic or per partition:

* *Extent of the logs.* One Metadata request returns the leaders, then three ListOffsets requests go to each
  broker, with all partitions that it leads. Ends are last stable offsets: records behind them, in and after
  open transactions, are not to be copied yet, and are counted as held.
* *Age of the record at an offset.* No request returns it; ListOffsets does only the reverse. So a Fetch
  begins there, and only the header of the first batch is read. A broker returns whole batches or nothing:
  a first request allows `SMALL_BYTES` per partition, a second one much more for those whose batch is
  larger. The size of both responses is bounded, however many partitions are requested; the rest must be
  requested again. No record is decoded, and no fetch session is opened.
* *Retention.* One DescribeConfigs request for all topics, for three settings each.

A broker that does not respond affects only the partitions that it leads.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator, Mapping, Sequence

from kafka.protocol.admin import DescribeConfigsRequest, DescribeConfigsResponse
from kafka.protocol.consumer import FetchRequest, FetchResponse

from ureplicator_common.kafka import (
    BatchTime,
    ClusterUnavailable,
    Extent,
    Lifetime,
    OpenTransaction,
    PartitionUnavailable,
)
from ureplicator_common.kafka.client import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Broker,
    ClusterClient,
    ClusterView,
)
from ureplicator_common.kafka.list_offsets import (
    TopicPartition,
    by_leader,
    by_topic,
    healthy_first,
    list_at,
    no_leader,
    offsets_at,
    refused,
)
from ureplicator_common.kafka.transactions.open_transactions import open_transactions

FETCH_VERSION = 12
DESCRIBE_CONFIGS_VERSION = 1
TOPIC_RESOURCE = 2
SETTINGS = ("cleanup.policy", "retention.ms", "retention.bytes")

SMALL_BYTES = 16 << 10
"""Batch size of a producer by default."""
LARGE_BYTES = 1 << 20
"""Largest batch that a broker accepts by default; the first batch of a response may be larger."""
MAX_RESPONSE_BYTES = 4 << 20

_BATCH = struct.Struct(">qiibIhiqq")
"""Base offset, length, leader epoch, format, checksum, attributes, last offset delta, two times."""
_OLD = struct.Struct(">qiIBBq")
"""A message of format 1: offset, size, checksum, format, attributes, time."""
_LENGTH = struct.Struct(">i")
_TIME_OF_LAST = 0x08 | 0x40
"""Flags: stamped by the broker, or the first time is a delete horizon. Only the maximum time is valid."""


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
        led = healthy_first(self._client, by_leader(view, keys))
        for broker, some in led.items():
            found |= self._extents_at(broker, some)
        return {key: found.get(key) or no_leader(key, view) for key in keys}

    def offsets_at(
        self, times_ms: Mapping[TopicPartition, int], *, committed: bool = True
    ) -> Mapping[TopicPartition, int | PartitionUnavailable]:
        isolation = READ_COMMITTED if committed else READ_UNCOMMITTED
        view = self._client.view(sorted({topic for topic, _ in times_ms}))
        found: dict[TopicPartition, int | PartitionUnavailable] = {}
        for portion in offsets_at(self._client, view, times_ms, isolation=isolation):
            found |= portion
        return found

    def batch_times(
        self, offsets: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, BatchTime]:
        if not offsets:
            return {}
        view = self._view or self._client.view(sorted({topic for topic, _ in offsets}))
        found: dict[TopicPartition, BatchTime] = {}
        for broker, keys in healthy_first(self._client, by_leader(view, list(offsets))).items():
            found |= self._times_at(broker, {key: offsets[key] for key in keys})
        return found

    def open_transactions(
        self, keys: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, OpenTransaction | PartitionUnavailable]:
        return open_transactions(self._client, keys)

    def lifetimes(self, topics: Sequence[str]) -> Mapping[str, Lifetime]:
        if not topics:
            return {}
        response = self._client.call_any(
            lambda: configs_request(topics, SETTINGS), DescribeConfigsResponse
        )
        return {
            row.resource_name: lifetime({setting.name: setting.value for setting in row.configs})
            for row in response.results
            if not row.error_code
        }

    def close(self) -> None:
        self._client.close()

    def _extents_at(
        self, broker: Broker, keys: Sequence[TopicPartition]
    ) -> dict[TopicPartition, Extent | PartitionUnavailable]:
        """Starts first: for a log that grows meanwhile, the end is still not before the start. The end of
        the log before the stable one: what is written meanwhile does not count as held."""
        latest = dict.fromkeys(keys, LATEST)
        try:
            starts = list_at(self._client, broker, dict.fromkeys(keys, EARLIEST))
            whole = list_at(self._client, broker, latest, isolation=READ_UNCOMMITTED)
            ends = list_at(self._client, broker, latest)
        except ClusterUnavailable as error:
            return dict.fromkeys(keys, PartitionUnavailable(str(error)))
        name = self._client.name
        return {
            key: _extent(key, starts.get(key), ends.get(key), whole.get(key), name) for key in keys
        }

    def _times_at(
        self, broker: Broker, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, BatchTime]:
        """Times of the batches that hold the offsets; those read before the broker stopped responding."""
        found: dict[TopicPartition, BatchTime] = {}
        try:
            for max_bytes_each in (SMALL_BYTES, LARGE_BYTES):
                missing = {key: offset for key, offset in offsets.items() if key not in found}
                if missing:
                    found |= self._fetch(broker, missing, max_bytes_each=max_bytes_each)
        except ClusterUnavailable:
            return found
        return found

    def _fetch(
        self, broker: Broker, offsets: Mapping[TopicPartition, int], *, max_bytes_each: int
    ) -> dict[TopicPartition, BatchTime]:
        request = fetch_request(
            offsets, max_bytes_each=max_bytes_each, max_bytes=MAX_RESPONSE_BYTES
        )
        response = self._client.call(broker, request, FetchResponse)
        return {
            key: time
            for topic in response.responses
            for row in topic.partitions
            if (key := (topic.topic, row.partition_index)) in offsets
            and (time := batch_time(bytes(row.records or b""), offsets[key])) is not None
        }


def batch_time(records: bytes, offset: int) -> BatchTime | None:
    """Time of the first batch that reaches to `offset`; None without a complete batch header.

    A batch may begin behind the offset, after a gap of compaction: it is the next one there.
    """
    for at in _batches(records):
        time = _time(records, at) if records[at + 16] >= 2 else _old_time(records, at)
        if time.last >= offset:
            return BatchTime(min(time.first, offset), time.last, time.timestamp_ms)
    return None


def _batches(records: bytes) -> Iterator[int]:
    """Start of each batch with a complete header; a broker may truncate the last one."""
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
    """Retention by a topic's settings; only compaction removes records of a compacted topic."""
    if "delete" not in (settings.get("cleanup.policy") or "delete"):
        return Lifetime()
    return Lifetime(
        retention_ms=_limit(settings.get("retention.ms")),
        retention_bytes=_limit(settings.get("retention.bytes")),
    )


def _limit(text: str | None) -> int | None:
    """Kafka's value for no limit is -1."""
    return int(text) if text and int(text) >= 0 else None


def _extent(
    key: TopicPartition,
    start: tuple[int, int] | None,
    end: tuple[int, int] | None,
    whole: tuple[int, int] | None,
    cluster: str,
) -> Extent | PartitionUnavailable:
    """Each is an error code and an offset; `whole`: the end of the log."""
    if start is None or end is None or whole is None:
        return no_leader(key)
    code = start[0] or end[0] or whole[0]
    if code:
        return refused(key, code, cluster)
    return Extent(start[1], end[1], max(0, whole[1] - end[1]))


def fetch_request(
    offsets: Mapping[TopicPartition, int],
    *,
    max_bytes_each: int,
    max_bytes: int,
    isolation: int = READ_COMMITTED,
) -> FetchRequest:
    """Batches from these offsets on, without a wait and without a fetch session."""
    rows = FetchRequest.FetchTopic
    return FetchRequest(
        version=FETCH_VERSION,
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=max_bytes,
        isolation_level=isolation,
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
                        partition_max_bytes=max_bytes_each,
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(list(offsets)).items()
        ],
        forgotten_topics_data=[],
        rack_id="",
    )


def configs_request(topics: Sequence[str], names: Sequence[str]) -> DescribeConfigsRequest:
    """Request for these settings of topics."""
    return DescribeConfigsRequest(
        version=DESCRIBE_CONFIGS_VERSION,
        resources=[
            DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=TOPIC_RESOURCE,
                resource_name=topic,
                configuration_keys=list(names),
            )
            for topic in topics
        ],
        include_synonyms=False,
    )
