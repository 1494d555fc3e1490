"""Survey of the groups of a route: what both clusters say about them, and the decision for each.

list groups at the source and at the target      one request to each broker
offsets at the source                            of the selected groups
positions, logs of the target, offset map        of the partitions that they have offsets on
offsets at the target                            last, as the decision compares with them

A decision that nothing is left to do holds on in the next passes, while the group has the same offsets at
both ends and no member at the target.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.groups import SHARE, ConsumerGroups, GroupList, ListedGroup, Offsets
from ureplicator_controller.core.groups.decisions import (
    GroupDecision,
    GroupView,
    Members,
    PartitionDecision,
    SyncState,
    decide,
)
from ureplicator_controller.core.groups.selection import GroupFilter, unsupported
from ureplicator_controller.core.groups.topics import RouteTopic
from ureplicator_controller.engines.groups.copied import CopiedReader

RECHECK_ROUNDS = 12
"""Rounds after which a decision is made again. With an interval of 5 s a minute: then repeats behind a crash,
and logs that begin later, are seen."""
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
        for client in (self.source, self.target, self.copied):
            client.close()


class _Held(NamedTuple):
    """A decision that holds on, and the offsets that it was made with. `there`: None for a group without
    offsets on the route."""

    here: Offsets
    there: Offsets | None
    decision: GroupDecision


class Survey:
    """Reads the groups of a route again and again. Belongs to one thread."""

    def __init__(self, clusters: RouteClusters, *, selected: GroupFilter) -> None:
        self._clusters = clusters
        self._selected = selected
        self._known: Mapping[str, ListedGroup] = {}
        self._source_list = GroupList()
        self._here: Mapping[str, Offsets | ClusterUnavailable] = {}
        self._there: Mapping[str, Offsets | ClusterUnavailable] = {}
        self._held: dict[str, _Held] = {}
        self._kept: dict[str, _Held] = {}
        self._round = 0

    def read(self, topics: Mapping[str, RouteTopic]) -> Sequence[GroupDecision]:
        """The decisions of `decisions`, all at once."""
        return list(self.decisions(topics))

    def decisions(self, topics: Mapping[str, RouteTopic]) -> Iterator[GroupDecision]:
        """Made one by one, when both clusters were read. Raises ClusterUnavailable where nothing at all
        could be read."""
        source, target = self._clusters.source, self._clusters.target
        here, there = source.listed(), target.listed()
        self._source_list = here
        groups = self._groups(here)
        share = here.share and there.share
        ids = [group.id for group in groups if not unsupported(group, share=share)]
        self._here = source.offsets(ids)
        quiet = self._quiet([id for id in ids if id in here.groups], there)
        on_route = {
            id: _on(topics, offsets) for id, offsets in self._here.items() if id not in quiet
        }
        wanted = {key for offsets in on_route.values() for key in offsets}
        copied = self._clusters.copied.read(topics, wanted)
        read = [id for id, held in quiet.items() if held.there is not None]
        read += [id for id, offsets in on_route.items() if offsets]
        self._there = target.offsets(read)
        missing = _text(here)
        for group in groups:
            if group.id in quiet:
                yield quiet[group.id].decision
            elif group.id in here.groups:
                offsets = self._here.get(group.id), self._there.get(group.id)
                yield decide(_view(group, *offsets, there, share=share), copied)
            else:
                yield decide(_unlisted(group, missing, share=share), copied)

    @property
    def source_list(self) -> GroupList:
        """Groups of the source in the last round."""
        return self._source_list

    @property
    def selected(self) -> int:
        """Number of groups in the last round that the filter selects."""
        return len(self._known)

    def remember(self, decision: GroupDecision) -> None:
        """Outcome of a decision of the last round."""
        held = self._hold(decision) if decision.state in _SETTLED else None
        if held is not None:
            self._kept[decision.group] = held

    def _hold(self, decision: GroupDecision) -> _Held | None:
        """None: it is made again in the next round, as the target's offsets are others by now, or as they
        were written: so what was written is read once."""
        id = decision.group
        before, here, there = self._held.get(id), self._here.get(id), self._there.get(id)
        if not isinstance(here, Mapping) or isinstance(there, ClusterUnavailable):
            return None
        if before is not None and before.decision is decision:
            return before if before.there == there else None
        if there is not None and any(
            _is_written(partition, there) for partition in decision.partitions
        ):
            return None
        return _Held(here, there, replace(decision, partitions=()))

    def _quiet(self, ids: Sequence[str], there: GroupList) -> Mapping[str, _Held]:
        """Decisions that hold on. Each round decides another part of the groups again."""
        self._round += 1
        self._held, self._kept = self._kept, {}
        found: dict[str, _Held] = {}
        for number, id in enumerate(ids):
            held = self._held.get(id)
            is_due = (number + self._round) % RECHECK_ROUNDS == 0
            if held is None or is_due or members(id, there)[0] is not Members.NONE:
                continue
            if held.here is self._here[id] or held.here == self._here[id]:
                found[id] = held
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


def _is_written(each: PartitionDecision, before: Offsets) -> bool:
    found = before.get(each.target)
    return found is None or found.offset != each.target_offset


def _view(
    group: ListedGroup,
    source: Offsets | ClusterUnavailable | None,
    target: Offsets | ClusterUnavailable | None,
    listed: GroupList,
    *,
    share: bool,
) -> GroupView:
    found, reason = members(group.id, listed)
    reasons = [
        str(offsets) for offsets in (source, target) if isinstance(offsets, ClusterUnavailable)
    ]
    return GroupView(
        id=group.id,
        source=None if isinstance(source, ClusterUnavailable) else source,
        target=None if isinstance(target, ClusterUnavailable) else target,
        members=found,
        unsupported=unsupported(group, share=share),
        reason="; ".join(filter(None, (*reasons, reason))),
        share=group.kind == SHARE,
    )


def _unlisted(group: ListedGroup, missing: str, *, share: bool) -> GroupView:
    return GroupView(
        id=group.id,
        source=None,
        target=None,
        members=Members.UNKNOWN,
        unsupported=unsupported(group, share=share),
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
