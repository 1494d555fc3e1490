"""Requests of one transaction with positions: partitions and group that take part, positions, and EndTxn.

All raise Fenced and ClusterUnavailable. What they are for, and in which order, is in
`ureplicator_common.kafka.positions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from kafka.protocol.producer.transaction import (  # type: ignore[import-untyped]  # no stubs
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)

from ureplicator_common.kafka import Position
from ureplicator_common.kafka.client import (
    GROUP_COORDINATOR,
    TRANSACTION_COORDINATOR,
    Broker,
    ClusterClient,
)
from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.list_offsets import by_topic
from ureplicator_common.kafka.transactions.coordinator_requests import Attempt, until_accepted
from ureplicator_common.kafka.transactions.position_rows import (
    TargetPartition,
    by_partition,
    in_requests,
    rows_by_topic,
)
from ureplicator_common.kafka.transactions.producers import Producer, TransactionProtocol

T = TypeVar("T")


class TransactionRequests:
    """Requests under one transactional id, with positions of one group."""

    def __init__(self, client: ClusterClient, *, group: str, transactional_id: str) -> None:
        self._client = client
        self._group = group
        self._transactional_id = transactional_id

    def add_partitions(
        self, producer: Producer, partitions: Iterable[TargetPartition]
    ) -> dict[TargetPartition, str]:
        """Have partitions take part. Returns those that were refused, with reasons. A coordinator that
        refuses some adds none, so the others are added by another request."""
        refused: dict[TargetPartition, str] = {}
        waiting = list(partitions)
        while waiting:
            some = self._add(producer, waiting)
            refused |= some
            waiting = [key for key in waiting if key not in refused] if some else []
        return refused

    def _add(
        self, producer: Producer, partitions: Iterable[TargetPartition]
    ) -> dict[TargetPartition, str]:
        rows = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        topics = [rows(name=name, partitions=some) for name, some in by_topic(partitions).items()]

        def attempt(coordinator: Broker) -> Attempt[dict[TargetPartition, str]]:
            response = self._client.call(
                coordinator,
                AddPartitionsToTxnRequest(
                    version=3,
                    v3_and_below_transactional_id=self._transactional_id,
                    v3_and_below_producer_id=producer.id,
                    v3_and_below_producer_epoch=producer.epoch,
                    v3_and_below_topics=topics,
                ),
                AddPartitionsToTxnResponse,
            )
            return by_partition(
                {
                    (topic.name, row.partition_index): row.partition_error_code
                    for topic in response.results_by_topic_v3_and_below
                    for row in topic.results_by_partition
                    if row.partition_error_code != ErrorCode.OPERATION_NOT_ATTEMPTED
                },
                right="WRITE",
                cluster=self._client.name,
            )

        return self._until_accepted(self._transactional_id, TRANSACTION_COORDINATOR, attempt)

    def add_group(self, producer: Producer) -> None:
        """Have the group take part, with the protocol where that is asked for."""

        def attempt(coordinator: Broker) -> Attempt[None]:
            response = self._client.call(
                coordinator,
                AddOffsetsToTxnRequest(
                    version=3,
                    transactional_id=self._transactional_id,
                    producer_id=producer.id,
                    producer_epoch=producer.epoch,
                    group_id=self._group,
                ),
                AddOffsetsToTxnResponse,
            )
            return {response.error_code}, None

        self._until_accepted(self._transactional_id, TRANSACTION_COORDINATOR, attempt)

    def add_positions(
        self, producer: Producer, positions: Mapping[TargetPartition, Position]
    ) -> dict[TargetPartition, str]:
        """Write positions in the transaction. Returns those that the coordinator refused, with reasons."""
        refused: dict[TargetPartition, str] = {}
        for batch in in_requests(positions):
            refused |= self._add_batch(producer, batch)
        return refused

    def _add_batch(
        self, producer: Producer, positions: Mapping[TargetPartition, Position]
    ) -> dict[TargetPartition, str]:
        def attempt(coordinator: Broker) -> Attempt[dict[TargetPartition, str]]:
            response = self._client.call(
                coordinator, self._commit_request(producer, positions), TxnOffsetCommitResponse
            )
            return by_partition(
                {
                    (topic.name, row.partition_index): row.error_code
                    for topic in response.topics
                    for row in topic.partitions
                },
                right="READ",
                cluster=self._client.name,
            )

        return self._until_accepted(self._group, GROUP_COORDINATOR, attempt)

    def _commit_request(
        self, producer: Producer, positions: Mapping[TargetPartition, Position]
    ) -> TxnOffsetCommitRequest:
        rows = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        return TxnOffsetCommitRequest(
            version=3 if producer.protocol is TransactionProtocol.ADDED else 5,
            transactional_id=self._transactional_id,
            group_id=self._group,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=[
                rows(
                    name=topic,
                    partitions=[
                        rows.TxnOffsetCommitRequestPartition(
                            partition_index=number,
                            committed_offset=position.offset,
                            committed_leader_epoch=position.leader_epoch,
                            committed_metadata=position.metadata,
                        )
                        for number, position in by_number.items()
                    ],
                )
                for topic, by_number in rows_by_topic(positions).items()
            ],
        )

    def end(self, producer: Producer, *, commit: bool) -> Producer:
        """End the transaction. Returns the producer of the next one: with the implicit protocol each
        transaction has its own epoch."""
        added = producer.protocol is TransactionProtocol.ADDED

        def attempt(coordinator: Broker) -> Attempt[Producer]:
            response = self._client.call(
                coordinator,
                EndTxnRequest(
                    version=3 if added else 5,
                    transactional_id=self._transactional_id,
                    producer_id=producer.id,
                    producer_epoch=producer.epoch,
                    committed=commit,
                ),
                EndTxnResponse,
            )
            following = replace(producer, id=response.producer_id, epoch=response.producer_epoch)
            return {response.error_code}, producer if added else following

        return self._until_accepted(self._transactional_id, TRANSACTION_COORDINATOR, attempt)

    def _until_accepted(self, key: str, kind: int, attempt: Callable[[Broker], Attempt[T]]) -> T:
        rights: dict[int, str] = {
            ErrorCode.GROUP_AUTHORIZATION_FAILED: f"READ on group {self._group}",
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
                f"WRITE on transactional id {self._transactional_id}"
            ),
        }
        return until_accepted(self._client, key=key, kind=kind, attempt=attempt, rights=rights)
