"""Open transactions that hold the stable end of a log: whose they are, and where they began (KIP-664).

    DescribeProducers      at the leader of the partition: producer ids with the first offset of a transaction
    ListTransactions       at every broker: the transactional ids of these producers
    DescribeTransactions   at the coordinator: state, and when it began

Brokers answer the first from Kafka 2.8 on, the others from 3.0 on. DescribeProducers needs Read on the topic,
the others Describe on the transactional id: without either the producer id and the offset are all that is
found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from kafka.protocol.admin.transactions import (  # type: ignore[import-untyped]  # no stubs
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

from ureplicator_common.kafka import ClusterUnavailable, OpenTransaction, PartitionUnavailable
from ureplicator_common.kafka.client import TRANSACTION_COORDINATOR, ClusterClient, ClusterView
from ureplicator_common.kafka.list_offsets import TopicPartition
from ureplicator_common.kafka.producer_states import StatesOrError, producer_states

Found = Mapping[TopicPartition, OpenTransaction | PartitionUnavailable]


def open_transactions(client: ClusterClient, keys: Sequence[TopicPartition]) -> Found:
    """First open transaction of each partition, or why it is not known. A partition without an open one is
    left out. Raises ClusterUnavailable."""
    view = client.view(sorted({topic for topic, _ in keys}))
    states = producer_states(client, view, keys)
    firsts = {key: _first(shown) for key, shown in states.items()}
    found = {key: first for key, first in firsts.items() if first is not None}
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


def _first(states: StatesOrError) -> OpenTransaction | PartitionUnavailable | None:
    """The transaction that holds the stable end, which began first."""
    if isinstance(states, PartitionUnavailable):
        return states
    began = [
        (state.transaction_start, producer_id)
        for producer_id, state in states.items()
        if state.transaction_start >= 0
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
