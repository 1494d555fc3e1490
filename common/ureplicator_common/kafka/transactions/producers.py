"""Producer ids with their epochs, and the protocol of a cluster's transactions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from kafka.protocol.producer import InitProducerIdResponse

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import TRANSACTION_COORDINATOR, Broker, ClusterClient
from ureplicator_common.kafka.errors import ErrorCode, refusal
from ureplicator_common.kafka.transactions.coordinator_requests import (
    Attempt,
    Fenced,
    until_accepted,
)
from ureplicator_common.kafka.transactions.fencing import RETRY_DELAY_S, init_request


class TransactionProtocol(IntEnum):
    """Joining of a transaction by a partition: by a request (KIP-98), or its first batch (KIP-890)."""

    ADDED = 1
    IMPLICIT = 2


@dataclass(frozen=True, slots=True)
class Producer:
    """Producer id and epoch that a broker assigned, to a transactional id or to none.

    Each transaction of the second protocol has an epoch of its own, and ids change when epochs run out, so
    only both together name a producer.
    """

    id: int
    epoch: int
    protocol: TransactionProtocol = TransactionProtocol.ADDED


def init_producer(client: ClusterClient, transactional_id: str | None) -> Producer:
    """InitProducerId: a new epoch of a transactional id, or a new id of a plain idempotent producer.

    Waits out a former transaction that is being ended. Raises ClusterUnavailable.
    """

    def attempt(coordinator: Broker) -> Attempt[Producer]:
        response = client.call(coordinator, init_request(transactional_id), InitProducerIdResponse)
        return {response.error_code}, Producer(response.producer_id, response.producer_epoch)

    if transactional_id is None:
        return _init_plain(client)
    try:
        return until_accepted(
            client,
            key=transactional_id,
            kind=TRANSACTION_COORDINATOR,
            attempt=attempt,
            repeatable=True,
            rights={
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
                    f"WRITE on transactional id {transactional_id}"
                )
            },
        )
    except Fenced as error:  # two initialisations at once: one ended a transaction of the other
        raise ClusterUnavailable(f"not initialised: {error}", delay_s=RETRY_DELAY_S) from error


def _init_plain(client: ClusterClient) -> Producer:
    """Any broker assigns ids to producers without a transactional id."""
    response = client.call_any(lambda: init_request(None), InitProducerIdResponse)
    if response.error_code:
        reason = refusal(response.error_code, "IDEMPOTENT_WRITE on the cluster", client.name)
        raise ClusterUnavailable(f"no producer id: {reason}", delay_s=0.2)
    return Producer(response.producer_id, response.producer_epoch)
