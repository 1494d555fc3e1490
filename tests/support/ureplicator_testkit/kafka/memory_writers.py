"""Writers of a cluster in memory, that can fail: the twin of `kafka.transactions.writer_requests`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import PartitionUnavailable
from ureplicator_common.kafka.list_offsets import TopicPartition
from ureplicator_common.kafka.transactions.writers import (
    DEFAULT_LONGEST_MS,
    Producers,
    TopicTransaction,
    TopicTransactions,
    objection,
)


@dataclass
class MemoryWriters:
    """`transactions`: those that are open; tests replace what goes on or ends. `producers`: times of the last
    records, by partition and producer id. `ids`: transactional ids by producer id. `unknown`: reasons why
    there may be other transactions. `refused`: why transactions of a producer id are not aborted; `aborted`:
    those that were. `failure`: raised by every request. `before_abort` is called for each one: there a test
    lets it end by itself."""

    transactions: list[TopicTransaction] = field(default_factory=list)
    producers: dict[TopicPartition, dict[int, int] | PartitionUnavailable] = field(
        default_factory=dict
    )
    ids: dict[int, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    refused: dict[int, OperatingError] = field(default_factory=dict)
    aborted: list[TopicTransaction] = field(default_factory=list)
    failure: OperatingError | None = None
    longest_ms: int = DEFAULT_LONGEST_MS
    before_abort: Callable[[TopicTransaction], None] = lambda transaction: None
    closed: bool = False

    def transactions_on(self, topics: Collection[str]) -> TopicTransactions:
        self._request()
        found = [one for one in self.transactions if one.topics & set(topics)]
        return TopicTransactions(tuple(found), self.unknown)

    def recent_producers(
        self,
        partitions: Collection[TopicPartition],
        *,
        since_ms: int,
        without: Collection[int] = (),
    ) -> Mapping[TopicPartition, Producers | PartitionUnavailable]:
        self._request()
        return {key: self._recent(key, since_ms, without) for key in partitions}

    def _recent(
        self, key: TopicPartition, since_ms: int, without: Collection[int]
    ) -> Producers | PartitionUnavailable:
        shown = self.producers.get(key, {})
        if isinstance(shown, PartitionUnavailable):
            return shown
        return {
            id: last_ms
            for id, last_ms in shown.items()
            if last_ms >= since_ms and id not in without
        }

    def transactional_ids(self, producer_ids: Collection[int]) -> Mapping[int, str]:
        self._request()
        return {id: self.ids[id] for id in producer_ids if id in self.ids}

    def abort(
        self, transactions: Iterable[TopicTransaction], *, now_ms: int
    ) -> Mapping[TopicTransaction, OperatingError]:
        self._request()
        failed: dict[TopicTransaction, OperatingError] = {}
        for one in transactions:
            refused = objection(one, now_ms=now_ms, longest_ms=self.longest_ms)
            self.before_abort(one)
            if error := refused or self.refused.get(one.producer_id):
                failed[one] = error
            elif one in self.transactions:
                self.transactions.remove(one)
                self.aborted.append(one)
        return failed

    def close(self) -> None:
        self.closed = True

    def _request(self) -> None:
        if self.failure is not None:
            raise self.failure
