"""Groups of a source that a route syncs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ureplicator_common.kafka.groups import SHARE, ListedGroup
from ureplicator_common.model import POSITION_GROUP_PREFIX

CONSUMER_KINDS = frozenset({"", "consumer"})
"""Kinds of groups whose committed offsets say where they go on. Streams groups have state of their own beside
them, connect groups nothing."""


@dataclass(frozen=True, slots=True)
class GroupFilter:
    """Patterns of group ids, in which `.` is any character: full match, exclusion wins."""

    include: tuple[re.Pattern[str], ...]
    exclude: tuple[re.Pattern[str], ...] = ()

    @classmethod
    def of(cls, include: Sequence[str], exclude: Sequence[str]) -> GroupFilter:
        return cls(tuple(map(_compiled, include)), tuple(map(_compiled, exclude)))

    @classmethod
    def named(cls, groups: Iterable[str]) -> GroupFilter:
        """A selection of exactly these groups."""
        return cls(tuple(re.compile(re.escape(group)) for group in groups))

    def matches(self, group: str) -> bool:
        """False for every group with positions of a fleet: they are offsets of a source, and a group of the
        same name at the source is published for lag tools. Written to the target they would replace the
        positions."""
        if group.startswith(POSITION_GROUP_PREFIX):
            return False
        is_included = any(pattern.fullmatch(group) for pattern in self.include)
        return is_included and not any(pattern.fullmatch(group) for pattern in self.exclude)


def _compiled(pattern: str) -> re.Pattern[str]:
    """Brokers take any character in a group id, also line feeds."""
    return re.compile(pattern, re.DOTALL)


def unsupported(group: ListedGroup, *, share: bool) -> str:
    """Reason why a group is not synced by its kind; "" if it can be. `share`: brokers of both clusters let
    start offsets of share groups be set."""
    if group.kind in CONSUMER_KINDS or (group.kind == SHARE and share):
        return ""
    if group.kind == SHARE:
        return "share groups are synced between clusters of Kafka 4.2 and later"
    return f"{group.kind} groups are not synced"
