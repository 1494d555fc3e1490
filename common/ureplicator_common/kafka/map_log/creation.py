"""Creation of the map's topic by the copier that needs it first."""

from __future__ import annotations

from ureplicator_common.kafka import TopicRefused
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.map_log import MapRefused
from ureplicator_common.kafka.topics.internal_topics import create_topic
from ureplicator_common.offset_map.topic import CONFIGS, PARTITIONS


def create_map_topic(client: ClusterClient, topic: str, *, replication_factor: int) -> None:
    """Create the topic with as many replicas as target topics of the route. It may exist already.

    Raises MapRefused, ClusterUnavailable.
    """
    try:
        create_topic(
            client,
            topic,
            partitions=PARTITIONS,
            configs=CONFIGS,
            replication_factor=replication_factor,
        )
    except TopicRefused as error:
        raise MapRefused(str(error)) from error
