"""Brokers, leaders and topic ids of a cluster, as a Metadata response shows them.

A broker without KRaft may respond before it knows its cluster: that there are no brokers, and that no
topic exists. Kafka's own clients pass over such a response, and so does this module: taken as it is, it would
show that all topics were deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ureplicator_common.kafka.errors import ErrorCode, refusal
from ureplicator_common.kafka.wire.metadata import METADATA_VERSION, Metadata, decode_metadata
from ureplicator_common.kafka.wire.reader import CORRELATION_ID_BYTES


@dataclass(frozen=True, slots=True)
class Broker:
    node_id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Leader:
    """Leader of a partition; node -1 while it has none."""

    node_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One Metadata response. `missing`: requested topics that do not exist. `refused`: those that the brokers
    do not show, with the reason; whether they exist is not known."""

    cluster_id: str
    brokers: Mapping[int, Broker]
    leaders: Mapping[tuple[str, int], Leader]
    topic_ids: Mapping[str, str]
    missing: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict)

    def leader_of(self, topic: str, number: int) -> Broker | None:
        """The broker that leads a partition; None while it has no leader, and where it is not shown."""
        leader = self.leaders.get((topic, number))
        return self.brokers.get(leader.node_id) if leader else None

    def absence(self, topic: str) -> str:
        """Reason why a partition of a topic has no leader here."""
        return self.refused.get(topic, "no leader")

    def leaderless(self, topic: str) -> str:
        """The same, to follow the name of the partition."""
        reason = self.refused.get(topic)
        return f": {reason}" if reason else " has no leader, or does not exist"


class ViewDecoder:
    """Decodes Metadata responses, in place of the library's class. Most are byte for byte the last one.
    `cluster`: name of the cluster in reasons."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._body = b""
        self._view: ClusterView | None = None

    def decode(self, raw: bytes, *, version: int, header: bool) -> ClusterView:
        """Raises ClusterUnavailable: the response is malformed, or of a broker that has just started."""
        assert (version, header) == (METADATA_VERSION, True)
        body = raw[CORRELATION_ID_BYTES:]
        if self._view is None or body != self._body:
            self._view = _view(decode_metadata(body), self._cluster)
            self._body = body
        return self._view


def _view(metadata: Metadata, cluster: str) -> ClusterView:
    known = [row for row in metadata.topics if row.error == ErrorCode.NONE]
    leaders: dict[tuple[int, int], Leader] = {}
    """Many partitions have the same node with the same epoch."""
    return ClusterView(
        cluster_id=metadata.cluster_id,
        brokers={row.node_id: Broker(*row) for row in metadata.brokers},
        leaders={
            (topic.name, number): leaders.get((node, epoch))
            or leaders.setdefault((node, epoch), Leader(node, epoch))
            for topic in known
            for _, number, node, epoch in topic.partitions
        },
        topic_ids={topic.name: _uuid_text(topic.id) for topic in known},
        missing=frozenset(
            topic.name
            for topic in metadata.topics
            if topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ),
        refused={
            topic.name: refusal(topic.error, f"DESCRIBE on topic {topic.name}", cluster)
            for topic in metadata.topics
            if topic.error not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        },
    )


def _uuid_text(id: bytes) -> str:
    """The text of a UUID, as of `str`, which takes four times as long."""
    text = id.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
