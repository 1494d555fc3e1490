"""What we need of a Kafka cluster outside the hot path; `admin`, `positions`, `logs` and `memory`
provide it.

Addresses, TLS and SASL come from one set of properties per cluster, with librdkafka's names, whichever
library or socket of our own does the talking.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ureplicator_common.errors import PermanentError, TemporaryError


class ClusterUnavailable(TemporaryError):
    """No broker of the cluster answered, or none that may answer this now."""


class PartitionUnavailable(ClusterUnavailable):
    """One partition has no leader, or its leader refuses: the others are not concerned."""


class TopicAlreadyExists(PermanentError):
    """Somebody made the topic in the meantime."""


class TopicRefused(PermanentError):
    """The cluster will not make or grow this topic (name, policy, rights); the text says why."""


def topic_id_text(id: uuid.UUID) -> str:
    """As Kafka's tools write it: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(id.bytes).rstrip(b"=").decode()


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """`topic_id` is the cluster's own id (a recreated topic gets another), "" where unknown.

    `trouble`: why the cluster could not tell about this topic just now; nothing else counts then.
    """

    partitions: int
    topic_id: str = ""
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Position:
    """Where copying goes on: `offset` is the next source offset, -1 where none is stored.

    `leader_epoch` is that of the last copied batch at the source (-1 unknown). `metadata` tells
    which cluster and topic the position belongs to and who committed it.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class TopicAdmin(Protocol):
    """Topics of one cluster. Every call may raise ClusterUnavailable."""

    def topics(self) -> Mapping[str, TopicInfo]:
        """All topics that are not internal, in one call."""
        ...

    def find(self, topics: Sequence[str]) -> Mapping[str, TopicInfo]:
        """These topics. Only one that the cluster *says* does not exist is missing in the answer."""
        ...

    def configs(self, topic: str) -> Mapping[str, str]:
        """Settings that were given to the topic itself (defaults left out)."""
        ...

    def create_topic(self, topic: str, *, partitions: int, configs: Mapping[str, str]) -> None:
        """Done when the cluster shows it. Raises TopicAlreadyExists, TopicRefused."""
        ...

    def grow_topic(self, topic: str, *, partitions: int) -> None:
        """Raise the partition count. Raises TopicRefused."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Extent:
    """What a partition holds for readers of committed records: offsets `start` to before `end`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class BatchTime:
    """Offsets of one batch of a source, and the time of its first record; -1: it was given none."""

    first: int
    last: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Lifetime:
    """When a topic lets go of records by itself; None: never for that reason."""

    retention_ms: int | None = None
    retention_bytes: int | None = None


class LogReader(Protocol):
    """Reads what the logs of a source hold, for people (see `logs`). May raise ClusterUnavailable."""

    def extents(
        self, wanted: Mapping[str, Sequence[int]]
    ) -> Mapping[tuple[str, int], Extent | PartitionUnavailable]:
        """Topic -> partitions in; every one of them out, or why not."""
        ...

    def batch_times(
        self, offsets: Mapping[tuple[str, int], int]
    ) -> Mapping[tuple[str, int], BatchTime]:
        """The batch that a reader at each offset would get next; those at hand, in this order."""
        ...

    def lifetimes(self, topics: Sequence[str]) -> Mapping[str, Lifetime]:
        """Those of the topics that exist and may be described."""
        ...

    def close(self) -> None: ...


class PositionReader(Protocol):
    """Reads what copiers committed (see `positions`)."""

    def read(
        self, group: str, wanted: Mapping[str, Sequence[int]]
    ) -> Mapping[tuple[str, int], Position]:
        """Target topic -> partitions in; (target topic, partition) -> position out, as last committed.

        Raises ClusterUnavailable.
        """
        ...

    def close(self) -> None: ...
