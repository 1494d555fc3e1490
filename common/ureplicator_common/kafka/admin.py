"""Topics of a real cluster, through confluent-kafka, which beside it only the streams of the audit import.

Its traps, and the countermeasures:

* A temporary `AdminClient` that is garbage-collected cancels the futures it returned: one client lives as
  long as this object, and every future is waited for before a call returns.
* An error of one topic (leader election, no permission) is the `error` of that topic, not of the others;
  only the error UNKNOWN_TOPIC_OR_PARTITION means that it does not exist.
* A metadata request for one topic by name may create it (`auto.create.topics.enable` of the broker);
  `describe_topics` never does, and returns the topic id as well.
* A broker reports "created" before the other brokers know the topic. `create_topic` and `grow_topic`
  return only when the metadata has every partition with a leader, since the topic is used next.
* A KRaft broker shows the topics of a request only when it has created the logs of the request before,
  some milliseconds each. So threads that create topics at the same time share a request, and those that
  look for a topic or its settings, too: an import of thousands of topics would keep the brokers busy.
* Every call has a time limit (`timeout_s`); without a broker librdkafka would retry without end. It also
  writes each failed connection to stderr: silenced, since the raised error reports the same once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import closing
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported without __all__
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
    TopicDescription,
)

from ureplicator_common.errors import ConfigurationError, OperatingError
from ureplicator_common.file_signatures import signature
from ureplicator_common.kafka import (
    ClusterUnavailable,
    ListedTopics,
    LoginRefused,
    TopicAlreadyExists,
    TopicInfo,
    TopicRefused,
    TopicSetting,
    UntrustedConnection,
)
from ureplicator_common.kafka.client import open_client
from ureplicator_common.kafka.errors import DENIED, named_cluster, refusal
from ureplicator_common.kafka.security.settings import SecuritySettings, librdkafka, parse
from ureplicator_common.kafka.topics.deletion import delete_topic
from ureplicator_common.kafka.topics.listing import TopicListing
from ureplicator_common.model import BROKER_DEFAULT_REPLICATION
from ureplicator_common.shared_requests import SharedRequests

MAX_CREATED_TOGETHER = 5_000
"""Partitions in one request. A KRaft controller refuses those with more than 10,000."""
MAX_DESCRIBED_TOGETHER = 1_000
"""Topics in one request."""
REASON_S = 3.0
_POLL_S = 0.05
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""Topic id from a broker without topic ids (before 2.8): sixteen zero bytes."""

_TEMPORARY = frozenset(
    {
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_CONTROLLER,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
        KafkaError.REASSIGNMENT_IN_PROGRESS,
    }
)
"""Temporary errors of brokers; any other refusal is permanent."""

T = TypeVar("T")


class ConfluentTopicAdmin:
    """`TopicAdmin` of the cluster with these client properties. `name`: of the cluster, in reasons."""

    def __init__(
        self, properties: Mapping[str, str], *, name: str = "", timeout_s: float = 5.0
    ) -> None:
        self._servers = properties.get("bootstrap.servers", "")
        self._cluster = named_cluster(name, self._servers)
        self._timeout_s = timeout_s
        self._open = partial(open_client, name, properties, timeout_s=timeout_s)
        self._listing = TopicListing(self._open)
        self._creations = SharedRequests(self._create, max_size=MAX_CREATED_TOGETHER)
        self._descriptions: SharedRequests[str, str, TopicDescription | KafkaError] = (
            SharedRequests(self._describe, max_size=MAX_DESCRIBED_TOGETHER)
        )
        self._config_reads: SharedRequests[str, str, Mapping[str, TopicSetting]] = SharedRequests(
            lambda topics: _settings_or_error(self.settings(topics, timeout_s=timeout_s)),
            max_size=MAX_DESCRIBED_TOGETHER,
        )
        self._clients = _Clients(
            {
                "log_level": "0",
                "socket.timeout.ms": str(round(timeout_s * 1_000)),
                "reconnect.backoff.max.ms": "1000",
                **properties,
            }
        )

    @property
    def _client(self) -> AdminClient:
        return self._clients.current()

    def listing(self) -> ListedTopics:
        return self._listing.read()

    def find(self, topics: Sequence[str]) -> Mapping[str, TopicInfo]:
        found = self._described(topics[0]) if len(topics) == 1 else self._describe(topics)
        return {
            name: _info(name, described, self._cluster)
            for name, described in found.items()
            if isinstance(described, KafkaError) or not described.is_internal
        }

    def settings_of(self, topic: str) -> Mapping[str, TopicSetting]:
        return self._config_reads.perform(topic, topic) or {}

    def effective_configs(
        self, topics: Sequence[str], *, timeout_s: float
    ) -> Mapping[str, Mapping[str, str] | OperatingError]:
        return {
            topic: settings
            if isinstance(settings, OperatingError)
            else {name: setting.value for name, setting in settings.items()}
            for topic, settings in self.settings(topics, timeout_s=timeout_s).items()
        }

    def settings(
        self, topics: Sequence[str], *, timeout_s: float
    ) -> Mapping[str, Mapping[str, TopicSetting] | OperatingError]:
        if not topics:
            return {}
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        futures = self._call(
            lambda: self._client.describe_configs(resources, request_timeout=timeout_s)
        )
        found: dict[str, Mapping[str, TopicSetting] | OperatingError] = {}
        for resource, future in futures.items():
            try:
                entries = future.result(timeout=timeout_s * 2)
            except KafkaException as error:
                if _is_client_error(_cause(error)):
                    raise self._translated(error) from error
                right = f"DESCRIBE_CONFIGS on topic {resource.name}"
                found[resource.name] = self._translated(error, right=right)
            except FutureTimeout as error:
                raise self._no_response() from error
            else:
                found[resource.name] = _settings(entries)
        return found

    def alter_settings(
        self, changes: Mapping[str, Mapping[str, str | None]]
    ) -> Mapping[str, OperatingError]:
        if not changes:
            return {}
        resources = [_altered(topic, wanted) for topic, wanted in changes.items()]
        futures = self._call(
            lambda: self._client.incremental_alter_configs(
                resources, request_timeout=self._timeout_s
            ),
            refused=TopicRefused,
        )
        failed: dict[str, OperatingError] = {}
        for resource, future in futures.items():
            try:
                right = f"ALTER_CONFIGS on topic {resource.name}"
                self._result(future, refused=TopicRefused, right=right)
            except OperatingError as error:
                failed[resource.name] = error
        return failed

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int,
        configs: Mapping[str, str],
        replication_factor: int = BROKER_DEFAULT_REPLICATION,
    ) -> str:
        new = NewTopic(
            topic,
            num_partitions=partitions,
            replication_factor=replication_factor,
            config=dict(configs),
        )
        self._creations.perform(topic, new, size=partitions)
        return self._visible(topic, partitions).topic_id

    def _create(self, topics: Sequence[NewTopic]) -> dict[str, Exception | None]:
        """Topics that were not created, with the reason."""
        futures = self._call(
            lambda: self._client.create_topics(list(topics), request_timeout=self._timeout_s),
            refused=TopicRefused,
        )
        failed: dict[str, Exception | None] = {}
        for topic, future in futures.items():
            try:
                self._result(future, refused=TopicRefused, right=f"CREATE on topic {topic}")
            except OperatingError as error:
                failed[topic] = error
        return failed

    def grow_topic(self, topic: str, *, partitions: int) -> None:
        futures = self._call(
            lambda: self._client.create_partitions(
                [NewPartitions(topic, partitions)], request_timeout=self._timeout_s
            ),
            refused=TopicRefused,
        )
        self._result(futures[topic], refused=TopicRefused, right=f"ALTER on topic {topic}")
        self._visible(topic, partitions)

    def delete_topic(self, topic_id: str) -> None:
        with closing(self._open()) as client:
            delete_topic(client, topic_id)

    def close(self) -> None:
        self._clients.close()
        self._listing.close()

    def _described(self, name: str) -> dict[str, TopicDescription | KafkaError]:
        """A topic if it exists, or its error."""
        found = self._descriptions.perform(name, name)
        return {} if found is None else {name: found}

    def _describe(self, names: Sequence[str]) -> dict[str, TopicDescription | KafkaError]:
        """Topics that exist, or the error of one."""
        if not names:
            return {}
        futures = self._call(
            lambda: self._client.describe_topics(
                TopicCollection(list(names)), request_timeout=self._timeout_s
            )
        )
        found: dict[str, TopicDescription | KafkaError] = {}
        for name, future in futures.items():
            try:
                found[name] = future.result(timeout=self._timeout_s)
            except KafkaException as error:
                cause = _cause(error)
                if _is_client_error(cause):
                    raise self._translated(error) from error
                if cause.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    found[name] = cause
            except FutureTimeout as error:
                raise self._no_response() from error
        return found

    def _visible(self, topic: str, partitions: int) -> TopicInfo:
        """The topic, when it has so many partitions, each with a leader."""
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            described = self._described(topic).get(topic)
            if described is not None and _is_whole(described, partitions):
                return _info(topic, described, self._cluster)
            if time.monotonic() > deadline_s:
                raise ClusterUnavailable(
                    f"cluster at {self._servers}: {topic} was accepted, but its {partitions}"
                    f" partitions have no leaders after {self._timeout_s:g} s"
                )
            time.sleep(_POLL_S)

    def _call(
        self, call: Callable[[], T], *, refused: type[OperatingError] = ClusterUnavailable
    ) -> T:
        try:
            return call()
        except KafkaException as error:
            raise self._translated(error, refused=refused) from error
        except (TypeError, ValueError) as error:
            raise refused(f"cluster at {self._servers}: {error}") from error

    def _result(self, future: Future[Any], *, refused: type[OperatingError], right: str) -> Any:
        try:
            return future.result(timeout=self._timeout_s * 2)
        except KafkaException as error:
            raise self._translated(error, refused=refused, right=right) from error
        except FutureTimeout as error:
            raise self._no_response() from error

    def _no_response(self) -> ClusterUnavailable:
        self._clients.raise_reason()
        return ClusterUnavailable(f"cluster at {self._servers}: no response")

    def _translated(
        self,
        error: KafkaException,
        *,
        refused: type[OperatingError] = ClusterUnavailable,
        right: str = "",
    ) -> OperatingError:
        """The failure as an error of this package: unavailable, already exists, or refused. `right`:
        that the request needs."""
        cause = _cause(error)
        if _is_client_error(cause):
            self._clients.raise_reason()
        text = f"cluster at {self._servers}: {_text(cause, right, self._cluster)}"
        if cause.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return TopicAlreadyExists(text)
        if cause.code() in _TEMPORARY or _is_client_error(cause):
            return ClusterUnavailable(text)
        return refused(text)


class _Clients:
    """The client of librdkafka, made again when a file of its secrets or certificates has changed: it reads
    them only at its start. The one before is kept, since its futures may be waited for."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Raises ConfigurationError."""
        self._properties = properties
        self._servers = properties.get("bootstrap.servers", "")
        self._settings = parse(properties)
        self._lock = threading.Lock()
        self._latest: AdminClient | None = None
        self._former: AdminClient | None = None
        self._signature = signature(self._settings.secret_files)
        if not self._settings.secret_files:
            self._latest = self._made()

    def current(self) -> AdminClient:
        """Raises ClusterUnavailable for a file that cannot be read."""
        with self._lock:
            now = signature(self._settings.secret_files)
            if self._latest is None or now != self._signature:
                made = self._made()
                self._former, self._latest, self._signature = self._latest, made, now
            return self._latest

    def _made(self) -> AdminClient:
        try:
            return AdminClient({**librdkafka(self._properties)})
        except KafkaException as error:
            kind = ClusterUnavailable if self._settings.secret_files else ConfigurationError
            raise kind(f"cluster at {self._servers}: {_cause(error).str()}") from error

    def raise_reason(self) -> None:
        """Try a connection of our own after a failure: librdkafka only says that there is no response.

        Raises UntrustedConnection, LoginRefused.
        """
        if self._settings == SecuritySettings():
            return
        with closing(open_client("", self._properties, timeout_s=REASON_S)) as client:
            try:
                client.view([])
            except (UntrustedConnection, LoginRefused):
                raise
            except ClusterUnavailable:
                return

    def close(self) -> None:
        for client in (self._latest, self._former):
            if client is not None:
                client.__exit__(None, None, None)


def _cause(error: KafkaException) -> KafkaError:
    cause: KafkaError = error.args[0]
    return cause


def _is_client_error(cause: KafkaError) -> bool:
    """librdkafka's own codes are negative: no connection, no response. A bad argument is not one."""
    return cause.code() < 0 and cause.code() != KafkaError._INVALID_ARG  # noqa: SLF001


def _is_whole(described: TopicDescription | KafkaError, partitions: int) -> bool:
    """True if a topic has so many partitions, each with a leader."""
    return (
        not isinstance(described, KafkaError)
        and len(described.partitions) >= partitions
        and all(partition.leader for partition in described.partitions)
    )


def _settings_or_error(
    found: Mapping[str, Mapping[str, TopicSetting] | OperatingError],
) -> dict[str, Mapping[str, TopicSetting] | Exception]:
    """The settings, or the error as given, in the type of shared requests."""
    return {**found}


def _info(topic: str, described: TopicDescription | KafkaError, cluster: str) -> TopicInfo:
    if isinstance(described, KafkaError):
        return TopicInfo(0, error=_text(described, f"DESCRIBE on topic {topic}", cluster))
    return TopicInfo(partitions=len(described.partitions), topic_id=_id_text(described))


def _text(cause: KafkaError, right: str, cluster: str) -> str:
    """The brokers' text, or which right is missing."""
    code = cause.code()
    return refusal(code, right, cluster) if code in DENIED else cause.str()


def _settings(entries: Mapping[str, ConfigEntry]) -> dict[str, TopicSetting]:
    """Settings, without those whose value is not shown: they are secrets."""
    own = (ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigSource.DYNAMIC_TOPIC_CONFIG.value)
    return {
        name: TopicSetting(entry.value, entry.source in own)
        for name, entry in entries.items()
        if entry.value is not None
    }


def _altered(topic: str, wanted: Mapping[str, str | None]) -> ConfigResource:
    operations = {True: AlterConfigOpType.DELETE, False: AlterConfigOpType.SET}
    entries = [
        ConfigEntry(name, value, incremental_operation=operations[value is None])
        for name, value in wanted.items()
    ]
    return ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)


def _id_text(topic: TopicDescription) -> str:
    """Kafka's notation: URL-safe base64 without padding."""
    text = str(topic.topic_id).replace("+", "-").replace("/", "_").rstrip("=")
    return "" if text == _NO_ID else text
