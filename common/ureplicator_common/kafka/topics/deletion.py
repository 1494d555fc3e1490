"""Deletion of a topic by its id, which is exact: a topic of the same name that was created since stays.

Brokers know topics by id since version 6 of DeleteTopics (Kafka 2.8, KIP-516). Any broker takes the request
in KRaft; where ZooKeeper keeps the metadata, only the controller does.
"""

from __future__ import annotations

from functools import partial

from kafka.protocol.admin import DeleteTopicsRequest, DeleteTopicsResponse

from ureplicator_common.kafka import ClusterUnavailable, TopicRefused, topic_id_uuid
from ureplicator_common.kafka.client import ClusterClient, controller_rows
from ureplicator_common.kafka.errors import ErrorCode, error_name

VERSION = 6
TIMEOUT_MS = 5_000
_GONE = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID})
_TEMPORARY = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT})


def delete_topic(client: ClusterClient, topic_id: str) -> None:
    """`topic_id`: in Kafka's notation. A topic that does not exist is deleted already. Raises
    ClusterUnavailable, TopicRefused."""
    assert topic_id, "no id, no deletion"
    request = partial(_request, topic_id)
    (row,) = controller_rows(client, request, DeleteTopicsResponse, "responses")
    if row.error_code in _GONE:
        return
    failed = f"{error_name(row.error_code)} {row.error_message or ''}".strip()
    if row.error_code in _TEMPORARY:
        raise ClusterUnavailable(f"topic with id {topic_id} is not deleted: {failed}")
    raise TopicRefused(f"topic with id {topic_id} cannot be deleted: {failed}")


def _request(topic_id: str) -> DeleteTopicsRequest:
    state = DeleteTopicsRequest.DeleteTopicState
    return DeleteTopicsRequest(
        version=VERSION,
        topics=[state(name=None, topic_id=topic_id_uuid(topic_id))],
        timeout_ms=TIMEOUT_MS,
    )
