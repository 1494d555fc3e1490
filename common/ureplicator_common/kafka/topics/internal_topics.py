"""Creation of a topic by the first process that needs it."""

from __future__ import annotations

from collections.abc import Mapping

from kafka.protocol.admin import CreateTopicsRequest, CreateTopicsResponse

from ureplicator_common.kafka import TopicRefused
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.errors import ErrorCode, error_name
from ureplicator_common.model import BROKER_DEFAULT_REPLICATION

VERSION = 5
"""The first that takes the brokers' default for the replication factor is 4."""
TIMEOUT_MS = 3_000


def create_topic(
    client: ClusterClient,
    topic: str,
    *,
    partitions: int,
    configs: Mapping[str, str],
    replication_factor: int = BROKER_DEFAULT_REPLICATION,
) -> None:
    """Create a topic, which may exist already. Raises TopicRefused, ClusterUnavailable."""
    codes: list[str] = []
    view = client.view([topic])
    for broker in view.brokers.values():
        request = _request(topic, partitions, configs, replication_factor)
        response = client.call(broker, request, CreateTopicsResponse)
        (row,) = response.topics
        if row.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return
        codes.append(f"{error_name(row.error_code)} {row.error_message or ''}".strip())
        if row.error_code != ErrorCode.NOT_CONTROLLER:
            break
    reason = ", ".join(codes) or "no broker is known"
    raise TopicRefused(f"topic {topic} cannot be created: {reason}")


def _request(
    topic: str, partitions: int, configs: Mapping[str, str], replication_factor: int
) -> CreateTopicsRequest:
    topics = CreateTopicsRequest.CreatableTopic
    rows = topics.CreatableTopicConfig
    return CreateTopicsRequest(
        version=VERSION,
        topics=[
            topics(
                name=topic,
                num_partitions=partitions,
                replication_factor=replication_factor,
                assignments=[],
                configs=[rows(name=name, value=value) for name, value in configs.items()],
            )
        ],
        timeout_ms=TIMEOUT_MS,
        validate_only=False,
    )
