"""Reading of settings of brokers, and of what they say about producers (`producer_memory`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka.protocol.admin import DescribeConfigsRequest, DescribeConfigsResponse

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import Broker, ClusterClient
from ureplicator_common.kafka.errors import refusal
from ureplicator_common.kafka.transactions.producer_memory import (
    DEFAULTS_S,
    ProducerMemory,
    memory_of,
)

DESCRIBE_CONFIGS_VERSION, BROKER_RESOURCE = 1, 4


def read_memory(client: ClusterClient) -> ProducerMemory:
    """Settings of all brokers that respond, together. Raises ClusterUnavailable if none is known."""
    found: list[Mapping[str, str]] = []
    unread = ""
    for broker in client.view(()).brokers.values():
        try:
            found.append(broker_settings(client, broker, tuple(DEFAULTS_S)))
        except ClusterUnavailable as error:
            unread = str(error)
    return memory_of(found, unread)


def broker_settings(
    client: ClusterClient, broker: Broker, names: Sequence[str]
) -> Mapping[str, str]:
    """The named settings, as far as a broker has them. Raises ClusterUnavailable."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=BROKER_RESOURCE,
        resource_name=str(broker.node_id),
        configuration_keys=list(names),
    )
    request = DescribeConfigsRequest(
        version=DESCRIBE_CONFIGS_VERSION, resources=[resource], include_synonyms=False
    )
    (result,) = client.call(broker, request, DescribeConfigsResponse).results
    if result.error_code:
        reason = refusal(result.error_code, "DESCRIBE_CONFIGS on the cluster", client.name)
        raise ClusterUnavailable(f"{broker}: {reason}")
    return {setting.name: setting.value for setting in result.configs if setting.value}
