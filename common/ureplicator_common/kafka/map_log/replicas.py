"""In-sync replicas of the map's partition, and how many its brokers require.

While fewer are in sync than `min.insync.replicas`, a leader refuses rows (NOT_ENOUGH_REPLICAS), and the
marker that ends their transaction, too: the transactional id waits until they are back. So the map takes part
in no transaction then. A requirement above the number of replicas counts as that number, as with brokers from
3.7 on (`Partition.effectiveMinIsr`).
"""

from __future__ import annotations

from kafka.protocol.admin import DescribeConfigsResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import Broker, ClusterClient
from ureplicator_common.kafka.log_offsets import configs_request

SETTING = "min.insync.replicas"
METADATA_VERSION = 8


def required_in_sync(client: ClusterClient, leader: Broker, topic: str) -> int:
    """Replicas that must be in sync, the leader among them. 1 if the cluster does not show the setting.

    Raises ClusterUnavailable.
    """
    request = configs_request([topic], [SETTING])
    (found,) = client.call(leader, request, DescribeConfigsResponse).results
    return int(next((setting.value for setting in found.configs if setting.name == SETTING), 1))


def require_in_sync(client: ClusterClient, leader: Broker, topic: str, required: int) -> None:
    """Raises ClusterUnavailable if fewer are in sync, as the leader knows them."""
    topics = [MetadataRequest.MetadataRequestTopic(name=topic)]
    request = MetadataRequest(
        version=METADATA_VERSION, topics=topics, allow_auto_topic_creation=False
    )
    (found,) = client.call(leader, request, MetadataResponse).topics
    for row in found.partitions:
        needed = min(required, len(row.replica_nodes))
        if len(row.isr_nodes) < needed:
            raise ClusterUnavailable(
                f"topic {topic}: {len(row.isr_nodes)} of {len(row.replica_nodes)} replicas are in sync,"
                f" {SETTING} requires {needed}",
                delay_s=0.2,
            )
