"""Error codes of the Kafka protocol that are handled by name.

Request versions are the highest that brokers 2.8 have and brokers 4.x still accept (KIP-896), so one fixed
version each serves all supported brokers without negotiation, except for Fetch and Produce: see
`fetch_api` and `produce_api` in `ureplicator_worker.wire`. The requests of
transactions follow the protocol that the cluster has finalized: see `positions`.
Source of the codes: https://kafka.apache.org/protocol.html#protocol_error_codes
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum


class ErrorCode(IntEnum):
    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    TOPIC_ALREADY_EXISTS = 36
    NOT_CONTROLLER = 41
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    UNKNOWN_PRODUCER_ID = 59
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    OFFSET_NOT_AVAILABLE = 78
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    TRANSACTION_ABORTABLE = 120


COORDINATOR_MOVED = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Find the coordinator again, then retry."""

WAIT_FOR_TRANSACTION = frozenset(
    {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNSTABLE_OFFSET_COMMIT}
)
"""A former transaction is being ended: retry."""

LEADER_MOVED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Refresh the metadata, then retry at the leader."""

TOO_FEW_IN_SYNC = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)
"""The leader of a partition waits for its followers, or has too few of them."""

RETRIABLE_PRODUCE = (LEADER_MOVED | TOO_FEW_IN_SYNC) | {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
"""Errors after which the same bytes may be sent again; the broker recognises a batch that was appended
after all."""

FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
"""Another process initialised the transactional id later."""

OF_A_PARTITION = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""Errors of a single partition in the response of a coordinator. Any other one stands beside each partition,
too, and concerns the transaction, the group or the coordinator."""

DENIED = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""The principal lacks a right; which one depends on the request:
https://kafka.apache.org/documentation/#operations_resources_and_protocols"""

Rights = Mapping[int, str]
"""Error code -> the right whose lack it means in the response to a request."""


def named_cluster(name: str, bootstrap: str) -> str:
    """A cluster in reasons: by its name in the configuration, or by its addresses where none is given."""
    return f"cluster {name}" if name else f"the cluster at {bootstrap}"


def refusal(code: int, right: str, cluster: str) -> str:
    """Name of an error code; one of `DENIED` with the missing right, as in "READ on topic orders"."""
    name = error_name(code)
    if code not in DENIED or not right:
        return name
    return f"{name}: the principal lacks {right} at {cluster}"


def error_name(code: int) -> str:
    """Name of a code in Kafka's documentation, or its number."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return _library_name(code)


def _library_name(code: int) -> str:
    from kafka.errors import for_code  # imported only for a code without a name above

    name = getattr(for_code(code), "message", "")
    return str(name) if name else f"error {code}"
