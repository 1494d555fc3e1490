"""Fencing of data that is sent without transactions: afterwards no batch of the former producer is appended.

A producer id that belongs to a transactional id serves for plain idempotent batches, too. A transaction of
that id without data writes one control record into each of its partitions, with a newer epoch of the
producer. Behind it a leader refuses what is sent under the former epoch (INVALID_PRODUCER_EPOCH), so the log
of that producer is final before the record. The record is written after the response to EndTxn: whoever
counts what lies before it waits until it is read.

The protocol of the former transactions (KIP-98) is used with every broker: there the epoch of the record is
that of the initialisation.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.transactions.coordinator_requests import (
    COORDINATOR_TIMEOUT_S,
    Fenced,
)
from ureplicator_common.kafka.transactions.fencing import retry_delays
from ureplicator_common.kafka.transactions.position_rows import TargetPartition
from ureplicator_common.kafka.transactions.producers import Producer, init_producer
from ureplicator_common.kafka.transactions.transaction_requests import TransactionRequests


def fence_data(
    client: ClusterClient, transactional_id: str, partitions: Iterable[TargetPartition]
) -> tuple[Producer, dict[TargetPartition, str]]:
    """The producer of the control records, and the partitions that were refused, with the reasons.

    Raises ClusterUnavailable. Several may fence the same id at the same time, each for its partitions: who
    initialises it aborts what another one has begun, under a newer epoch, which fences as well.
    """
    wanted = list(partitions)
    requests = TransactionRequests(client, group="", transactional_id=transactional_id)
    deadline_s = client.deadline_s(COORDINATOR_TIMEOUT_S)
    for delay_s in retry_delays():
        producer = init_producer(client, transactional_id)
        try:
            refused = requests.add_partitions(producer, wanted)
        except Fenced as error:
            if client.now_s() + delay_s > deadline_s:
                raise ClusterUnavailable(f"not fenced: {error}", delay_s=delay_s) from error
            client.pause(delay_s)
            continue
        if len(refused) < len(wanted):
            with suppress(Fenced):
                requests.end(producer, commit=False)
        return producer, refused
    raise AssertionError("the delays have no end")
