"""Ends of transactions from outside: see `writers` for which request is right when.

InitProducerId needs WRITE on the transactional id. WriteTxnMarkers needs ALTER on the cluster, or before
Kafka 3.8 CLUSTER_ACTION; it carries the epochs that the leader knows, so a leader that has heard of a later
transaction refuses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kafka.protocol.admin.transactions import (  # type: ignore[import-untyped]  # no stubs
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from kafka.protocol.producer import (
    InitProducerIdResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import ClusterUnavailable, PartitionUnavailable
from ureplicator_common.kafka.client import TRANSACTION_COORDINATOR, Broker, ClusterClient
from ureplicator_common.kafka.errors import ErrorCode, error_name, refusal
from ureplicator_common.kafka.list_offsets import TopicPartition, by_leader, no_leader
from ureplicator_common.kafka.producer_states import producer_states
from ureplicator_common.kafka.transactions.broker_settings import broker_settings
from ureplicator_common.kafka.transactions.coordinator_requests import (
    Attempt,
    Fenced,
    until_accepted,
)
from ureplicator_common.kafka.transactions.fencing import RETRY_DELAY_S, init_request
from ureplicator_common.kafka.transactions.writers import (
    DEFAULT_LONGEST_MS,
    AbortRefused,
    HeldPartition,
    TopicTransaction,
    TransactionKind,
    objection,
)

WRITE_TXN_MARKERS_VERSION = 1
LONGEST = "transaction.max.timeout.ms"
MARKERS_RIGHT = "ALTER on the cluster (CLUSTER_ACTION before Kafka 3.8)"


def abort_all(
    client: ClusterClient, transactions: Iterable[TopicTransaction], *, now_ms: int
) -> dict[TopicTransaction, OperatingError]:
    """Those that were not aborted, and why."""
    failed: dict[TopicTransaction, OperatingError] = {}
    for transaction in transactions:
        try:
            _abort(client, transaction, now_ms)
        except (AbortRefused, ClusterUnavailable) as error:
            failed[transaction] = error
    return failed


def _abort(client: ClusterClient, transaction: TopicTransaction, now_ms: int) -> None:
    """Raises AbortRefused, ClusterUnavailable."""
    hangs = transaction.kind is TransactionKind.HANGING
    longest_ms = _longest_ms(client) if hangs else DEFAULT_LONGEST_MS
    if refused := objection(transaction, now_ms=now_ms, longest_ms=longest_ms):
        raise refused
    if hangs:
        _write_markers(client, transaction)
    elif _is_still_open(client, transaction):
        _initialise(client, transaction.transactional_id)


def _longest_ms(client: ClusterClient) -> int:
    """The longest time that a broker grants a transaction. Raises ClusterUnavailable."""
    return max(
        int(broker_settings(client, broker, [LONGEST]).get(LONGEST, DEFAULT_LONGEST_MS))
        for broker in client.view(()).brokers.values()
    )


def _is_still_open(client: ClusterClient, transaction: TopicTransaction) -> bool:
    """False if it has ended, or is ending. Raises ClusterUnavailable."""
    id = transaction.transactional_id
    reply = client.call(
        client.coordinator(id, TRANSACTION_COORDINATOR),
        DescribeTransactionsRequest(version=0, transactional_ids=[id]),
        DescribeTransactionsResponse,
    )
    (row,) = reply.transaction_states
    if row.error_code:
        client.forget_coordinator(id, TRANSACTION_COORDINATOR)
        raise ClusterUnavailable(f"{id}: {error_name(row.error_code)}", delay_s=RETRY_DELAY_S)
    found = (row.producer_id, row.producer_epoch, row.transaction_start_time_ms)
    wanted = (transaction.producer_id, transaction.producer_epoch, transaction.began_ms)
    return found == wanted and row.transaction_state == transaction.state


def _initialise(client: ClusterClient, transactional_id: str) -> None:
    """Return when the transaction has ended in all its partitions. Raises AbortRefused,
    ClusterUnavailable."""

    def attempt(coordinator: Broker) -> Attempt[None]:
        reply = client.call(coordinator, init_request(transactional_id), InitProducerIdResponse)
        if reply.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            right = f"WRITE on transactional id {transactional_id}"
            raise AbortRefused(refusal(reply.error_code, right, client.name), right=right)
        return {reply.error_code}, None

    try:
        until_accepted(
            client,
            key=transactional_id,
            kind=TRANSACTION_COORDINATOR,
            attempt=attempt,
            repeatable=True,
        )
    except Fenced as error:  # its producer began anew at the same time
        raise ClusterUnavailable(f"not aborted: {error}", delay_s=RETRY_DELAY_S) from error


def _write_markers(client: ClusterClient, transaction: TopicTransaction) -> None:
    """Abort a transaction in each partition whose leader still holds it. Raises AbortRefused,
    ClusterUnavailable."""
    keys = [(row.topic, row.partition) for row in transaction.held]
    view = client.view(sorted({topic for topic, _ in keys}))
    states = producer_states(client, view, keys)
    rows: dict[TopicPartition, HeldPartition] = {}
    for key, row in zip(keys, transaction.held, strict=True):
        shown = states[key]
        if isinstance(shown, PartitionUnavailable):
            raise shown
        state = shown.get(transaction.producer_id)
        if state and (state.transaction_start, state.epoch) == (
            row.first_offset,
            row.producer_epoch,
        ):
            rows[key] = row
    led = by_leader(view, rows)
    for broker, some in led.items():
        request = _request(transaction.producer_id, [rows[key] for key in some])
        _check(client, client.call(broker, request, WriteTxnMarkersResponse))
    for key in rows.keys() - {key for some in led.values() for key in some}:
        raise no_leader(key, view)


def _request(producer_id: int, rows: Iterable[HeldPartition]) -> WriteTxnMarkersRequest:
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    return WriteTxnMarkersRequest(
        version=WRITE_TXN_MARKERS_VERSION,
        markers=[
            marker(
                producer_id=producer_id,
                producer_epoch=row.producer_epoch,
                transaction_result=False,
                topics=[
                    marker.WritableTxnMarkerTopic(name=row.topic, partition_indexes=[row.partition])
                ],
                coordinator_epoch=max(0, row.coordinator_epoch),
            )
            for row in rows
        ],
    )


def _check(client: ClusterClient, reply: Any) -> None:
    """Raises AbortRefused, ClusterUnavailable."""
    for key, code in _outcomes(reply):
        if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise AbortRefused(refusal(code, MARKERS_RIGHT, client.name), right=MARKERS_RIGHT)
        if code:
            text = f"control record in {key[0]}/{key[1]}: {error_name(code)}"
            raise ClusterUnavailable(text, delay_s=RETRY_DELAY_S)


def _outcomes(reply: Any) -> Iterator[tuple[TopicPartition, int]]:
    for of_producer in reply.markers:
        for topic in of_producer.topics:
            for row in topic.partitions:
                yield (topic.name, row.partition_index), row.error_code
