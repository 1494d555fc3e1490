"""Requests about logs, besides Produce and Fetch, as brokers in memory perform them.

`fault`: error code of a partition, if its broker refuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kafka.protocol.admin import DeleteRecordsResponse
from kafka.protocol.producer import WriteTxnMarkersResponse

from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_testkit.kafka.batch_log import BatchLog
from ureplicator_testkit.kafka.cluster import ClusterModel, TopicPartition

Logs = Mapping[TopicPartition, BatchLog]
Fault = Callable[[TopicPartition], int]


def write_markers(logs: Logs, request: Any, *, fault: Fault) -> Any:
    """Entries are appended in order. The response has one for each producer id, with the last outcomes."""
    outcomes: dict[int, dict[TopicPartition, int]] = {}
    for marker in request.markers:
        of_producer = outcomes.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for number in topic.partition_indexes:
                key = (topic.name, number)
                of_producer[key] = int(fault(key)) or int(
                    logs[key].mark(
                        marker.producer_id,
                        marker.producer_epoch,
                        coordinator_epoch=marker.coordinator_epoch,
                        commit=marker.transaction_result,
                    )
                )
    results = WriteTxnMarkersResponse.WritableTxnMarkerResult
    return WriteTxnMarkersResponse(
        version=request.version,
        markers=[
            results(producer_id=id, topics=_marked(results.WritableTxnMarkerTopicResult, codes))
            for id, codes in outcomes.items()
        ],
    )


def _marked(topics: Any, codes: Mapping[TopicPartition, int]) -> list[Any]:
    rows = topics.WritableTxnMarkerPartitionResult
    found: dict[str, Any] = {}
    for (topic, number), code in codes.items():
        row = rows(partition_index=number, error_code=code)
        found.setdefault(topic, topics(name=topic, partitions=[])).partitions.append(row)
    return list(found.values())


def delete_records(logs: Logs, request: Any, *, fault: Fault) -> Any:
    topics = DeleteRecordsResponse.DeleteRecordsTopicResult

    def row(key: TopicPartition, offset: int) -> Any:
        code = fault(key)
        code, low = (code, -1) if code else logs[key].delete_before(offset)
        return topics.DeleteRecordsPartitionResult(
            partition_index=key[1], error_code=int(code), low_watermark=low
        )

    return DeleteRecordsResponse(
        version=request.version,
        throttle_time_ms=0,
        topics=[
            topics(
                name=topic.name,
                partitions=[
                    row((topic.name, wanted.partition_index), wanted.offset)
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def describe_producers(
    model: ClusterModel[BatchLog], node_id: int, request: Any, response: Any
) -> Any:
    topics = response.TopicResponse
    return response(
        version=request.version,
        throttle_time_ms=0,
        topics=[
            topics(
                name=topic.name,
                partitions=[
                    _described(model, node_id, (topic.name, number), topics.PartitionResponse)
                    for number in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ],
    )


def _described(model: ClusterModel[BatchLog], node_id: int, key: TopicPartition, rows: Any) -> Any:
    code = _undescribed(model, node_id, key)
    producers = {} if code else model.logs[key].known_producers()
    return rows(
        partition_index=key[1],
        error_code=int(code),
        error_message=None,
        active_producers=[
            rows.ProducerState(
                producer_id=id,
                producer_epoch=known.epoch,
                last_sequence=known.last_sequence,
                last_timestamp=known.last_timestamp_ms,
                coordinator_epoch=known.coordinator_epoch,
                current_txn_start_offset=known.transaction_start,
            )
            for id, known in producers.items()
        ],
    )


def _undescribed(model: ClusterModel[BatchLog], node_id: int, key: TopicPartition) -> int:
    if key[0] in model.hidden:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if key not in model.logs:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if model.leaders[key] == node_id else ErrorCode.NOT_LEADER_OR_FOLLOWER
