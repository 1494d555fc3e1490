"""Writers by requests to all brokers of a cluster (KIP-664): see `writers` for what they tell.

    DescribeProducers      at the leaders of the topics: who holds a transaction open there, and wrote when
    ListTransactions       at every broker: the open transactions that it coordinates
    DescribeTransactions   at those brokers: their partitions, and when they began
    DescribeProducers      again, for transactions without a coordinator: one that ended meanwhile is none

Brokers answer the first from Kafka 2.8 on, the others from 3.0 on. They leave out what the principal may not
DESCRIBE, without a word. So whether it may describe an id that nobody has is asked, too.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kafka.protocol.admin.transactions import (  # type: ignore[import-untyped]  # no stubs
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import ClusterUnavailable, PartitionUnavailable
from ureplicator_common.kafka.client import Broker, ClusterClient, ClusterView
from ureplicator_common.kafka.errors import ErrorCode, error_name
from ureplicator_common.kafka.features import accepted_versions
from ureplicator_common.kafka.list_offsets import TopicPartition
from ureplicator_common.kafka.producer_states import StatesOrError, producer_states
from ureplicator_common.kafka.transactions.aborts import abort_all
from ureplicator_common.kafka.transactions.writers import (
    HeldPartition,
    Producers,
    TopicTransaction,
    TopicTransactions,
    TransactionKind,
)
from ureplicator_common.portions import portions

LIST_TRANSACTIONS = 66
"""API key."""
STATE_TOPIC = "__transaction_state"
"""Who leads a partition of it coordinates the ids in it. Without a leader, nobody shows them."""
OPEN_STATES = {
    "Ongoing": TransactionKind.OPEN,
    "PrepareCommit": TransactionKind.ENDING,
    "PrepareAbort": TransactionKind.ENDING,
    "PrepareEpochFence": TransactionKind.ENDING,
}
AT_ONCE = 500
"""Transactional ids in one request: its response stays below a megabyte."""
TOO_OLD = "brokers before Kafka 3.0 do not list transactions"


@dataclass(frozen=True, slots=True)
class _Shown:
    """What coordinators show, and reasons why there may be others."""

    open: list[TopicTransaction] = field(default_factory=list)
    ids: dict[int, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)


class KafkaWriters:
    """See `Writers`."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client

    def transactions_on(self, topics: Collection[str]) -> TopicTransactions:
        view = self._client.view(sorted(topics))
        absent = (view.missing | view.refused.keys()) & set(topics)
        unknown = [f"topic {topic}: {view.absence(topic)}" for topic in sorted(absent)]
        states = producer_states(self._client, view, [*view.leaders])
        unknown += [str(state) for state in states.values() if _is_unknown(state)]
        held = _held(states)
        shown = self._shown(view, {"state_filters": sorted(OPEN_STATES), "producer_id_filters": []})
        claimed = [_claiming(one, held) for one in shown.open]
        found = [one for one in claimed if one.topics & set(topics)]
        claims = {(one.producer_id, row) for one in found for row in one.held}
        left = held - claims
        if left:
            found += self._without_coordinator(view, left, whole=not shown.unknown)
        return TopicTransactions(tuple(found), tuple(dict.fromkeys([*unknown, *shown.unknown])))

    def recent_producers(
        self,
        partitions: Collection[TopicPartition],
        *,
        since_ms: int,
        without: Collection[int] = (),
    ) -> Mapping[TopicPartition, Producers | PartitionUnavailable]:
        view = self._client.view(sorted({topic for topic, _ in partitions}))
        states = producer_states(self._client, view, partitions)
        return {key: _since(shown, since_ms, without) for key, shown in states.items()}

    def transactional_ids(self, producer_ids: Collection[int]) -> Mapping[int, str]:
        if not producer_ids:
            return {}
        filters = {"state_filters": [], "producer_id_filters": sorted(producer_ids)}
        return self._shown(self._client.view(()), filters).ids

    def abort(
        self, transactions: Iterable[TopicTransaction], *, now_ms: int
    ) -> Mapping[TopicTransaction, OperatingError]:
        return abort_all(self._client, transactions, now_ms=now_ms)

    def close(self) -> None:
        self._client.close()

    def _shown(self, view: ClusterView, filters: Mapping[str, Sequence[Any]]) -> _Shown:
        shown = _Shown()
        for broker in view.brokers.values():
            try:
                self._shown_by(broker, filters, shown)
            except ClusterUnavailable as error:
                shown.unknown.append(str(error))
        return shown

    def _shown_by(
        self, broker: Broker, filters: Mapping[str, Sequence[Any]], shown: _Shown
    ) -> None:
        """Raises ClusterUnavailable."""
        if LIST_TRANSACTIONS not in accepted_versions(self._client, broker):
            raise ClusterUnavailable(TOO_OLD)
        request = ListTransactionsRequest(version=0, **filters)
        reply = self._client.call(broker, request, ListTransactionsResponse)
        if reply.error_code:
            raise ClusterUnavailable(f"transactions at {broker}: {error_name(reply.error_code)}")
        rows = reply.transaction_states
        shown.ids.update((row.producer_id, row.transactional_id) for row in rows)
        open_ids = [row.transactional_id for row in rows if row.transaction_state in OPEN_STATES]
        for row in self._described(broker, open_ids):
            if row.error_code not in (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
                shown.unknown.append(f"{row.transactional_id}: {error_name(row.error_code)}")
            elif row.transaction_state in OPEN_STATES:
                shown.open.append(_transaction(row))

    def _described(self, broker: Broker, ids: Sequence[str]) -> Iterator[Any]:
        """Raises ClusterUnavailable."""
        for some in portions(ids, AT_ONCE):
            request = DescribeTransactionsRequest(version=0, transactional_ids=some)
            yield from self._client.call(
                broker, request, DescribeTransactionsResponse
            ).transaction_states

    def _without_coordinator(
        self, view: ClusterView, left: frozenset[tuple[int, HeldPartition]], *, whole: bool
    ) -> list[TopicTransaction]:
        """Transactions that leaders hold open as before, though no coordinator shows them. `whole`: all
        coordinators responded."""
        keys = {(row.topic, row.partition) for _, row in left}
        still = {_place(*one) for one in _held(producer_states(self._client, view, keys))}
        by_producer: dict[int, list[HeldPartition]] = {}
        for producer_id, row in sorted(left):
            if _place(producer_id, row) in still:
                by_producer.setdefault(producer_id, []).append(row)
        ids = self.transactional_ids(by_producer)
        sees_all = whole and bool(by_producer) and self._sees_all()
        return [
            TopicTransaction(
                kind=TransactionKind.HANGING
                if whole and (id in ids or sees_all)
                else TransactionKind.HIDDEN,
                producer_id=id,
                transactional_id=ids.get(id, ""),
                held=tuple(rows),
            )
            for id, rows in by_producer.items()
        ]

    def _sees_all(self) -> bool:
        """True if each id has a coordinator, and the principal may describe any id. Raises
        ClusterUnavailable."""
        view = self._client.view([STATE_TOPIC])
        leaders = [view.leader_of(*key) for key in view.leaders]
        if not leaders or None in leaders:
            return False
        broker = next(iter(view.brokers.values()))
        codes = {row.error_code for row in self._described(broker, [uuid.uuid4().hex])}
        return codes <= {ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.NOT_COORDINATOR}


def _is_unknown(state: StatesOrError) -> bool:
    return isinstance(state, PartitionUnavailable)


def _held(states: Mapping[TopicPartition, StatesOrError]) -> frozenset[tuple[int, HeldPartition]]:
    """Partitions in which transactions are open, with the ids of the producers."""
    return frozenset(
        (
            producer_id,
            HeldPartition(
                *key,
                first_offset=state.transaction_start,
                producer_epoch=state.epoch,
                coordinator_epoch=state.coordinator_epoch,
                last_ms=state.last_timestamp_ms,
            ),
        )
        for key, shown in states.items()
        if not isinstance(shown, PartitionUnavailable)
        for producer_id, state in shown.items()
        if state.transaction_start >= 0
    )


def _claiming(
    transaction: TopicTransaction, held: frozenset[tuple[int, HeldPartition]]
) -> TopicTransaction:
    """The transaction with what leaders hold of it."""
    rows = sorted(
        row
        for producer_id, row in held
        if producer_id == transaction.producer_id
        and (row.topic, row.partition) in transaction.partitions
    )
    return replace(transaction, held=tuple(rows))


def _place(producer_id: int, row: HeldPartition) -> tuple[int, str, int, int]:
    """What names a transaction in a partition: where it began."""
    return producer_id, row.topic, row.partition, row.first_offset


def _transaction(row: Any) -> TopicTransaction:
    return TopicTransaction(
        kind=OPEN_STATES[row.transaction_state],
        producer_id=row.producer_id,
        transactional_id=row.transactional_id,
        producer_epoch=row.producer_epoch,
        state=row.transaction_state,
        began_ms=row.transaction_start_time_ms,
        timeout_ms=row.transaction_timeout_ms,
        partitions=frozenset(
            (topic.topic, number) for topic in row.topics for number in topic.partitions
        ),
    )


def _since(
    shown: StatesOrError, since_ms: int, without: Collection[int]
) -> Producers | PartitionUnavailable:
    if isinstance(shown, PartitionUnavailable):
        return shown
    return {
        id: state.last_timestamp_ms
        for id, state in shown.items()
        if state.last_timestamp_ms >= since_ms and id not in without
    }
