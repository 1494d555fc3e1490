"""Rules of producing: versions and sizes of requests, and what the codes of brokers mean. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ureplicator_common.kafka.errors import TOO_FEW_IN_SYNC, ErrorCode, error_name
from ureplicator_worker.batches.merge_rules import FAR_MERGED_BYTES
from ureplicator_worker.copier.net.connection import BrokerConnection
from ureplicator_worker.copier.net.connections import Connections
from ureplicator_worker.copier.net.line_rate import MIN_BYTES
from ureplicator_worker.copier.raw.lane_transaction import LaneTransaction, Leading
from ureplicator_worker.copier.raw.partition import SendSide, TopicPartition
from ureplicator_worker.wire.produce_api import API_KEY, NAMES, Produced, version_for

MAX_IN_FLIGHT_REQUESTS = 5
REQUEST_BYTES = 4 << 20
TRANSACTION_LOST = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
"""The transaction can only be aborted: the coordinator has ended it, or another process has."""
UNVERIFIED = "verify the partition has been added to the transaction"
"""Text in the message of NOT_ENOUGH_REPLICAS where it stands for an error between a leader and the
coordinator."""
TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
RECORD_FAULTS = TOO_LARGE | {ErrorCode.INVALID_RECORD}
"""The fault is in the records, so they may be skipped. What is a fault of the topic or the broker may
concern every record of a topic, and is none: a lost permission to write, an unsupported codec, a message
format without what the batches use, or limits for timestamps, which are shorter by default on Kafka 4."""
PERMANENT_FAULTS = RECORD_FAULTS | {
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
}
"""No retry brings the same bytes in before an operator has changed the topic."""


def leading(connections: Connections, node_id: int, target: TopicPartition) -> Leading:
    """`node_id`: the broker that the partition is sent to."""
    return Leading(node_id, connections.leader(*target).epoch, connections.lost[node_id])


def may_send(send: SendSide, transaction: LaneTransaction) -> bool:
    return transaction.may_send(send) if send.transactional else not send.needs_producer


def is_lost(produced: Produced, *, head: bool) -> bool:
    """True if the transaction can only be aborted. A batch behind a refused one is merely out of order."""
    if produced.error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        return head
    return produced.error in TRANSACTION_LOST


def retry_reason(produced: Produced, *, leader: int) -> str:
    """Reason for sending a batch again. A leader that waits for its followers is well itself."""
    code, name = produced.error, error_name(produced.error)
    if code == ErrorCode.CONCURRENT_TRANSACTIONS:
        return f"the coordinator still ends the transaction before: {name}"
    if code == ErrorCode.NOT_ENOUGH_REPLICAS and UNVERIFIED in produced.message:
        return f"broker {leader} cannot reach the transaction's coordinator: {produced.message}"
    if code in TOO_FEW_IN_SYNC:
        return f"broker {leader} waits for in-sync replicas: {name}"
    return name


def produce_version(
    connection: BrokerConnection,
    partitions: Iterable[SendSide],
    transaction: LaneTransaction | None,
) -> int:
    newest = connection.newest.get(API_KEY, NAMES)
    return version_for(
        newest,
        has_ids=all(send.keys.has_id for send in partitions),
        protocol=transaction.protocol if transaction else None,
    )


def request_limit_bytes(connection: BrokerConnection) -> int:
    """Size of the next request; 0 while none may be sent.

    The socket must have accepted the former ones, so that what waits here is not yet tied to a request.
    A request takes a part of what may be under way: the next one is sent while responses are due.
    """
    progress = connection.send_progress
    full = progress.under_way_bytes >= progress.limit_bytes and connection.in_flight
    if connection.wants_write or connection.in_flight >= MAX_IN_FLIGHT_REQUESTS or full:
        return 0
    return min(REQUEST_BYTES, max(MIN_BYTES, progress.limit_bytes // 4))


def far_limit_bytes(connection: BrokerConnection) -> int:
    """Most bytes of a batch that is merged for a far broker: those that the line carries in due time. 0 for a
    near one."""
    far = connection.round_trip.is_far
    return min(FAR_MERGED_BYTES, connection.send_progress.limit_bytes) if far else 0
