"""Consumer groups of a cluster in memory, that can fail: the twin of `kafka.groups.requests`.

As a coordinator does, it refuses a plain commit for a group with members. `unlisted`: groups on brokers that
do not respond to the list; `failing`: groups whose coordinator does not respond; `lost`: the whole cluster
does not. `joining`: groups that get a member after they were listed. `share`: brokers have share groups.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.groups import (
    SHARE,
    CommittedOffset,
    GroupList,
    ListedGroup,
    Offsets,
    TopicPartition,
)

REFUSED = "UNKNOWN_MEMBER_ID"
NOT_EMPTY, NO_SUCH_GROUP = "NON_EMPTY_GROUP", "GROUP_ID_NOT_FOUND"
SUBSCRIBED = "GROUP_SUBSCRIBED_TO_TOPIC"
T = TypeVar("T")


@dataclass
class MemoryGroup:
    offsets: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    kind: str = "consumer"
    state: str = "Empty"


@dataclass
class MemoryConsumerGroups:
    """`commits` are the accepted ones: group, partition, offset."""

    groups: dict[str, MemoryGroup] = field(default_factory=dict)
    unlisted: set[str] = field(default_factory=set)
    failing: set[str] = field(default_factory=set)
    joining: set[str] = field(default_factory=set)
    lost: bool = False
    share: bool = True
    commits: list[tuple[str, TopicPartition, int]] = field(default_factory=list)
    reading: Callable[[Sequence[str]], None] = lambda groups: None
    before_states: Callable[[], None] = lambda: None
    before_commit: Callable[[], None] = lambda: None
    before_delete: Callable[[], None] = lambda: None
    deletions: list[tuple[str, TopicPartition]] = field(default_factory=list)
    closed: bool = False
    cluster_id: str = "its id"

    def add(self, id: str, offsets: Mapping[TopicPartition, int], *, state: str = "Empty") -> None:
        rows = {key: CommittedOffset(offset) for key, offset in offsets.items()}
        self.groups[id] = MemoryGroup(rows, state=state)

    def offset(self, id: str, partition: TopicPartition) -> int | None:
        group = self.groups.get(id)
        found = group.offsets.get(partition) if group else None
        return found.offset if found else None

    def listed(self) -> GroupList:
        self._check()
        failed = {"b:1": "does not respond"} if self.unlisted else {}
        return GroupList(
            {
                id: ListedGroup(id, group.kind, group.state)
                for id, group in self.groups.items()
                if id not in self.unlisted
            },
            failed,
            share=self.share,
            cluster_id=self.cluster_id,
        )

    def offsets(self, groups: Sequence[str]) -> Mapping[str, Offsets | ClusterUnavailable]:
        self.reading(groups)
        return self._each(groups, lambda id: dict(self._group(id).offsets))

    def states(self, groups: Sequence[str]) -> Mapping[str, str | ClusterUnavailable]:
        self.before_states()
        for id in self.joining & set(groups):
            self.groups.setdefault(id, MemoryGroup()).state = "Stable"
        return self._each(groups, self._state)

    def _state(self, id: str) -> str:
        """Share groups are not among those that are described."""
        group = self.groups.get(id)
        return "Dead" if group is None or group.kind == SHARE else group.state

    def commit(
        self, groups: Mapping[str, Offsets], *, share: Collection[str] = ()
    ) -> Mapping[str, Mapping[TopicPartition, str] | ClusterUnavailable]:
        self.before_commit()
        return self._each(list(groups), lambda id: self._commit(id, groups[id], id in share))

    def delete_offsets(
        self, groups: Mapping[str, Collection[TopicPartition]]
    ) -> Mapping[str, Mapping[TopicPartition, str] | ClusterUnavailable]:
        self.before_delete()
        return self._each(list(groups), lambda id: self._delete(id, groups[id]))

    def close(self) -> None:
        self.closed = True

    def _commit(self, id: str, offsets: Offsets, share: bool) -> Mapping[TopicPartition, str]:
        group = self.groups.setdefault(id, MemoryGroup(kind=SHARE if share else ""))
        if share is not (group.kind == SHARE):
            return dict.fromkeys(offsets, NO_SUCH_GROUP)
        if group.state != "Empty":
            return dict.fromkeys(offsets, NOT_EMPTY if share else REFUSED)
        group.offsets |= offsets
        self.commits += [(id, key, committed.offset) for key, committed in offsets.items()]
        return {}

    def _delete(self, id: str, keys: Collection[TopicPartition]) -> Mapping[TopicPartition, str]:
        group = self._group(id)
        if group.state != "Empty":
            return dict.fromkeys(keys, SUBSCRIBED)
        self.deletions += [(id, key) for key in keys if group.offsets.pop(key, None)]
        return {}

    def _group(self, id: str) -> MemoryGroup:
        return self.groups.get(id, MemoryGroup())

    def _check(self) -> None:
        if self.lost:
            raise ClusterUnavailable("no broker responds")

    def _each(
        self, groups: Sequence[str], call: Callable[[str], T]
    ) -> dict[str, T | ClusterUnavailable]:
        self._check()
        return {
            id: ClusterUnavailable(f"group {id}: no coordinator")
            if id in self.failing
            else call(id)
            for id in groups
        }
