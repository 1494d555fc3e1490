"""Creation of the map's topic by the copier that needs it first."""

from __future__ import annotations

from kafka.protocol.admin import CreateTopicsRequest, CreateTopicsResponse

from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.errors import ErrorCode, error_name
from ureplicator_common.kafka.map_log import MapRefused
from ureplicator_common.model import BROKER_DEFAULT_REPLICATION
from ureplicator_common.offset_map.topic import CONFIGS, PARTITIONS

VERSION = 5
"""The first that takes the brokers' default for the replication factor is 4."""
TIMEOUT_MS = 3_000


def create_map_topic(client: ClusterClient, topic: str) -> None:
    """It may exist already. Raises MapRefused, ClusterUnavailable."""
    codes: list[str] = []
    view = client.view([topic])
    for broker in view.brokers.values():
        response = client.call(broker, _request(topic), CreateTopicsResponse)
        (row,) = response.topics
        if row.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return
        codes.append(f"{error_name(row.error_code)} {row.error_message or ''}".strip())
        if row.error_code != ErrorCode.NOT_CONTROLLER:
            break
    raise MapRefused(f"topic {topic} cannot be created: {', '.join(codes) or 'no broker is known'}")


def _request(topic: str) -> CreateTopicsRequest:
    topics = CreateTopicsRequest.CreatableTopic
    configs = topics.CreatableTopicConfig
    return CreateTopicsRequest(
        version=VERSION,
        topics=[
            topics(
                name=topic,
                num_partitions=PARTITIONS,
                replication_factor=BROKER_DEFAULT_REPLICATION,
                assignments=[],
                configs=[configs(name=name, value=value) for name, value in CONFIGS.items()],
            )
        ],
        timeout_ms=TIMEOUT_MS,
        validate_only=False,
    )
