"""Control records by transactions that hold no data: one in each partition that takes part.

    initialise --> add partitions --> end (abort) ==> records at the leaders ==> initialise, for the next one
                                                                                 (waits for the records)

Any principal that may write to the topics, and use the transactional id, may do so. WriteTxnMarkers, with
which brokers write such records on request, needs ALTER on the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.client import ClusterClient
from ureplicator_common.kafka.transactions.coordinator_requests import Fenced
from ureplicator_common.kafka.transactions.markers import wait_for_markers
from ureplicator_common.kafka.transactions.position_rows import TargetPartition
from ureplicator_common.kafka.transactions.producers import Producer, init_producer
from ureplicator_common.kafka.transactions.transaction_requests import TransactionRequests

ATTEMPT_S = 2.0
"""Limit of a transaction. Whoever calls has other work."""


class ControlRecords:
    """Transactions of one id. `described`: brokers tell the state of a transaction (Kafka 3.0), which shows
    sooner that its records are there."""

    def __init__(self, client: ClusterClient, transactional_id: str, *, described: bool) -> None:
        self._client = client
        self._id = transactional_id
        self._described = described
        self._requests = TransactionRequests(client, group="", transactional_id=transactional_id)
        self._producer: Producer | None = None

    def write(self, partitions: Iterable[TargetPartition]) -> dict[TargetPartition, str]:
        """Return when each partition has one more, with those that were refused and the reasons.

        Raises ClusterUnavailable: some may have one, or get it later, until `settle` returns.
        """
        wanted = list(partitions)
        with self._client.within(ATTEMPT_S):
            producer, self._producer = self._producer, None
            producer = producer or init_producer(self._client, self._id)
            try:
                refused = self._requests.add_partitions(producer, wanted)
                if len(refused) < len(wanted):
                    self._requests.end(producer, commit=False)
                    self._wait()
            except Fenced as error:  # the coordinator has ended the transaction by itself
                raise ClusterUnavailable(str(error)) from error
            self._producer = init_producer(self._client, self._id)
        return refused

    def settle(self) -> None:
        """Return when all that was begun is written, or never will be. Raises ClusterUnavailable."""
        with self._client.within(ATTEMPT_S):
            self._producer = init_producer(self._client, self._id)

    def _wait(self) -> None:
        if self._described:
            with suppress(ClusterUnavailable):
                wait_for_markers(self._client, self._id, round_trip_s=0.0)
