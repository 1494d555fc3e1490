"""Brokers that serve control requests in virtual time: for clients that find, wait for and lose them.

`ControlNetwork.client` gives a real `ClusterClient` whose channels lead here. Every request takes
`latency_s` of the manual clock, however many are sent at once. What a client would wait for in vain takes
the time that it allows. Topics and logs are a `ClusterModel`, transactional ids and positions a `Ledger`.
"""

from __future__ import annotations

import math
import uuid
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from kafka.protocol.metadata import MetadataResponse

from ureplicator_common.kafka import ClusterUnavailable, Position
from ureplicator_common.kafka.client import (
    BlockingConnection,
    Broker,
    ClusterClient,
    ClusterView,
    Security,
)
from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.features import TRANSACTION_REQUESTS
from ureplicator_common.kafka.transactions.coordinator_requests import Fenced
from ureplicator_testkit.control.manual_clock import ManualClock
from ureplicator_testkit.kafka.cluster import ClusterModel, Log, TopicPartition
from ureplicator_testkit.kafka.ledger import Ledger


class ControlNetwork:
    """Knobs, by node: `down` (refuses connections), `blackholed` (no connection comes about), `frozen`
    (takes requests, never responds), `slow_s` (time until it responds), `starting` (it knows no cluster
    yet). `names`: addresses that lead to a node, besides its own. `idle_s`: brokers close connections that
    are not used for so long. `unled`: how many requests for the coordinator of a key find none."""

    def __init__(
        self, model: ClusterModel[Log], *, clock: ManualClock, latency_s: float = 0.0
    ) -> None:
        self.model = model
        self.ledger = Ledger()
        self.clock = clock
        self.latency_s = latency_s
        self.down: set[int] = set()
        self.blackholed: set[int] = set()
        self.frozen: set[int] = set()
        self.slow_s: dict[int, float] = {}
        self.starting: set[int] = set()
        self.idle_s = math.inf
        self.unled: dict[str, int] = {}
        self.names = {(node.host, node.port): n for n, node in model.nodes.items()}
        self.requests: list[tuple[int, str]] = []
        self.coordinators: dict[str, int] = {}
        self.pending: dict[str, dict[TopicPartition, Position]] = {}

    def client(self, *nodes: int, **more: Any) -> ClusterClient:
        """A client with these nodes as seeds, all of them by default."""
        seeds = [self.model.nodes[n] for n in nodes or self.model.nodes]
        return ClusterClient(
            ",".join(map(str, seeds)),
            open_channel=self.open,
            clock=self.clock,
            pause=self.clock.advance,
            **more,
        )

    def open(self, broker: Broker, *, security: Security, timeout_s: float) -> BlockingConnection:
        node_id = self.names.get((broker.host, broker.port))
        if node_id is None or node_id in self.down:
            raise ClusterUnavailable(f"{broker} refused", delay_s=0.0)
        if node_id in self.blackholed:
            self.clock.advance(timeout_s)
            raise ClusterUnavailable(f"{broker} unreachable", delay_s=0.0)
        self.clock.advance(self.latency_s)
        return ControlChannel(self, broker, node_id)

    def coordinator(self, key: str) -> Broker:
        node_id = self.coordinators.get(key, 1 + zlib.crc32(key.encode()) % len(self.model.nodes))
        return self.model.nodes[node_id]

    def count(self, name: str) -> int:
        return sum(sent == name for _, sent in self.requests)


class ControlChannel(BlockingConnection):
    def __init__(self, network: ControlNetwork, broker: Broker, node_id: int) -> None:
        self.broker = broker
        self._network = network
        self._node_id = node_id
        self._used_s = network.clock.monotonic_s()

    @property
    def is_open(self) -> bool:
        return self._network.clock.monotonic_s() - self._used_s < self._network.idle_s

    def call_all(
        self,
        requests: Sequence[Any],
        response: Any,
        *,
        silence_s: float,
        deadline_s: float = 0.0,
    ) -> list[Any]:
        network = self._network
        if not self.is_open:
            raise ClusterUnavailable(f"{self.broker} closed the connection", delay_s=0.0)
        slow_s = network.slow_s.get(self._node_id, 0.0)
        if self._node_id in network.frozen | network.blackholed or slow_s > silence_s:
            network.clock.advance(silence_s)
            raise ClusterUnavailable(f"{self.broker} did not respond", delay_s=0.0)
        network.clock.advance(network.latency_s + slow_s)
        if self._node_id in network.down:
            raise ClusterUnavailable(f"{self.broker} closed the connection", delay_s=0.0)
        self._used_s = network.clock.monotonic_s()
        return [self._respond(request, response) for request in requests]

    def close(self) -> None:
        """Nothing is open."""

    def _respond(self, request: Any, response: Any) -> Any:
        name = type(request).__name__.removesuffix("Request")
        self._network.requests.append((self._node_id, name))
        return getattr(self, f"_{name}")(request, response)

    def _Metadata(self, request: Any, response: Any) -> Any:
        model = self._network.model
        view = model.view(request.topics)
        if self._node_id in self._network.starting:
            view = ClusterView("", {}, {}, {}, missing=view.missing | view.topic_ids.keys())
        reply: Any = MetadataResponse
        topics, brokers = reply.MetadataResponseTopic, reply.MetadataResponseBroker
        by_topic: dict[str, list[Any]] = {topic: [] for topic in view.topic_ids}
        for (topic, number), leader in view.leaders.items():
            row = topics.MetadataResponsePartition(
                error_code=0,
                partition_index=number,
                leader_id=leader.node_id,
                leader_epoch=leader.epoch,
                replica_nodes=[],
                isr_nodes=[],
                offline_replicas=[],
            )
            by_topic[topic].append(row)
        known = [
            topics(
                error_code=0,
                name=topic,
                topic_id=uuid.UUID(view.topic_ids[topic]),
                is_internal=False,
                partitions=rows,
            )
            for topic, rows in by_topic.items()
        ]
        missing = [
            topics(
                error_code=int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                name=topic,
                topic_id=uuid.UUID(int=0),
                is_internal=False,
                partitions=[],
            )
            for topic in view.missing
        ]
        found = reply(
            version=request.version,
            throttle_time_ms=0,
            cluster_id=view.cluster_id,
            controller_id=1,
            brokers=[
                brokers(node_id=broker.node_id, host=broker.host, port=broker.port, rack=None)
                for broker in view.brokers.values()
            ],
            topics=known + missing,
        )
        found.with_header(correlation_id=len(self._network.requests), client_id="")
        raw = bytes(found.encode(framed=False, header=True))
        return response.decode(raw, version=request.version, header=True)

    def _ApiVersions(self, request: Any, response: Any) -> Any:
        keys = [
            response.ApiVersion(api_key=key, min_version=0, max_version=4)
            for key in TRANSACTION_REQUESTS
        ]
        return response(error_code=0, api_keys=keys, finalized_features=[])

    def _FindCoordinator(self, request: Any, response: Any) -> Any:
        unled = self._network.unled.get(request.key, 0)
        if unled:
            self._network.unled[request.key] = unled - 1
            return response(error_code=int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        found = self._network.coordinator(request.key)
        return response(error_code=0, node_id=found.node_id, host=found.host, port=found.port)

    def _moved(self, key: str) -> int:
        here = self._network.coordinator(key).node_id == self._node_id
        return 0 if here else int(ErrorCode.NOT_COORDINATOR)

    def _InitProducerId(self, request: Any, response: Any) -> Any:
        id = request.transactional_id
        if id is None:
            return response(error_code=0, producer_id=7, producer_epoch=0)
        code = self._moved(id)
        epoch = -1 if code else self._network.ledger.initialise(id)
        if not code:
            self._network.pending.pop(id, None)
        return response(error_code=code, producer_id=7, producer_epoch=epoch)

    def _AddOffsetsToTxn(self, request: Any, response: Any) -> Any:
        id = request.transactional_id
        code = self._moved(id)
        if not code and not self._network.ledger.is_current(id, request.producer_epoch):
            code = int(ErrorCode.PRODUCER_FENCED)
        if not code:
            self._network.pending[id] = {}
        return response(error_code=code)

    def _TxnOffsetCommit(self, request: Any, response: Any) -> Any:
        topics = response.TxnOffsetCommitResponseTopic
        code = self._moved(request.group_id)
        pending = self._network.pending.setdefault(request.transactional_id, {})
        rows = []
        for topic in request.topics:
            for row in topic.partitions:
                pending[topic.name, row.partition_index] = Position(
                    row.committed_offset, row.committed_leader_epoch, row.committed_metadata
                )
            rows.append(
                topics(
                    name=topic.name,
                    partitions=[
                        topics.TxnOffsetCommitResponsePartition(
                            partition_index=row.partition_index, error_code=code
                        )
                        for row in topic.partitions
                    ],
                )
            )
        return response(topics=rows)

    def _EndTxn(self, request: Any, response: Any) -> Any:
        id = request.transactional_id
        code = self._moved(id)
        if code:
            return response(error_code=code)
        positions: Mapping[TopicPartition, Position] = self._network.pending.pop(id, {})
        try:
            if request.committed:
                self._network.ledger.commit(id, request.producer_epoch, positions)
        except Fenced:
            code = int(ErrorCode.PRODUCER_FENCED)
        return response(error_code=code)

    def _OffsetFetch(self, request: Any, response: Any) -> Any:
        topics = response.OffsetFetchResponseTopic
        code = self._moved(request.group_id)
        return response(
            error_code=code,
            topics=[
                topics(
                    name=topic.name,
                    partitions=[
                        self._stored(topics, topic.name, number)
                        for number in topic.partition_indexes
                    ],
                )
                for topic in request.topics
            ],
        )

    def _stored(self, topics: Any, topic: str, number: int) -> Any:
        position = self._network.ledger.read((topic, number))
        return topics.OffsetFetchResponsePartition(
            partition_index=number,
            committed_offset=position.offset,
            committed_leader_epoch=position.leader_epoch,
            metadata=position.metadata,
            error_code=0,
        )

    def _ListOffsets(self, request: Any, response: Any) -> Any:
        topics = response.ListOffsetsTopicResponse
        return response(
            topics=[
                topics(
                    name=topic.name,
                    partitions=[
                        self._offset(topics, topic.name, row, isolation=request.isolation_level)
                        for row in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )

    def _offset(self, topics: Any, topic: str, row: Any, *, isolation: int) -> Any:
        key = (topic, row.partition_index)
        model = self._network.model
        here = model.leaders[key] == self._node_id
        return topics.ListOffsetsPartitionResponse(
            partition_index=row.partition_index,
            error_code=0 if here else int(ErrorCode.NOT_LEADER_OR_FOLLOWER),
            offset=model.logs[key].offset_at(row.timestamp, isolation=isolation) if here else -1,
        )
