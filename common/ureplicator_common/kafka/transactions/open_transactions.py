"""Open transactions that hold the stable end of a log: whose they are, and where they began (KIP-664).

    DescribeProducers      at the leader of the partition: producer ids with the first offset of a transaction
    ListTransactions       at every broker: the transactional ids of these producers
    DescribeTransactions   at the coordinator: state, and when it began

Brokers before Kafka 3.0 know none of them. DescribeProducers needs Read on the topic, the other two Describe
on the transactional id: without that right the producer id and the offset are all that is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from kafka.protocol.admin.transactions import (  # type: ignore[import-untyped]  # no stubs
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

from ureplicator_common.kafka import ClusterUnavailable, OpenTransaction, PartitionUnavailable
from ureplicator_common.kafka.client import (
    TRANSACTION_COORDINATOR,
    Broker,
    ClusterClient,
    ClusterView,
)
from ureplicator_common.kafka.errors import refusal
from ureplicator_common.kafka.features import accepted_versions
from ureplicator_common.kafka.list_offsets import (
    TopicPartition,
    by_leader,
    by_topic,
    healthy_first,
    no_leader,
)

DESCRIBE_PRODUCERS = 61
"""API key of DescribeProducers."""
TOO_OLD = "brokers before Kafka 3.0 do not name open transactions"

Found = Mapping[TopicPartition, OpenTransaction | PartitionUnavailable]


def open_transactions(client: ClusterClient, keys: Sequence[TopicPartition]) -> Found:
    """First open transaction of each partition, or why it is not known. A partition without an open one is
    left out. Raises ClusterUnavailable."""
    view = client.view(sorted({topic for topic, _ in keys}))
    led = healthy_first(client, by_leader(view, keys))
    known = {key for some in led.values() for key in some}
    found: dict[TopicPartition, OpenTransaction | PartitionUnavailable] = {
        key: no_leader(key, view) for key in keys if key not in known
    }
    for broker, some in led.items():
        try:
            found |= _producers(client, broker, some)
        except ClusterUnavailable as error:
            found |= dict.fromkeys(some, PartitionUnavailable(str(error)))
    producers = {
        outcome.producer_id for outcome in found.values() if isinstance(outcome, OpenTransaction)
    }
    named = dict(_named(client, view, producers)) if producers else {}
    return {
        key: replace(named[outcome.producer_id], first_offset=outcome.first_offset)
        if isinstance(outcome, OpenTransaction) and outcome.producer_id in named
        else outcome
        for key, outcome in found.items()
    }


def _producers(
    client: ClusterClient, broker: Broker, keys: Sequence[TopicPartition]
) -> dict[TopicPartition, OpenTransaction | PartitionUnavailable]:
    """Raises ClusterUnavailable."""
    if DESCRIBE_PRODUCERS not in accepted_versions(client, broker):
        return dict.fromkeys(keys, PartitionUnavailable(TOO_OLD))
    rows = DescribeProducersRequest.TopicRequest
    request = DescribeProducersRequest(
        version=0,
        topics=[
            rows(name=topic, partition_indexes=numbers) for topic, numbers in by_topic(keys).items()
        ],
    )
    reply = client.call(broker, request, DescribeProducersResponse)
    outcomes = {
        (topic.name, row.partition_index): _first(row, topic.name, client.name)
        for topic in reply.topics
        for row in topic.partitions
    }
    return {key: outcome for key, outcome in outcomes.items() if outcome is not None}


def _first(row: object, topic: str, cluster: str) -> OpenTransaction | PartitionUnavailable | None:
    """The transaction that holds the stable end, which began first."""
    error_code: int = getattr(row, "error_code", 0)
    if error_code:
        return PartitionUnavailable(refusal(error_code, f"READ on topic {topic}", cluster))
    began = [
        (producer.current_txn_start_offset, producer.producer_id)
        for producer in getattr(row, "active_producers", ())
        if producer.current_txn_start_offset >= 0
    ]
    if not began:
        return None
    offset, producer_id = min(began)
    return OpenTransaction(producer_id, offset)


def _named(
    client: ClusterClient, view: ClusterView, producers: Iterable[int]
) -> Iterator[tuple[int, OpenTransaction]]:
    """Transactions that brokers show us; a broker that does not respond hides those that it coordinates."""
    request = {"version": 0, "state_filters": [], "producer_id_filters": sorted(producers)}
    for broker in view.brokers.values():
        try:
            reply = client.call(
                broker, ListTransactionsRequest(**request), ListTransactionsResponse
            )
            for row in () if reply.error_code else reply.transaction_states:
                yield row.producer_id, _described(client, row)
        except ClusterUnavailable:
            continue


def _described(client: ClusterClient, row: object) -> OpenTransaction:
    """The transaction with the time at which it began, if its coordinator tells. Raises
    ClusterUnavailable."""
    id: str = getattr(row, "transactional_id", "")
    listed = OpenTransaction(
        getattr(row, "producer_id", -1), -1, id, str(getattr(row, "transaction_state", ""))
    )
    reply = client.call(
        client.coordinator(id, TRANSACTION_COORDINATOR),
        DescribeTransactionsRequest(version=0, transactional_ids=[id]),
        DescribeTransactionsResponse,
    )
    for described in reply.transaction_states:
        if not described.error_code:
            return replace(listed, began_ms=described.transaction_start_time_ms)
    return listed
