"""Interfaces to Kafka clusters outside the data path; `admin`, `positions` and `log_offsets` implement
them.

Addresses, TLS and SASL come from one set of properties per cluster, with librdkafka's names, whichever
library or socket of our own connects.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ureplicator_common.errors import OperatingError, PermanentError, TemporaryError
from ureplicator_common.model import BROKER_DEFAULT_REPLICATION


class ClusterUnavailable(TemporaryError):
    """No broker of the cluster responded, or none that can serve this request now."""


class UntrustedConnection(ClusterUnavailable):
    """TLS with a broker failed: a certificate of either end is missing, wrong, or not for this host."""


class LoginRefused(ClusterUnavailable):
    """A broker does not accept the login, or we do not trust the broker's part of it."""


class PartitionUnavailable(ClusterUnavailable):
    """One partition has no leader, or its leader refuses; other partitions are not affected."""


class TopicAlreadyExists(PermanentError):
    """The topic was created in the meantime."""


class TopicRefused(PermanentError):
    """The cluster refuses to create or expand this topic (name, policy, permission; see the text)."""


def topic_id_text(id: uuid.UUID) -> str:
    """Notation of Kafka's tools: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(id.bytes).rstrip(b"=").decode()


def topic_id_uuid(text: str) -> uuid.UUID:
    """`topic_id_text` reversed. Raises ValueError."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """`topic_id` is the cluster's own id (a recreated topic gets another), "" where unknown.

    `error`: error of the cluster for this topic; the other fields are meaningless then.
    """

    partitions: int
    topic_id: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class ListedTopics:
    """Topics that a cluster lists, and its own id, by one response."""

    cluster_id: str
    topics: Mapping[str, TopicInfo]


@dataclass(frozen=True, slots=True)
class Position:
    """Position from which copying continues: `offset` is the next source offset, -1 where none is stored.

    `leader_epoch` is that of the last copied batch at the source (-1 unknown). `metadata`: cluster and
    topic that the position belongs to, and its writer (`provenance`).
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


PositionOrError = Position | PartitionUnavailable
"""A stored position, or why the cluster does not show it."""


@dataclass(frozen=True, slots=True)
class TopicSetting:
    """Value of a setting of a topic. `is_own`: set on the topic itself, else a default of the brokers."""

    value: str
    is_own: bool = False


class TopicAdmin(Protocol):
    """Topics of one cluster. Every call may raise ClusterUnavailable."""

    def listing(self) -> ListedTopics:
        """All topics that are not internal, in one call; may be the same object as before if nothing has
        changed."""
        ...

    def find(self, topics: Sequence[str]) -> Mapping[str, TopicInfo]:
        """Find these topics. Missing in the result are only those that the cluster reports as unknown."""
        ...

    def settings_of(self, topic: str) -> Mapping[str, TopicSetting]:
        """Settings of one topic, its own and the brokers' defaults."""
        ...

    def effective_configs(
        self, topics: Sequence[str], *, timeout_s: float
    ) -> Mapping[str, Mapping[str, str] | OperatingError]:
        """Settings of each topic with the brokers' defaults, or why the cluster does not describe it."""
        ...

    def settings(
        self, topics: Sequence[str], *, timeout_s: float
    ) -> Mapping[str, Mapping[str, TopicSetting] | OperatingError]:
        """Settings of each topic, its own and the brokers' defaults, or why they are not described."""
        ...

    def alter_settings(
        self, changes: Mapping[str, Mapping[str, str | None]]
    ) -> Mapping[str, OperatingError]:
        """Topic -> setting -> value, None to remove the topic's own; other settings stay. All changes of a
        topic are made, or none: the result has the topics without, with TopicRefused or another reason."""
        ...

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int,
        configs: Mapping[str, str],
        replication_factor: int = BROKER_DEFAULT_REPLICATION,
    ) -> str:
        """Create a topic; its id, when the metadata has it. Raises TopicAlreadyExists, TopicRefused."""
        ...

    def grow_topic(self, topic: str, *, partitions: int) -> None:
        """Raise the partition count. Raises TopicRefused."""
        ...

    def delete_topic(self, topic_id: str) -> None:
        """Delete the topic with this id; one that does not exist is deleted. Raises TopicRefused."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Extent:
    """Offsets of a partition for readers of committed records: `start` to before `end`. `held`: offsets
    between that end and the end of the log, from the first open transaction on."""

    start: int
    end: int
    held: int = 0


@dataclass(frozen=True, slots=True)
class BatchTime:
    """Offsets of one batch of a source, and the time of its first record; -1 without one."""

    first: int
    last: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that holds the stable end of a partition from `first_offset` on. Its id and its state at
    the coordinator are "" if the brokers do not tell, `began_ms` (wall clock of the coordinator) is -1."""

    producer_id: int
    first_offset: int
    transactional_id: str = ""
    state: str = ""
    began_ms: int = -1


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Retention limits of a topic; None: no limit of that kind."""

    retention_ms: int | None = None
    retention_bytes: int | None = None


class LogReader(Protocol):
    """Offsets and retention of source logs (see `log_offsets`). May raise ClusterUnavailable."""

    def extents(
        self, wanted: Mapping[str, Sequence[int]]
    ) -> Mapping[tuple[str, int], Extent | PartitionUnavailable]:
        """Topic -> partitions in; the extent of each out, or its error."""
        ...

    def offsets_at(
        self, times_ms: Mapping[tuple[str, int], int], *, committed: bool = True
    ) -> Mapping[tuple[str, int], int | PartitionUnavailable]:
        """Offset of the first record not older than each time, or the end of committed records; the
        ends of a log are times too (see `client`). Not `committed`: records of open transactions count."""
        ...

    def batch_times(
        self, offsets: Mapping[tuple[str, int], int]
    ) -> Mapping[tuple[str, int], BatchTime]:
        """The next batch for a reader at each offset, in this order; not all may be in the result."""
        ...

    def open_transactions(
        self, keys: Sequence[tuple[str, int]]
    ) -> Mapping[tuple[str, int], OpenTransaction | PartitionUnavailable]:
        """The first open transaction of each partition that has one, or why it is not known."""
        ...

    def lifetimes(self, topics: Sequence[str]) -> Mapping[str, Lifetime]:
        """Topics that exist and may be described."""
        ...

    def close(self) -> None: ...


class PositionReader(Protocol):
    """Reads committed positions (see `positions`)."""

    def read(
        self, group: str, wanted: Mapping[str, Sequence[int]]
    ) -> Mapping[tuple[str, int], PositionOrError]:
        """Target topic -> partitions in; (target topic, partition) -> position out, as last committed, or its
        error. Raises ClusterUnavailable."""
        ...

    def close(self) -> None: ...
