"""Survey of the groups of a route: what both clusters say about them, and the decision for each.

list groups at the source and at the target      one request to each broker
offsets at the source                            of the selected groups
positions, logs of the target, offset map        of the partitions that they have offsets on
offsets at the target                            last, as the decision compares with them
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.groups import ConsumerGroups, GroupList, ListedGroup, Offsets
from ureplicator_controller.core.groups.decisions import (
    GroupDecision,
    GroupView,
    Members,
    SyncState,
    decide,
)
from ureplicator_controller.core.groups.selection import GroupFilter, unsupported
from ureplicator_controller.core.groups.topics import RouteTopic
from ureplicator_controller.engines.groups.copied import CopiedReader

RECHECK_ROUNDS = 12
"""With an interval of 5 s a minute: then repeats behind a crash, and logs that begin later, are seen."""
_SETTLED = frozenset({SyncState.SYNCED, SyncState.NO_OFFSETS})
"""States that hold on while the offsets at the source do."""
UNLISTED = "the list of the source's groups is incomplete: "


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteClusters:
    """Both ends of a route. They belong to one thread."""

    source: ConsumerGroups
    target: ConsumerGroups
    copied: CopiedReader

    def close(self) -> None:
        for each in (self.source, self.target, self.copied):
            each.close()


class Survey:
    """Reads the groups of a route again and again. Belongs to one thread."""

    def __init__(self, clusters: RouteClusters, *, selected: GroupFilter) -> None:
        self._clusters = clusters
        self._selected = selected
        self._known: Mapping[str, ListedGroup] = {}
        self._offsets: Mapping[str, Offsets | ClusterUnavailable] = {}
        self._synced: dict[str, tuple[Offsets, GroupDecision]] = {}
        self._round = 0

    def read(self, topics: Mapping[str, RouteTopic]) -> Sequence[GroupDecision]:
        """Raises ClusterUnavailable where nothing at all could be read."""
        source, target = self._clusters.source, self._clusters.target
        here, there = source.listed(), target.listed()
        groups = self._groups(here)
        ids = [group.id for group in groups if not unsupported(group)]
        self._offsets = source.offsets(ids)
        quiet = self._quiet([id for id in ids if id in here.groups], there)
        on_route = {
            id: _on(topics, found) for id, found in self._offsets.items() if id not in quiet
        }
        wanted = {key for found in on_route.values() for key in found}
        copied = self._clusters.copied.read(topics, wanted)
        committed = target.offsets([id for id, found in on_route.items() if found])
        missing = _text(here)
        return [
            quiet[group.id]
            if group.id in quiet
            else decide(
                _view(group, self._offsets.get(group.id), committed.get(group.id), there)
                if group.id in here.groups
                else _unlisted(group, missing),
                copied,
            )
            for group in groups
        ]

    def remember(self, decisions: Sequence[GroupDecision]) -> None:
        """Outcomes of the decisions that were read last."""
        self._synced = {
            each.group: (offsets, each)
            for each in decisions
            if each.state in _SETTLED
            and (offsets := self._offsets.get(each.group)) is not None
            and not isinstance(offsets, ClusterUnavailable)
        }

    def _quiet(self, ids: Sequence[str], there: GroupList) -> Mapping[str, GroupDecision]:
        """Decisions that hold on. Each round decides another part of the groups again."""
        self._round += 1
        found: dict[str, GroupDecision] = {}
        for number, id in enumerate(ids):
            offsets, decision = self._synced.get(id, (None, None))
            is_due = (number + self._round) % RECHECK_ROUNDS == 0
            if decision is None or is_due or members(id, there)[0] is not Members.NONE:
                continue
            if offsets is self._offsets[id] or offsets == self._offsets[id]:
                found[id] = decision
        return found

    def _groups(self, listed: GroupList) -> list[ListedGroup]:
        """Selected groups. One that a broker failed to list is not gone."""
        kept = {**self._known, **listed.groups} if listed.failed else listed.groups
        self._known = {id: kept[id] for id in sorted(kept) if self._selected.matches(id)}
        return list(self._known.values())


def members(group: str, listed: GroupList) -> tuple[Members, str]:
    """Members by the list of the target, and why they are not known. A group that no broker lists has none,
    if all have responded."""
    found = listed.groups.get(group)
    if found is not None:
        return Members.SOME if found.has_members else Members.NONE, ""
    if listed.failed:
        return Members.UNKNOWN, f"the list of the target's groups is incomplete: {_text(listed)}"
    return Members.NONE, ""


def _view(
    group: ListedGroup,
    source: Offsets | ClusterUnavailable | None,
    target: Offsets | ClusterUnavailable | None,
    listed: GroupList,
) -> GroupView:
    found, reason = members(group.id, listed)
    reasons = [str(each) for each in (source, target) if isinstance(each, ClusterUnavailable)]
    return GroupView(
        id=group.id,
        source=None if isinstance(source, ClusterUnavailable) else source,
        target=None if isinstance(target, ClusterUnavailable) else target,
        members=found,
        unsupported=unsupported(group),
        reason="; ".join(filter(None, (*reasons, reason))),
    )


def _unlisted(group: ListedGroup, missing: str) -> GroupView:
    return GroupView(
        id=group.id,
        source=None,
        target=None,
        members=Members.UNKNOWN,
        unsupported=unsupported(group),
        reason=UNLISTED + missing,
    )


def _on(
    topics: Mapping[str, RouteTopic], offsets: Offsets | ClusterUnavailable
) -> list[tuple[str, int]]:
    if isinstance(offsets, ClusterUnavailable):
        return []
    return [key for key in offsets if key[0] in topics]


def _text(listed: GroupList) -> str:
    return "; ".join(f"{broker}: {reason}" for broker, reason in sorted(listed.failed.items()))
