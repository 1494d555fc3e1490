"""ListOffsets for thousands of partitions: one request to each broker, with all that it leads.

A broker that does not respond, or that refuses, affects only the partitions that it leads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse

from ureplicator_common.kafka import ClusterUnavailable, PartitionUnavailable
from ureplicator_common.kafka.client import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    Broker,
    ClusterClient,
    ClusterView,
)
from ureplicator_common.kafka.errors import refusal

TopicPartition = tuple[str, int]
OffsetOrError = int | PartitionUnavailable

VERSION = 6
NOT_FOUND = -1
"""Offset for a time that is behind the last record."""
RETRY_S = 0.2


def offsets_at(
    client: ClusterClient,
    view: ClusterView,
    times_ms: Mapping[TopicPartition, int],
    *,
    isolation: int = READ_COMMITTED,
) -> Iterator[Mapping[TopicPartition, OffsetOrError]]:
    """Offset of the first record not older than each time; EARLIEST and LATEST are times too.

    A time after the last record gives the end. The results come in portions, as they become known.
    """
    led = healthy_first(client, by_leader(view, times_ms))
    known = {key for keys in led.values() for key in keys}
    leaderless = [key for key in times_ms if key not in known]
    if leaderless:
        yield {key: no_leader(key, view) for key in leaderless}
    for broker, keys in led.items():
        wanted = {key: times_ms[key] for key in keys}
        try:
            yield _offsets_at(client, broker, wanted, isolation)
        except ClusterUnavailable as error:
            yield dict.fromkeys(keys, PartitionUnavailable(str(error), delay_s=error.delay_s))


def _offsets_at(
    client: ClusterClient, broker: Broker, times_ms: Mapping[TopicPartition, int], isolation: int
) -> dict[TopicPartition, OffsetOrError]:
    """Ends first: what is written after a time was looked up is not before that time's offset.

    Raises ClusterUnavailable.
    """
    timed = [key for key, time_ms in times_ms.items() if time_ms not in (EARLIEST, LATEST)]
    latest = dict.fromkeys(timed, LATEST)
    ends = list_at(client, broker, latest, isolation=isolation) if timed else {}
    rows = list_at(client, broker, times_ms, isolation=isolation)
    behind = {key: ends[key] for key in ends.keys() & rows.keys() if rows[key] == (0, NOT_FOUND)}
    return {key: _offset(key, behind.get(key) or rows.get(key), client.name) for key in times_ms}


def _offset(key: TopicPartition, row: tuple[int, int] | None, cluster: str) -> OffsetOrError:
    if row is None:
        return no_leader(key)
    code, offset = row
    return refused(key, code, cluster) if code else offset


def list_at(
    client: ClusterClient,
    broker: Broker,
    times_ms: Mapping[TopicPartition, int],
    *,
    isolation: int = READ_COMMITTED,
) -> dict[TopicPartition, tuple[int, int]]:
    """(error code, offset) of each; offset -1 behind the last record. Raises ClusterUnavailable."""
    response = client.call(broker, _request(times_ms, isolation), ListOffsetsResponse)
    return {
        (topic.name, row.partition_index): (row.error_code, row.offset)
        for topic in response.topics
        for row in topic.partitions
    }


def offset_at(client: ClusterClient, leader: Broker, key: TopicPartition, time_ms: int) -> int:
    """Offset of one partition, -1 behind the last record. Raises ClusterUnavailable, also if the leader
    refuses or does not show the partition."""
    found = _offset(key, list_at(client, leader, {key: time_ms}).get(key), client.name)
    if isinstance(found, PartitionUnavailable):
        raise found
    return found


def by_leader(
    view: ClusterView, keys: Iterable[TopicPartition]
) -> dict[Broker, list[TopicPartition]]:
    """Partitions that have a leader, in the order given."""
    led: dict[Broker, list[TopicPartition]] = {}
    for key in keys:
        broker = view.leader_of(*key)
        if broker is not None:
            led.setdefault(broker, []).append(key)
    return led


def healthy_first(
    client: ClusterClient, led: Mapping[Broker, list[TopicPartition]]
) -> dict[Broker, list[TopicPartition]]:
    """One that failed lately must not delay the others."""
    return dict(sorted(led.items(), key=lambda item: client.has_failed(item[0])))


def by_topic(keys: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in keys:
        topics.setdefault(topic, []).append(number)
    return topics


def no_leader(key: TopicPartition, view: ClusterView | None = None) -> PartitionUnavailable:
    """Reason why a partition has no leader in a view, or no row in a leader's response."""
    topic, number = key
    text = view.leaderless(topic) if view else " is not shown by its leader"
    return PartitionUnavailable(f"{topic}/{number}{text}", delay_s=RETRY_S)


def refused(key: TopicPartition, code: int, cluster: str) -> PartitionUnavailable:
    reason = refusal(code, f"DESCRIBE on topic {key[0]}", cluster)
    return PartitionUnavailable(f"offsets of {key[0]}/{key[1]}: {reason}", delay_s=RETRY_S)


def _request(times_ms: Mapping[TopicPartition, int], isolation: int) -> ListOffsetsRequest:
    rows = ListOffsetsRequest.ListOffsetsTopic
    return ListOffsetsRequest(
        version=VERSION,
        replica_id=-1,
        isolation_level=isolation,
        topics=[
            rows(name=topic, partitions=_partitions(topic, numbers, times_ms))
            for topic, numbers in by_topic(times_ms).items()
        ],
    )


def _partitions(
    topic: str, numbers: Sequence[int], times_ms: Mapping[TopicPartition, int]
) -> list[object]:
    rows = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition
    return [
        rows(
            partition_index=number,
            current_leader_epoch=-1,
            timestamp=times_ms[topic, number],
        )
        for number in numbers
    ]
