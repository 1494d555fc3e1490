"""InitProducerId on many transactional ids at once: afterwards no former holder commits under them.

All requests to find the coordinators go out together, then all InitProducerId requests of each coordinator:
two round trips and one per coordinator, however many ids there are. An id whose coordinator moves, does not
respond, or still ends a former transaction is tried again until the deadline; it delays no other id.

Ids that many slots fence at the same moment (the leader's own id, at the start of a large topic) are refused
with CONCURRENT_TRANSACTIONS while another initialisation is written. So the delays grow, and are spread.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from kafka.protocol.producer import InitProducerIdRequest, InitProducerIdResponse

from ureplicator_common.backoff import Backoff
from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import MIN_SILENCE_S, TRANSACTION_COORDINATOR, ClusterClient
from ureplicator_common.kafka.errors import (
    COORDINATOR_MOVED,
    FENCED,
    WAIT_FOR_TRANSACTION,
    ErrorCode,
    error_name,
    refusal,
)
from ureplicator_common.model import TRANSACTION_TIMEOUT_MS
from ureplicator_common.portions import portions

RETRY_DELAY_S = 0.02
RETRY_DELAYS_S = tuple(RETRY_DELAY_S * times for times in (1, 2, 4, 8, 16, 32))
FENCE_S = 15.0
PIPELINED = 100
"""Requests sent before the first response is read: they fit into the buffers of any socket."""


def fence_ids(client: ClusterClient, transactional_ids: Sequence[str]) -> None:
    """Raises ClusterUnavailable."""
    waiting = list(dict.fromkeys(transactional_ids))
    deadline_s = client.deadline_s(FENCE_S)
    for delay_s in retry_delays():
        reasons: dict[str, str] = {}
        for portion in portions(waiting, PIPELINED):
            reasons |= _fence(client, portion)
        waiting = list(reasons)
        if not waiting:
            return
        if client.now_s() + MIN_SILENCE_S > deadline_s:
            raise ClusterUnavailable(f"{waiting[0]}: {reasons[waiting[0]]}", delay_s=RETRY_DELAY_S)
        client.pause(delay_s)


def _fence(client: ClusterClient, ids: Sequence[str]) -> dict[str, str]:
    """Ids that are not fenced yet, with the reason. Raises ClusterUnavailable if one is refused."""
    led, reason = client.coordinators(ids, TRANSACTION_COORDINATOR)
    found = {id for some in led.values() for id in some}
    reasons = {id: reason for id in ids if id not in found}
    for broker, some in sorted(led.items(), key=lambda item: client.has_failed(item[0])):
        requests = [init_request(id) for id in some]
        try:
            replies = client.call_all(broker, requests, InitProducerIdResponse)
        except ClusterUnavailable as error:
            reasons |= dict.fromkeys(some, str(error))
            continue
        for id, reply in zip(some, replies, strict=True):
            if reply.error_code != ErrorCode.NONE:
                reasons[id] = _temporary(client, id, reply.error_code)
    return reasons


def _temporary(client: ClusterClient, id: str, code: int) -> str:
    """Name of an error that a retry may pass. Raises ClusterUnavailable for any other."""
    if code in COORDINATOR_MOVED:
        client.forget_coordinator(id, TRANSACTION_COORDINATOR)
    elif code not in WAIT_FOR_TRANSACTION | FENCED:
        right = f"WRITE on transactional id {id}"
        raise ClusterUnavailable(f"{id}: {refusal(code, right, client.name)}")
    return error_name(code)


def init_request(transactional_id: str | None) -> InitProducerIdRequest:
    """None: a plain idempotent producer."""
    return InitProducerIdRequest(
        version=4,
        transactional_id=transactional_id,
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        producer_id=-1,
        producer_epoch=-1,
    )


def retry_delays() -> Iterator[float]:
    """Growing, and spread, without end."""
    backoff = Backoff(RETRY_DELAYS_S)
    while True:
        backoff = backoff.failed()
        yield backoff.delay_s * (0.5 + random.random() / 2)  # noqa: S311  # not secret
