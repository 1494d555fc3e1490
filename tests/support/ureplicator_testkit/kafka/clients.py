"""Clients of a cluster in memory that can fail: the blocking client, and REST's and the leader's readers.

They show a `ClusterModel` (topics, logs) and a `Ledger` (positions). `failing` makes every request
of one client fail for a while.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from kafka.protocol.admin.transactions import (  # type: ignore[import-untyped]  # no stubs
    DescribeProducersResponse,
)
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.metadata import ApiVersionsResponse

from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import (
    BatchTime,
    ClusterUnavailable,
    Extent,
    Lifetime,
    ListedTopics,
    OpenTransaction,
    PartitionUnavailable,
    Position,
    PositionOrError,
    TopicAlreadyExists,
    TopicInfo,
    TopicRefused,
    TopicSetting,
)
from ureplicator_common.kafka.client import (
    EARLIEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Broker,
    ClusterClient,
    ClusterView,
    Leader,
)
from ureplicator_common.kafka.errors import ErrorCode
from ureplicator_common.kafka.producer_states import DESCRIBE_PRODUCERS
from ureplicator_common.model import BROKER_DEFAULT_REPLICATION
from ureplicator_testkit.kafka.cluster import (
    ClusterModel,
    Log,
    TopicPartition,
    cluster_model,
    numbered_ids,
)
from ureplicator_testkit.kafka.ledger import Ledger
from ureplicator_testkit.kafka.log_requests import describe_producers

NO_LEADER = Leader(-1, -1)


class MemoryCluster(ClusterClient):
    """Metadata, offsets and producer ids of a cluster. `leaderless`: partitions without a
    leader; `failures`: so many requests fail next; `versions`: those of requests, by API key."""

    def __init__(self, model: ClusterModel[Any]) -> None:
        super().__init__("nowhere:1", name=model.cluster_id)
        self.model = model
        self.leaderless: set[TopicPartition] = set()
        self.failures = 0
        self.versions = {DESCRIBE_PRODUCERS: 0}
        self.closed = False
        self._paused_s = 0.0
        self.pause = self._pass

    def now_s(self) -> float:
        return super().now_s() + self._paused_s

    def _pass(self, delay_s: float) -> None:
        """Time passes, in which the cluster goes on."""
        self._paused_s += delay_s
        self.model.passed()

    def view(self, topics: Sequence[str]) -> ClusterView:
        self._request("metadata")
        view = self.model.view(topics)
        lost = dict.fromkeys(self.leaderless & view.leaders.keys(), NO_LEADER)
        return replace(view, leaders={**view.leaders, **lost})

    def call(self, broker: Broker, request: Any, response: Any) -> Any:
        """Requests to a broker by its address: ListOffsets, and fetches and producers of those in memory."""
        model: Any = self.model
        if response is FetchResponse:
            self._request("fetch")
            return model.fetch(broker.node_id, request)
        if response is ApiVersionsResponse:
            self._request("versions")
            return self._versions(response)
        if response is DescribeProducersResponse:
            self._request("describe producers")
            return describe_producers(model, broker.node_id, request, response)
        self._request("list offsets")
        rows = response.ListOffsetsTopicResponse
        return response(
            version=request.version,
            topics=[
                rows(
                    name=topic.name,
                    partitions=[
                        self._offset(rows, topic.name, row, isolation=request.isolation_level)
                        for row in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )

    def _versions(self, response: Any) -> Any:
        rows = response.ApiVersion
        keys = [
            rows(api_key=key, min_version=0, max_version=at) for key, at in self.versions.items()
        ]
        return response(error_code=0, api_keys=keys)

    def _offset(self, rows: Any, topic: str, row: Any, *, isolation: int) -> Any:
        log = self.model.logs[topic, row.partition_index]
        lags = log.lagging is not None and row.timestamp != EARLIEST
        return rows.ListOffsetsPartitionResponse(
            partition_index=row.partition_index,
            error_code=ErrorCode.OFFSET_NOT_AVAILABLE if lags else ErrorCode.NONE,
            offset=-1 if lags else log.offset_at(row.timestamp, isolation=isolation),
        )

    def call_any(self, request: Callable[[], Any], response: Any) -> Any:
        """The only request made so is InitProducerId of a plain producer."""
        self._request("init producer id")
        id = next(self.model.producer_ids)
        return response(version=4, error_code=0, producer_id=id, producer_epoch=0)

    def close(self) -> None:
        self.closed = True

    def _request(self, name: str) -> None:
        """Subclasses delay or lose it."""
        if self.failures:
            self.failures -= 1
            raise ClusterUnavailable(f"{self.model.cluster_id} does not respond", delay_s=0.0)


class _CanFail:
    """A reader whose cluster can be unavailable."""

    def __init__(self) -> None:
        self._failure: Exception | None = None

    @contextmanager
    def failing(self, error: Exception | None = None) -> Iterator[None]:
        """Every request raises `error` meanwhile (default: ClusterUnavailable)."""
        self._failure = error or ClusterUnavailable("no broker responds")
        try:
            yield
        finally:
            self._failure = None

    def _request(self) -> None:
        if self._failure is not None:
            raise self._failure


def own_settings(settings: Mapping[str, TopicSetting]) -> dict[str, str]:
    """Settings of a topic itself, without defaults."""
    return {name: setting.value for name, setting in sorted(settings.items()) if setting.is_own}


class MemoryTopicAdmin(_CanFail):
    """`TopicAdmin` of a cluster.

    `before` is called with the name of each changing request and its topic before the change: there
    a test lets another client be first, or raises what a cluster would. `unlisted`: topics that
    exist but are missing in lists (a broker with old metadata). `troubled`: topics whose
    description fails. `known_configs`: names of the settings that the brokers know; None: all.
    `defaults`: the brokers' own settings of topics. `configs_failure`: raised when settings with
    defaults are read. `replication`: factor that each topic was created with.
    """

    def __init__(
        self, topics: Mapping[str, int] | None = None, *, model: ClusterModel[Log] | None = None
    ) -> None:
        super().__init__()
        self.model = model or cluster_model("", topics or {}, new_id=numbered_ids())
        self._configs: dict[str, dict[str, str]] = {}
        self.unlisted: set[str] = set()
        self.troubled: set[str] = set()
        self.known_configs: set[str] | None = None
        self.defaults: dict[str, str] = {}
        self.configs_failure: Exception | None = None
        self.brokers = 3
        self.replication: dict[str, int] = {}
        self.before: Callable[[str, str], None] = lambda call, topic: None

    def put(self, topic: str, partitions: int, *, configs: Mapping[str, str] | None = None) -> None:
        """Create the topic; again: recreated, with a new id."""
        self.model.create(topic, partitions)
        self._configs[topic] = dict(configs or {})

    def remove(self, topic: str) -> None:
        self.model.delete(topic)
        self._configs.pop(topic, None)

    def listing(self) -> ListedTopics:
        return ListedTopics(self.model.cluster_id, self.topics())

    def topics(self) -> Mapping[str, TopicInfo]:
        hidden = self.unlisted | self.model.hidden
        return self.find([topic for topic in self.model.topic_ids if topic not in hidden])

    def find(self, topics: Sequence[str]) -> Mapping[str, TopicInfo]:
        self._request()
        shown = self.model.topic_ids.keys() | self.model.hidden
        return {topic: self._info(topic) for topic in topics if topic in shown}

    def _info(self, topic: str) -> TopicInfo:
        if topic in self.model.hidden:
            return TopicInfo(0, error=self.model.denial(topic))
        if topic in self.troubled:
            return TopicInfo(0, error="not now")
        return TopicInfo(self.model.partitions[topic], self._admin_id(topic))

    def _admin_id(self, topic: str) -> str:
        return self.model.topic_ids[topic]

    def configs(self, topic: str) -> Mapping[str, str]:
        return own_settings(self.settings_of(topic))

    def settings_of(self, topic: str) -> Mapping[str, TopicSetting]:
        self._request()
        own = self._configs.get(topic, {})
        return {
            name: TopicSetting(value, name in own)
            for name, value in {**self.defaults, **own}.items()
        }

    def effective_configs(
        self, topics: Sequence[str], *, timeout_s: float
    ) -> Mapping[str, Mapping[str, str] | OperatingError]:
        self._request()
        if self.configs_failure is not None:
            raise self.configs_failure
        return {topic: self._effective(topic) for topic in topics}

    def _effective(self, topic: str) -> Mapping[str, str] | OperatingError:
        if topic in self.troubled or topic not in self.model.topic_ids:
            return ClusterUnavailable(f"{topic} cannot be described")
        return {**self.defaults, **self._configs.get(topic, {})}

    def settings(
        self, topics: Sequence[str], *, timeout_s: float
    ) -> Mapping[str, Mapping[str, TopicSetting] | OperatingError]:
        return {
            topic: found
            if isinstance(found, OperatingError)
            else {
                name: TopicSetting(value, name in self._configs[topic])
                for name, value in found.items()
            }
            for topic, found in self.effective_configs(topics, timeout_s=timeout_s).items()
        }

    def alter_settings(
        self, changes: Mapping[str, Mapping[str, str | None]]
    ) -> Mapping[str, OperatingError]:
        self._request()
        refused: dict[str, OperatingError] = {}
        for topic, wanted in changes.items():
            self.before("alter_settings", topic)
            if unknown := set(wanted) - (self.known_configs or set(wanted)):
                refused[topic] = TopicRefused(f"Unknown topic config name: {min(unknown)}")
                continue
            kept = self._configs[topic]
            for name, value in wanted.items():
                kept.pop(name, None)
                if value is not None:
                    kept[name] = value
        return refused

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int,
        configs: Mapping[str, str],
        replication_factor: int = BROKER_DEFAULT_REPLICATION,
    ) -> str:
        self._request()
        self.before("create_topic", topic)
        if topic in self.model.topic_ids:
            raise TopicAlreadyExists(f"{topic} exists already")
        if partitions < 1:
            raise TopicRefused("the number of partitions must be above 0")
        if self.known_configs is not None and (unknown := set(configs) - self.known_configs):
            raise TopicRefused(f"Unknown topic config name: {min(unknown)}")
        if replication_factor > self.brokers:
            raise TopicRefused(f"only {self.brokers} brokers for {replication_factor} replicas")
        self.replication[topic] = replication_factor
        self.put(topic, partitions, configs=configs)
        return self._admin_id(topic)

    def grow_topic(self, topic: str, *, partitions: int) -> None:
        self._request()
        self.before("grow_topic", topic)
        present = self.model.partitions.get(topic)
        if present is None:
            raise TopicRefused(f"{topic} does not exist")
        if partitions <= present:
            raise TopicRefused(f"{topic} already has {present} partitions")
        self.model.grow(topic, partitions)

    def delete_topic(self, topic_id: str) -> None:
        self._request()
        self.before("delete_topic", topic_id)
        for topic, id in [*self.model.topic_ids.items()]:
            if id == topic_id:
                self.remove(topic)

    def close(self) -> None:
        pass


class MemoryPositionReader(_CanFail):
    """`PositionReader` over the ledgers of position groups."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: defaultdict[str, Ledger] = defaultdict(Ledger)
        self.reads = 0

    def put(self, group: str, topic: str, number: int, offset: int) -> None:
        """A committed position."""
        self.groups[group].positions[topic, number] = Position(offset)

    def read(
        self, group: str, wanted: Mapping[str, Sequence[int]]
    ) -> Mapping[tuple[str, int], PositionOrError]:
        self.reads += 1
        self._request()
        ledger = self.groups[group]
        return {
            (topic, number): ledger.shown((topic, number))
            for topic, numbers in wanted.items()
            for number in numbers
        }

    def close(self) -> None:
        pass


class MemoryLogReader(_CanFail):
    """`LogReader` over logs; `requests` counts the calls. A partition without a log has no leader."""

    def __init__(self) -> None:
        super().__init__()
        self.logs: dict[TopicPartition, Log] = {}
        self.lives: dict[str, Lifetime] = {}
        self.transactions: dict[TopicPartition, OpenTransaction | PartitionUnavailable] = {}
        self.requests = {"extents": 0, "batch_times": 0, "lifetimes": 0}

    def hold(self, topic: str, number: int, start: int, end: int) -> None:
        """The log holds these offsets."""
        log = self.logs.setdefault((topic, number), Log())
        log.start, log.end = start, end

    def extents(
        self, wanted: Mapping[str, Sequence[int]]
    ) -> Mapping[TopicPartition, Extent | PartitionUnavailable]:
        self._count("extents")
        return {
            (topic, number): self._extent((topic, number))
            for topic, numbers in wanted.items()
            for number in numbers
        }

    def _extent(self, key: TopicPartition) -> Extent | PartitionUnavailable:
        log = self.logs.get(key)
        if log is None:
            return PartitionUnavailable(f"{key[0]}/{key[1]} has no leader, or does not exist")
        return Extent(log.start, log.stable_end, log.end - log.stable_end)

    def offsets_at(
        self, times_ms: Mapping[TopicPartition, int], *, committed: bool = True
    ) -> Mapping[TopicPartition, int | PartitionUnavailable]:
        self._request()
        isolation = READ_COMMITTED if committed else READ_UNCOMMITTED
        return {key: self._offset_at(key, time_ms, isolation) for key, time_ms in times_ms.items()}

    def _offset_at(
        self, key: TopicPartition, time_ms: int, isolation: int
    ) -> int | PartitionUnavailable:
        log = self.logs.get(key)
        if log is None:
            return PartitionUnavailable(f"{key[0]}/{key[1]} has no leader, or does not exist")
        found = log.offset_at(time_ms, isolation=isolation)
        return found if found >= 0 else log.stable_end

    def batch_times(
        self, offsets: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, BatchTime]:
        self._count("batch_times")
        found = {
            key: next((time for time in self.logs[key].times if time.last >= offset), None)
            for key, offset in offsets.items()
            if key in self.logs
        }
        return {key: time for key, time in found.items() if time is not None}

    def open_transactions(
        self, keys: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, OpenTransaction | PartitionUnavailable]:
        self._request()
        return {key: self.transactions[key] for key in keys if key in self.transactions}

    def lifetimes(self, topics: Sequence[str]) -> Mapping[str, Lifetime]:
        self._count("lifetimes")
        return {topic: self.lives[topic] for topic in topics if topic in self.lives}

    def close(self) -> None:
        pass

    def _count(self, call: str) -> None:
        self.requests[call] += 1
        self._request()
