"""A cluster in memory whose brokers coordinate transactions, and tell of them (KIP-664)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from kafka.protocol.producer import InitProducerIdResponse, WriteTxnMarkersResponse

from ureplicator_common.kafka.client import Broker
from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.list_offsets import TopicPartition
from ureplicator_common.kafka.producer_states import DESCRIBE_PRODUCERS
from ureplicator_common.kafka.transactions.writer_requests import LIST_TRANSACTIONS, STATE_TOPIC
from ureplicator_testkit.kafka.clients import MemoryCluster
from ureplicator_testkit.kafka.log_requests import write_markers
from ureplicator_testkit.kafka.memory_kafka import MemoryKafka
from ureplicator_testkit.records import batches


@dataclass
class Coordinated:
    """A transactional id at its coordinator, the broker `node`."""

    producer_id: int
    node: int = 1
    epoch: int = 0
    state: str = "Empty"
    partitions: set[TopicPartition] = field(default_factory=set)
    began_ms: int = -1


class CoordinatedCluster(MemoryCluster):
    """`ids`: transactional ids. `hidden_ids`: those that the principal may not describe; `shows_others`: it
    may describe those that nobody has. `loading`: nodes that read their part of the coordinators' log.
    `denied`: API names that lack a right. `longest_ms`: see `transaction.max.timeout.ms`. `passing` is called
    after the coordinators were asked for lists."""

    def __init__(self, topics: dict[str, int]) -> None:
        self.kafka = MemoryKafka("c", {**topics, STATE_TOPIC: 2}, nodes=2)
        super().__init__(self.kafka)
        self.versions = {DESCRIBE_PRODUCERS: 0, LIST_TRANSACTIONS: 0}
        self.ids: dict[str, Coordinated] = {}
        self.hidden_ids: set[str] = set()
        self.shows_others = True
        self.loading: set[int] = set()
        self.denied: set[str] = set()
        self.longest_ms = 900_000
        self.initialised: list[str] = []
        self.passing: Callable[[], None] = lambda: None

    def begin(
        self, id: str, producer_id: int, *keys: TopicPartition, node: int = 1, at_ms: int = 1_000
    ) -> Coordinated:
        """An open transaction, with a batch in each of the partitions."""
        self.ids[id] = made = Coordinated(producer_id, node, 0, "Ongoing", set(keys), at_ms)
        self.write(producer_id, keys)
        return made

    def write(self, producer_id: int, keys: Iterable[TopicPartition]) -> None:
        """A batch of two records, in a transaction that no coordinator need know."""
        for key in keys:
            made = batches.batch(2, producer_id=producer_id, attributes=batches.TRANSACTIONAL)
            state = self.kafka.logs[key].known_producers().get(producer_id)
            sequence = state.last_sequence + 1 if state else 0
            code, _ = self.kafka.logs[key].produce(
                batches.patched(made, base_sequence=sequence, producer_epoch=0)
            )
            assert code == ErrorCode.NONE

    def end(self, id: str, *, state: str = "CompleteCommit") -> None:
        """All markers are written."""
        found = self.ids[id]
        for key in found.partitions:
            self.mark(found, key)
        found.state, found.partitions = state, set()

    def mark(self, found: Coordinated, key: TopicPartition) -> None:
        self.kafka.logs[key].mark(found.producer_id, found.epoch, coordinator_epoch=3, commit=True)

    def coordinator(self, key: str, kind: int) -> Broker:
        return self.kafka.nodes[self.ids[key].node]

    def call(self, broker: Broker, request: Any, response: Any) -> Any:
        name = type(request).__name__.removesuffix("Request")
        perform = getattr(self, f"_{name}", None)
        if perform is None or broker.node_id in self.kafka.down:
            return super().call(broker, request, response)
        self._request(name)
        return perform(broker.node_id, request, response)

    def _ListTransactions(self, node: int, request: Any, response: Any) -> Any:
        if node in self.loading:
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return response(version=0, error_code=code, transaction_states=[])
        rows = [
            response.TransactionState(
                transactional_id=id, producer_id=one.producer_id, transaction_state=one.state
            )
            for id, one in self.ids.items()
            if one.node == node
            and id not in self.hidden_ids
            and (not request.state_filters or one.state in request.state_filters)
            and (not request.producer_id_filters or one.producer_id in request.producer_id_filters)
        ]
        if node == len(self.kafka.nodes):
            self.passing()
        return response(version=0, error_code=0, transaction_states=rows)

    def _DescribeTransactions(self, node: int, request: Any, response: Any) -> Any:
        rows = [self._described(node, id, response) for id in request.transactional_ids]
        return response(version=0, transaction_states=rows)

    def _described(self, node: int, id: str, response: Any) -> Any:
        found = self.ids.get(id)
        code: int = ErrorCode.NONE
        if id in self.hidden_ids or (found is None and not self.shows_others):
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        elif found is None:
            code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        elif found.node != node:
            code = ErrorCode.NOT_COORDINATOR
        shown = found if found and not code else Coordinated(-1, state="")
        rows = response.TransactionState
        return rows(
            error_code=code,
            transactional_id=id,
            transaction_state=shown.state,
            transaction_timeout_ms=60_000,
            transaction_start_time_ms=shown.began_ms,
            producer_id=shown.producer_id,
            producer_epoch=shown.epoch,
            topics=[
                rows.TopicData(topic=topic, partitions=[number])
                for topic, number in sorted(shown.partitions)
            ],
        )

    def _InitProducerId(self, node: int, request: Any, response: Any) -> Any:
        id = request.transactional_id
        found = self.ids[id]
        code: int = ErrorCode.NONE if found.node == node else ErrorCode.NOT_COORDINATOR
        if "InitProducerId" in self.denied:
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if not code:
            found.epoch += 1
            self.initialised.append(id)
            self.end(id, state="CompleteAbort")
        return InitProducerIdResponse(
            version=4, error_code=code, producer_id=found.producer_id, producer_epoch=found.epoch
        )

    def _WriteTxnMarkers(self, node: int, request: Any, response: Any) -> Any:
        def fault(key: TopicPartition) -> int:
            if "WriteTxnMarkers" in self.denied:
                return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            moved = self.kafka.leaders[key] != node
            return ErrorCode.NOT_LEADER_OR_FOLLOWER if moved else ErrorCode.NONE

        reply: WriteTxnMarkersResponse = write_markers(self.kafka.logs, request, fault=fault)
        return reply

    def _DescribeConfigs(self, node: int, request: Any, response: Any) -> Any:
        rows = response.DescribeConfigsResult
        setting = rows.DescribeConfigsResourceResult(
            name="transaction.max.timeout.ms", value=str(self.longest_ms)
        )
        denied = "DescribeConfigs" in self.denied
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED if denied else ErrorCode.NONE
        return response(version=1, results=[rows(error_code=code, configs=[setting])])
