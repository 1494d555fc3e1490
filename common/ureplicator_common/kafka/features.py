"""Features that a cluster has finalized: all its brokers follow them (KIP-584)."""

from __future__ import annotations

from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from ureplicator_common.kafka.client import CLIENT_ID, ClusterClient

TRANSACTION_FEATURE = "transaction.version"
FEATURES_VERSION = 3
"""The first version of ApiVersions that has the features of the cluster."""
CLIENT_VERSION = "1"


def finalized(client: ClusterClient, feature: str) -> int:
    """Level of a feature; 0 if the cluster has none. Raises ClusterUnavailable."""
    response = client.call_any(
        lambda: ApiVersionsRequest(
            version=FEATURES_VERSION,
            client_software_name=CLIENT_ID,
            client_software_version=CLIENT_VERSION,
        ),
        ApiVersionsResponse,
    )
    levels: dict[str, int] = {
        each.name: each.max_version_level for each in response.finalized_features or ()
    }
    return levels.get(feature, 0)
