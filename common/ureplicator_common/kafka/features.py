"""Features of brokers: versions of requests, and transactions with their finalized feature (KIP-584)."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass

from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import (
    CLIENT_ID,
    BlockingConnection,
    Broker,
    ClusterClient,
    Security,
)
from ureplicator_common.kafka.transactions.producers import TransactionProtocol

API_VERSIONS_VERSION = 0
TRANSACTION_FEATURE = "transaction.version"
TRANSACTION_REQUESTS = {
    22: "InitProducerId",
    25: "AddOffsetsToTxn",
    26: "EndTxn",
    28: "TxnOffsetCommit",
}
"""Requests by API key. Commits of positions need all of them, with either delivery."""
DESCRIBE_TRANSACTIONS = 65
"""API key of DescribeTransactions (KIP-664, Kafka 3.0)."""
FEATURES_VERSION = 3
"""The first version of ApiVersions that has the features of the cluster."""
CLIENT_VERSION = "1"


def accepted_versions(client: ClusterClient, broker: Broker) -> Mapping[int, int]:
    """Highest version of each request that a broker accepts, by API key. Raises ClusterUnavailable."""
    request = ApiVersionsRequest(version=API_VERSIONS_VERSION)
    reply = client.call(broker, request, ApiVersionsResponse)
    return {row.api_key: row.max_version for row in reply.api_keys}


def newest_versions(
    broker: Broker,
    connection: socket.socket,
    *,
    security: Security,
    timeout_s: float,
    client_id: str = CLIENT_ID,
) -> Mapping[int, int]:
    """Highest version of each request that a broker accepts, by API key; for a fresh connection.

    `security`: the connection was opened with it. Raises ClusterUnavailable; the connection is closed then.
    """
    request = ApiVersionsRequest(version=API_VERSIONS_VERSION)
    channel = BlockingConnection(
        broker, connection, client_id=client_id, where=security.where(broker)
    )
    reply = channel.call(request, ApiVersionsResponse, security.timeout_s(timeout_s))
    return {row.api_key: row.max_version for row in reply.api_keys}


@dataclass(frozen=True, slots=True)
class TransactionSupport:
    """Transactions of a cluster, until its next upgrade. `described`: brokers tell the state of one."""

    protocol: TransactionProtocol
    described: bool


def transaction_support(client: ClusterClient) -> TransactionSupport:
    """Protocol that all brokers follow (KIP-890, `transaction.version`), and what they tell.

    Raises ClusterUnavailable, also for a cluster without transactions.
    """
    response = client.call_any(
        lambda: ApiVersionsRequest(
            version=FEATURES_VERSION,
            client_software_name=CLIENT_ID,
            client_software_version=CLIENT_VERSION,
        ),
        ApiVersionsResponse,
    )
    known = {row.api_key for row in response.api_keys}
    missing = [name for key, name in TRANSACTION_REQUESTS.items() if key not in known]
    if missing:
        raise ClusterUnavailable(f"no transactions: the brokers do not know {', '.join(missing)}")
    levels: dict[str, int] = {
        row.name: row.max_version_level for row in response.finalized_features or ()
    }
    newest = levels.get(TRANSACTION_FEATURE, 0) >= TransactionProtocol.IMPLICIT
    protocol = TransactionProtocol.IMPLICIT if newest else TransactionProtocol.ADDED
    return TransactionSupport(protocol, DESCRIBE_TRANSACTIONS in known)
