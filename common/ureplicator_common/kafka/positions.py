"""Positions: where they are stored, and why only the owner of a partition can move them.

**The store.** The position of a source partition is the offset of a consumer group on the *target*
(KIP-656's "fake group", which no consumer ever joins), stored under the target topic's name and the
same partition number. It is the *next* source offset to copy. Stored with it are the source's leader
epoch of the last copied batch, and a line of metadata (`provenance`): cluster and topic that it belongs
to, its writer, and the end of the target's log. Data and position are on the same cluster, so a position
cannot outlive its data.

**The rule: who can commit, owns.** A plain OffsetCommit to a group without members is accepted from any
client, even from a suspended worker that resumes. So positions are committed in transactions, even where
the data is not: each slot of a worker has a transactional id, and InitProducerId on an id permanently
ends the ability of every older holder to commit under it (its producer epoch is refused). Taking a
partition over means initialising ("fencing") every id under which a former owner may still commit it.

**The order.** A copier, at its start and at each restart of this order, does:

    (1) InitProducerId on its own id             (`PositionStore.initialise`)
    (2) request a proof from its driver that it still is the owner, read in ZooKeeper *after* (1)
    (3) InitProducerId on each id to be fenced   (`PositionStore.fence`)
    (4) read the positions, stable ones only     (`PositionStore.read`)
    (5) copy

Let O be the older owner and N the newer one, and let N's ownership be written in ZooKeeper (W) before N
begins. If O's proof (2) is read after W, O sees that it lost the partition and releases it. If it is read
before W, then O's own initialisation (1) came before its (2), hence before W, hence before N's (3),
which therefore fences it. There is no third case: O cannot commit after N's (4), so the position that
N read stays true. Without (2), a resumed O whose commit was refused would initialise its id again and
be an owner again; with (1) after (2) it could do so between N's (3) and N's own first commit.

**After an unknown outcome, restart the order.** If a commit got no response, or was aborted, its requests
may still be in flight. With EndTxn up to version 4 a late request of an aborted transaction is taken into
the next one (KIP-890). So the connections are closed and the order above starts again at (1).

At least once, a transaction is short and holds offsets only: AddOffsetsToTxn, TxnOffsetCommit, EndTxn.
Of topics with a handler or a query, exactly once, it holds the data that was sent since the last
one, too, under the same producer, so fencing an
id also ends its data. From Kafka 4 on (KIP-890, feature `transaction.version` 2) partitions and groups join
with their first request, and each transaction has an epoch of its own. Reading is an OffsetFetch of our own:
the client library in use returns garbage for the metadata.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kafka.protocol.consumer import (
    OffsetFetchRequest,
    OffsetFetchResponse,
)

from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import (
    ClusterUnavailable,
    PartitionUnavailable,
    Position,
    PositionOrError,
)
from ureplicator_common.kafka.client import (
    GROUP_COORDINATOR,
    Broker,
    ClusterClient,
)
from ureplicator_common.kafka.errors import OF_A_PARTITION, ErrorCode, refusal
from ureplicator_common.kafka.features import TransactionSupport, transaction_support
from ureplicator_common.kafka.transactions.control_records import ControlRecords
from ureplicator_common.kafka.transactions.coordinator_requests import Attempt, until_accepted
from ureplicator_common.kafka.transactions.data_fences import fence_data
from ureplicator_common.kafka.transactions.fencing import fence_ids
from ureplicator_common.kafka.transactions.markers import wait_for_markers
from ureplicator_common.kafka.transactions.position_rows import TargetPartition as TargetPartition
from ureplicator_common.kafka.transactions.producers import (
    Producer,
    TransactionProtocol,
    init_producer,
)
from ureplicator_common.kafka.transactions.transaction_requests import TransactionRequests
from ureplicator_common.model import data_transactional_id

COMMAND_S = 5.0
"""Limit of a commit with all its steps, or of an initialisation: the release of a partition waits for
what its copier has begun. With the drain before it that must stay below the time after which a worker
counts as one that does not release (`controller.handover_timeout_s`)."""

PROTOCOL_CHECK_S = 30.0
"""An upgrade of the cluster is found within this time, by one small request of each slot."""

logger = logging.getLogger(__name__)


class CommitRefused(OperatingError):
    """The coordinator refused some partitions (no target topic, no permission); nothing was committed."""

    def __init__(self, refused: Mapping[TargetPartition, str]) -> None:
        super().__init__(f"commit refused: {dict(refused)}")
        self.refused = refused


class PositionStore:
    """One slot's access to the positions of one route. Belongs to one thread."""

    def __init__(self, client: ClusterClient, *, group: str, transactional_id: str) -> None:
        self._client = client
        self._group = group
        self.transactional_id = self._transactional_id = transactional_id
        self._requests = TransactionRequests(client, group=group, transactional_id=transactional_id)
        self._producer: Producer | None = None
        self._latch_at_s = 0.0
        self._described = False
        self._end_s = 0.0
        """Time that the last EndTxn took."""

    @property
    def producer(self) -> Producer:
        """The producer of the next commit, and of the data in its transaction."""
        assert self._producer is not None, "no producer before initialise()"
        return self._producer

    def initialise(self) -> None:
        """Step (1), on fresh connections. It aborts a transaction that is open. Raises ClusterUnavailable."""
        self._producer = None
        self._client.reset()
        with self._client.within(COMMAND_S):
            support = transaction_support(self._client)
            found = init_producer(self._client, self._transactional_id)
            self._producer = self._latched(found, support)

    def add_partitions(self, partitions: Iterable[TargetPartition]) -> dict[TargetPartition, str]:
        """Have data partitions take part in the open transaction. Raises Fenced, ClusterUnavailable.

        Returns those that were refused, with the reasons. With the implicit protocol a partition takes part
        with its first batch.
        """
        producer = self.producer
        if producer.protocol is TransactionProtocol.IMPLICIT:
            return {}
        with self._client.within(COMMAND_S):
            return self._requests.add_partitions(producer, partitions)

    def data_producer(self, name: str) -> Producer:
        """A producer for data without transactions. The same `name` again: the same id, which its
        coordinator keeps for longer then, under a newer epoch. Raises ClusterUnavailable."""
        with self._client.within(COMMAND_S):
            return init_producer(self._client, data_transactional_id(self._group, name))

    def fence_data(
        self, name: str, partitions: Iterable[TargetPartition]
    ) -> tuple[Producer, dict[TargetPartition, str]]:
        """See `transactions.data_fences`."""
        with self._client.within(COMMAND_S):
            id = data_transactional_id(self._group, name)
            return fence_data(self._client, id, partitions)

    def control_records(self, name: str) -> ControlRecords:
        """Transactions without data; `name`: of a producer that is never used for data."""
        id = data_transactional_id(self._group, name)
        return ControlRecords(self._client, id, described=self._described)

    def fence(self, transactional_ids: Sequence[str]) -> None:
        """Step (3): after it no other process commits under these ids. Raises ClusterUnavailable."""
        with self._client.within(COMMAND_S):
            fence_ids(self._client, transactional_ids)

    def read(
        self, wanted: Mapping[str, Sequence[int]]
    ) -> Mapping[TargetPartition, PositionOrError]:
        """Step (4): target topic -> partitions in; offset -1 where none is stored, or the partition's error.

        Raises ClusterUnavailable, also while a transaction on one of them is open.
        """
        with self._client.within(COMMAND_S):
            return read_positions(self._client, self._group, wanted)

    def commit(
        self,
        positions: Mapping[TargetPartition, Position],
        *,
        optional: Collection[TargetPartition] = (),
    ) -> dict[TargetPartition, str]:
        """All of them, or none; of the `optional` ones, whose data is not in the transaction, those that the
        coordinator takes. It refuses each partition by itself, and keeps the others.

        Returns the optional ones that were refused, with the reasons. Raises Fenced, CommitRefused,
        ClusterUnavailable. After any of these the outcome may be unknown: the order above must start again,
        and until then this store refuses to commit.
        """
        assert self._producer is not None, "commit before initialise()"
        producer, self._producer = self._producer, None
        with self._client.within(COMMAND_S):
            if producer.protocol is TransactionProtocol.ADDED:
                self._requests.add_group(producer)
            refused = self._requests.add_positions(producer, positions)
            if refused.keys() - set(optional):
                self._abort(producer)
                raise CommitRefused(refused)
            began_s = self._client.now_s()
            following = self._requests.end(producer, commit=refused.keys() != positions.keys())
            self._end_s = self._client.now_s() - began_s
            self._producer = self._checked(following)
        return refused

    def wait_for_markers(self) -> None:
        """Wait for those of the last commit, before data is sent in the next transaction."""
        if not self._described:
            return
        try:
            wait_for_markers(self._client, self._transactional_id, round_trip_s=self._end_s)
        except ClusterUnavailable as error:  # the commit is none the less a success
            logger.info("%s: its state is not known: %s", self._transactional_id, error)
            self._described = False  # until the next check: a coordinator may be an older broker

    def _checked(self, producer: Producer) -> Producer:
        """Producer of the next transaction, with the protocol that holds to its end."""
        if self._client.now_s() < self._latch_at_s:
            return producer
        try:
            return self._latched(producer, transaction_support(self._client))
        except ClusterUnavailable as error:  # the commit is none the less a success
            logger.info("%s: protocol not read: %s", self._transactional_id, error)
            self._latch_at_s = self._client.now_s() + PROTOCOL_CHECK_S
            return producer

    def _latched(self, producer: Producer, support: TransactionSupport) -> Producer:
        self._latch_at_s = self._client.now_s() + PROTOCOL_CHECK_S
        self._described = support.described
        return replace(producer, protocol=support.protocol)

    def _abort(self, producer: Producer) -> None:
        """Abort at once: it may take long until the id is initialised again."""
        try:
            self._requests.end(producer, commit=False)
        except OperatingError as error:
            logger.info("%s: left to the next initialisation: %s", self._transactional_id, error)


def read_positions(
    client: ClusterClient, group: str, wanted: Mapping[str, Sequence[int]], *, stable: bool = True
) -> Mapping[TargetPartition, PositionOrError]:
    """See `PositionStore.read`. A coordinator that does not know the group has no position of it: Kafka's
    brokers respond with none, others with GROUP_ID_NOT_FOUND. Not `stable`, for display: the last commit,
    also while another one is open, and a cluster that does not respond is reported at once."""
    rights: dict[int, str] = {ErrorCode.GROUP_AUTHORIZATION_FAILED: f"DESCRIBE on group {group}"}

    def attempt(coordinator: Broker) -> Attempt[dict[TargetPartition, PositionOrError]]:
        response = client.call(
            coordinator, _fetch_request(group, wanted, stable=stable), OffsetFetchResponse
        )
        codes = {response.error_code}
        found: dict[TargetPartition, PositionOrError]
        found = dict.fromkeys(_partitions(wanted), Position(-1))
        if response.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return set(), found
        for topic in response.topics:
            for row in topic.partitions:
                found[topic.name, row.partition_index] = _shown(topic.name, row, client.name)
                if row.error_code not in OF_A_PARTITION:
                    codes.add(row.error_code)
        return codes, found

    return until_accepted(
        client,
        key=group,
        kind=GROUP_COORDINATOR,
        attempt=attempt,
        repeatable=stable,
        waits=stable,
        rights=rights,
    )


def _shown(topic: str, row: Any, cluster: str) -> PositionOrError:
    """A coordinator refuses each topic that the principal may not describe by itself."""
    if row.error_code in OF_A_PARTITION:
        reason = refusal(row.error_code, f"DESCRIBE on topic {topic}", cluster)
        return PartitionUnavailable(f"{topic}/{row.partition_index}: {reason}")
    return Position(row.committed_offset, row.committed_leader_epoch, row.metadata or "")


def _partitions(wanted: Mapping[str, Sequence[int]]) -> list[TargetPartition]:
    return [(topic, number) for topic, numbers in wanted.items() for number in numbers]


class KafkaPositionReader:
    """Reads positions for display (REST); never writes. Belongs to one thread at a time.

    It does not wait for transactions: in a large fleet one is open at any moment, and would delay all.
    """

    def __init__(self, client: ClusterClient) -> None:
        self._client = client

    def read(
        self, group: str, wanted: Mapping[str, Sequence[int]]
    ) -> Mapping[TargetPartition, PositionOrError]:
        return read_positions(self._client, group, wanted, stable=False)

    def close(self) -> None:
        self._client.close()


def _fetch_request(
    group: str, wanted: Mapping[str, Sequence[int]], *, stable: bool
) -> OffsetFetchRequest:
    rows = OffsetFetchRequest.OffsetFetchRequestTopic
    return OffsetFetchRequest(
        version=7,
        group_id=group,
        topics=[
            rows(name=topic, partition_indexes=list(numbers)) for topic, numbers in wanted.items()
        ],
        require_stable=stable,
    )
