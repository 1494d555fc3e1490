"""Consumer groups of a cluster: interface; `requests` implements it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ureplicator_common.kafka import ClusterUnavailable

TopicPartition = tuple[str, int]

SHARE = "share"
"""Kind of a share group (KIP-932)."""

EMPTY_STATES = frozenset({"Empty", "Dead"})
"""States of a group without members, in both group protocols. Any other one counts as a group with members,
also one that this version does not know."""


class CommittedOffset(NamedTuple):
    """Next offset that a group reads, and the metadata that its consumer stored with it."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group in a list: its state, and its kind (`protocol_type`: "consumer", "connect", "share", ..., or
    "" for offsets without members)."""

    id: str
    kind: str
    state: str

    @property
    def has_members(self) -> bool:
        return self.state not in EMPTY_STATES


@dataclass(frozen=True, slots=True)
class GroupList:
    """Groups of a cluster. `failed`: brokers whose groups are missing, with the reasons. `share`: the brokers
    show start offsets of share groups, and let them be set (Kafka 4.2). `cluster_id`: its own id."""

    groups: Mapping[str, ListedGroup] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    share: bool = False
    cluster_id: str = ""


Offsets = Mapping[TopicPartition, CommittedOffset]


class ConsumerGroups(Protocol):
    """Groups of one cluster. Belongs to one thread. A failure of one group is its value in the result."""

    def listed(self) -> GroupList:
        """All groups, by one request to each broker. Raises ClusterUnavailable."""
        ...

    def offsets(self, groups: Sequence[str]) -> Mapping[str, Offsets | ClusterUnavailable]:
        """Committed offsets of each group, start offsets of one that was listed as a share group; the same
        object as before if they are the same. Raises ClusterUnavailable.
        """
        ...

    def states(self, groups: Sequence[str]) -> Mapping[str, str | ClusterUnavailable]:
        """State of each group, read from its coordinator; "Dead" for one that does not exist.

        Raises ClusterUnavailable.
        """
        ...

    def commit(
        self, groups: Mapping[str, Offsets], *, share: Collection[str] = ()
    ) -> Mapping[str, Mapping[TopicPartition, str] | ClusterUnavailable]:
        """Commit for groups without members, with the leader epoch -1; the coordinator refuses a group that
        has some. The partitions that were refused, with the reasons. Of groups in `share` the start offsets
        are set. Raises ClusterUnavailable.
        """
        ...

    def delete_offsets(
        self, groups: Mapping[str, Collection[TopicPartition]]
    ) -> Mapping[str, Mapping[TopicPartition, str] | ClusterUnavailable]:
        """Delete committed offsets; the coordinator refuses it for topics that members of the group have
        subscribed to. The partitions that were refused, with the reasons. Raises ClusterUnavailable.
        """
        ...

    def close(self) -> None: ...
