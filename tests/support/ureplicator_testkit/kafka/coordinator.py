"""A coordinator that follows a script, behind the blocking client."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from ureplicator_common.kafka import ClusterUnavailable, Position
from ureplicator_common.kafka.client import Broker, ClusterClient, ClusterView
from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.features import (
    DESCRIBE_TRANSACTIONS,
    TRANSACTION_FEATURE,
    TRANSACTION_REQUESTS,
)
from ureplicator_testkit.control.manual_clock import ManualClock

HERE = Broker(1, "here", 1)
LOST = object()
"""Step of a script: the connection breaks instead of a response."""


class Coordinator(ClusterClient):
    """Responds to each kind of request with the next code of its script, 0 when that has ended.

    The script of DescribeTransactions names states, or codes. `took_s`: time of each request. `view_found`:
    what it shows of topics. `closed`: it takes no connections, and has closed those that there were.
    `unreadable`: topics whose positions it does not show, and the error code beside each partition.
    `untaken`: topics whose positions it does not take, alike; it takes the others of the request.
    `settings`: of each broker. `replicas`, `in_sync`, `min_in_sync`: of each partition; with fewer, rows are
    refused.
    """

    def __init__(self, **scripts: list[Any]) -> None:
        self.clock = ManualClock()
        super().__init__("nowhere:1", clock=self.clock, pause=self.clock.advance)
        self.took_s = 0.0
        self.requests: list[str] = []
        self.looked_up = 0
        self.resets = 0
        self.transaction_version = 0
        self.api_keys = {*TRANSACTION_REQUESTS, DESCRIBE_TRANSACTIONS}
        self.stored: dict[tuple[str, int], Position] = {}
        self.unreadable: dict[str, int] = {}
        self.untaken: dict[str, int] = {}
        self.replicas = self.in_sync = self.min_in_sync = 1
        self.settings: dict[str, str] = {}
        self.ends: list[bool] = []
        """Outcome that each EndTxn requested."""
        self.produced: list[bytes] = []
        """Batches of rows, in order; those that were refused, too."""
        self.view_found = ClusterView("cluster", {}, {}, {})
        self.closed = False
        self.created: list[tuple[str, int]] = []
        self._scripts = {name: deque(script) for name, script in scripts.items()}

    def coordinator(self, key: str, kind: int) -> Broker:
        known = self._coordinators.get((kind, key))
        if known is None:
            self.looked_up += 1
            known = self._coordinators[(kind, key)] = HERE
        return known

    def view(self, topics: Sequence[str]) -> ClusterView:
        return self.view_found

    def reset(self) -> None:
        super().reset()
        self.resets += 1

    def coordinators(self, keys: Sequence[str], kind: int) -> tuple[dict[Broker, list[str]], str]:
        led: dict[Broker, list[str]] = {}
        for key in keys:
            led.setdefault(self.coordinator(key, kind), []).append(key)
        return led, ""

    def _attempt(
        self,
        broker: Broker,
        requests: Sequence[Any],
        response: Any,
        *,
        part: float,
        channels: int = 1,
    ) -> list[Any]:
        if self.closed and not requests:
            raise ClusterUnavailable(f"{broker} refused")
        return [self._respond(request, response) for request in requests]

    def _respond(self, request: Any, response: Any) -> Any:
        name = type(request).__name__.removesuffix("Request")
        if self.closed and name in ("Produce", "ListOffsets"):
            raise ClusterUnavailable("refused")
        if name != "ApiVersions":
            self.requests.append(name)
        self.clock.advance(self.took_s)
        script = self._scripts.get(name)
        code = script.popleft() if script else 0
        if code is LOST:
            raise ClusterUnavailable("broken")
        reply: Any = getattr(self, f"_{name}")(request, response, code)
        return response.decode(
            reply.encode(framed=False, header=False), version=request.version, header=False
        )

    def _ApiVersions(self, request: Any, response: Any, code: int) -> Any:
        level = response.FinalizedFeatureKey(
            name=TRANSACTION_FEATURE,
            max_version_level=self.transaction_version,
            min_version_level=0,
        )
        keys = [
            response.ApiVersion(api_key=key, min_version=0, max_version=4) for key in self.api_keys
        ]
        return response(
            version=request.version, error_code=code, api_keys=keys, finalized_features=[level]
        )

    def _AddPartitionsToTxn(self, request: Any, response: Any, code: int) -> Any:
        topics = response.AddPartitionsToTxnTopicResult
        rows = topics.AddPartitionsToTxnPartitionResult
        return response(
            version=request.version,
            results_by_topic_v3_and_below=[
                topics(
                    name=topic.name,
                    results_by_partition=[
                        rows(partition_index=number, partition_error_code=code)
                        for number in topic.partitions
                    ],
                )
                for topic in request.v3_and_below_topics
            ],
        )

    def _ListOffsets(self, request: Any, response: Any, code: int) -> Any:
        topics = response.ListOffsetsTopicResponse
        rows = topics.ListOffsetsPartitionResponse
        return response(
            version=request.version,
            topics=[
                topics(
                    name=topic.name,
                    partitions=[
                        rows(partition_index=row.partition_index, error_code=code, offset=0)
                        for row in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )

    def _Metadata(self, request: Any, response: Any, code: int) -> Any:
        topics = response.MetadataResponseTopic
        rows = topics.MetadataResponsePartition
        partition = rows(
            error_code=0,
            partition_index=0,
            leader_id=HERE.node_id,
            replica_nodes=list(range(1, self.replicas + 1)),
            isr_nodes=list(range(1, self.in_sync + 1)),
            offline_replicas=[],
        )
        (topic,) = request.topics
        found = topics(error_code=0, name=topic.name, is_internal=False, partitions=[partition])
        return response(version=request.version, brokers=[], topics=[found])

    def _DescribeConfigs(self, request: Any, response: Any, code: int) -> Any:
        rows = response.DescribeConfigsResult
        (resource,) = request.resources
        known = {**self.settings, "min.insync.replicas": str(self.min_in_sync)}
        configs = [
            rows.DescribeConfigsResourceResult(name=name, value=known[name], synonyms=[])
            for name in resource.configuration_keys
            if name in known
        ]
        found = rows(
            error_code=code,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=[] if code else configs,
        )
        return response(version=request.version, results=[found])

    def _Produce(self, request: Any, response: Any, code: int) -> Any:
        if self.in_sync < min(self.min_in_sync, self.replicas):
            code = code or ErrorCode.NOT_ENOUGH_REPLICAS
        self.produced += [
            bytes(row.records) for topic in request.topic_data for row in topic.partition_data
        ]
        topics = response.TopicProduceResponse
        rows = topics.PartitionProduceResponse
        return response(
            version=request.version,
            responses=[
                topics(
                    name=topic.name,
                    partition_responses=[
                        rows(index=row.index, error_code=code, base_offset=0)
                        for row in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ],
        )

    def _CreateTopics(self, request: Any, response: Any, code: int) -> Any:
        self.created += [(topic.name, topic.replication_factor) for topic in request.topics]
        rows = response.CreatableTopicResult
        return response(
            version=request.version,
            topics=[
                rows(name=topic.name, error_code=code, error_message=None)
                for topic in request.topics
            ],
        )

    def _InitProducerId(self, request: Any, response: Any, code: int) -> Any:
        return response(version=4, error_code=code, producer_id=7, producer_epoch=1)

    def _plain(self, request: Any, response: Any, code: int) -> Any:
        return response(version=request.version, error_code=code)

    _AddOffsetsToTxn = _Heartbeat = _plain

    def _EndTxn(self, request: Any, response: Any, code: int) -> Any:
        self.ends.append(request.committed)
        return response(version=request.version, error_code=code, producer_id=9, producer_epoch=2)

    def _TxnOffsetCommit(self, request: Any, response: Any, code: int) -> Any:
        rows = response.TxnOffsetCommitResponseTopic
        assert (request.generation_id, request.member_id) == (-1, "")
        return response(
            version=request.version,
            topics=[
                rows(
                    name=topic.name,
                    partitions=[
                        rows.TxnOffsetCommitResponsePartition(
                            partition_index=row.partition_index,
                            error_code=code or self.untaken.get(topic.name, 0),
                        )
                        for row in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )

    def _DescribeTransactions(self, request: Any, response: Any, told: int | str) -> Any:
        code, state = (0, told) if isinstance(told, str) else (told, "CompleteCommit")
        rows = response.TransactionState
        found = [
            rows(transactional_id=id, error_code=code, transaction_state=state, topics=[])
            for id in request.transactional_ids
        ]
        return response(version=0, transaction_states=found)

    def _OffsetCommit(self, request: Any, response: Any, code: int) -> Any:
        rows = response.OffsetCommitResponseTopic
        row = rows.OffsetCommitResponsePartition(partition_index=0, error_code=code)
        return response(version=7, topics=[rows(name="t", partitions=[row])])

    def _OffsetFetch(self, request: Any, response: Any, code: int) -> Any:
        assert request.require_stable
        rows = response.OffsetFetchResponseTopic
        if code == ErrorCode.GROUP_ID_NOT_FOUND:  # kfake; Kafka's brokers show no offsets then
            return response(version=7, error_code=code, topics=[])
        return response(
            version=7,
            error_code=0,
            topics=[
                rows(
                    name=topic.name,
                    partitions=[
                        self._row(topic.name, n, response, code) for n in topic.partition_indexes
                    ],
                )
                for topic in request.topics
            ],
        )

    def _row(self, topic: str, number: int, response: Any, code: int) -> Any:
        code = code or self.unreadable.get(topic, 0)
        position = Position(-1) if code else self.stored.get((topic, number), Position(-1))
        return response.OffsetFetchResponseTopic.OffsetFetchResponsePartition(
            partition_index=number,
            committed_offset=position.offset,
            committed_leader_epoch=position.leader_epoch,
            metadata=position.metadata,
            error_code=code,
        )
