"""DescribeProducers: what the leaders of partitions know of their producers (KIP-664).

One request to each broker, with all that it leads. A broker that does not respond, or that refuses, affects
only the partitions that it leads. A producer that is missing is not known to the broker any more, which says
nothing about what it has written.

The sequences are those of the log's end, which may lie behind the high watermark.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from kafka.protocol.admin.transactions import (  # type: ignore[import-untyped]  # no stubs
    DescribeProducersRequest,
    DescribeProducersResponse,
)

from ureplicator_common.kafka import ClusterUnavailable, PartitionUnavailable
from ureplicator_common.kafka.client import Broker, ClusterClient, ClusterView
from ureplicator_common.kafka.errors import refusal
from ureplicator_common.kafka.features import accepted_versions
from ureplicator_common.kafka.list_offsets import (
    RETRY_S,
    TopicPartition,
    by_leader,
    by_topic,
    healthy_first,
    no_leader,
)

DESCRIBE_PRODUCERS = 61
"""API key."""
VERSION = 0
UNUSED_PRODUCER_ID = 1 << 62
"""An id that no coordinator gives out, since they count up from 0."""
TOO_OLD = "brokers before Kafka 2.8 do not describe producers"


class ProducerState(NamedTuple):
    """A producer in one partition. `last_sequence` is -1 where it has written control records only;
    `transaction_start` is the first offset of its open transaction, -1 without one; `coordinator_epoch` is
    that of its last control record, -1 without one."""

    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    transaction_start: int
    coordinator_epoch: int = -1


StatesOrError = Mapping[int, ProducerState] | PartitionUnavailable
"""Producers by their ids, or the reason why they are not known."""


def producer_states(
    client: ClusterClient, view: ClusterView, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, StatesOrError]:
    """Producers of each partition, as its leader knows them."""
    led = healthy_first(client, by_leader(view, partitions))
    found: dict[TopicPartition, StatesOrError] = {}
    for broker, keys in led.items():
        try:
            found |= _states_at(client, broker, keys)
        except ClusterUnavailable as error:
            unavailable = PartitionUnavailable(str(error), delay_s=error.delay_s)
            found |= dict.fromkeys(keys, unavailable)
    return {key: found[key] if key in found else no_leader(key, view) for key in partitions}


def _states_at(
    client: ClusterClient, broker: Broker, keys: Collection[TopicPartition]
) -> dict[TopicPartition, StatesOrError]:
    """Raises ClusterUnavailable."""
    if DESCRIBE_PRODUCERS not in accepted_versions(client, broker):
        return dict.fromkeys(keys, PartitionUnavailable(TOO_OLD))
    rows = DescribeProducersRequest.TopicRequest
    request = DescribeProducersRequest(
        version=VERSION,
        topics=[
            rows(name=topic, partition_indexes=numbers) for topic, numbers in by_topic(keys).items()
        ],
    )
    reply = client.call(broker, request, DescribeProducersResponse)
    shown: dict[TopicPartition, StatesOrError] = {
        (topic.name, row.partition_index): _states(topic.name, row, client.name)
        for topic in reply.topics
        for row in topic.partitions
    }
    return {key: shown[key] if key in shown else no_leader(key) for key in keys}


def _states(topic: str, row: Any, cluster: str) -> StatesOrError:
    if row.error_code:
        reason = refusal(row.error_code, f"READ on topic {topic}", cluster)
        text = f"producers of {topic}/{row.partition_index}: {reason}"
        return PartitionUnavailable(text, delay_s=RETRY_S)
    return {
        producer.producer_id: ProducerState(
            producer.producer_epoch,
            producer.last_sequence,
            producer.last_timestamp,
            producer.current_txn_start_offset,
            producer.coordinator_epoch,
        )
        for producer in row.active_producers
    }
