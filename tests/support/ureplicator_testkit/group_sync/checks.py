"""Properties that must hold in each history of the sync.

L   no offset at the target is lowered
A   no commit is sent for a group that had a member at the target when its round began
P   no offset at the target lies past a record that the group has not read, nor past the end of the log
M   each offset before the stored position is translated exactly, to the last copy of its record, or of the
    next one behind a hole
C   the map's topic has few keys
S   a group that is synced reads nothing again, and `read again` says so
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import pairwise

from ureplicator_common.kafka import ClusterUnavailable
from ureplicator_common.kafka.groups import Offsets, TopicPartition
from ureplicator_controller.core.groups.decisions import GroupDecision, SyncState, measured
from ureplicator_testkit.group_sync.world import KEY, PARTITION, World
from ureplicator_testkit.kafka.memory_groups import MemoryConsumerGroups

MOST_KEYS = 40


class Violation(AssertionError):
    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant


class CheckedTarget(MemoryConsumerGroups):
    """The target's groups: each commit of the sync is checked. `had_members`: at the round's beginning."""

    def __init__(self, world: World, source: MemoryConsumerGroups) -> None:
        super().__init__()
        self._world = world
        self._source = source
        self.had_members: frozenset[str] = frozenset()

    def begin_round(self) -> None:
        self.had_members = frozenset(
            id for id, group in self.groups.items() if group.state != "Empty"
        )

    def commit(
        self, groups: Mapping[str, Offsets], *, share: Collection[str] = ()
    ) -> Mapping[str, Mapping[TopicPartition, str] | ClusterUnavailable]:
        for id, offsets in groups.items():
            if id in self.had_members:
                raise Violation("A", f"{id} has a member")
            if self.groups.get(id) is None or self.groups[id].state == "Empty":
                self._check_offset(id, offsets[KEY].offset)
        return super().commit(groups, share=share)

    def _check_offset(self, id: str, wanted: int) -> None:
        before = self.offset(id, KEY)
        if before is not None and wanted <= before:
            raise Violation("L", f"{id}: {before} becomes {wanted}")
        read = self._source.offset(id, KEY) or 0
        if wanted > (limit := first_unread(self._world, read)):
            raise Violation("P", f"{id}: {wanted} at the target, {limit} is not read")


def check_synced(world: World, decision: GroupDecision) -> None:
    """Check that a synced group reads nothing again. Nothing before a stored position is copied again."""
    for partition in measured(decision).partitions:
        if partition.state is not SyncState.SYNCED or partition.target_offset is None:
            continue
        if partition.read_again:
            raise Violation(
                "S", f"{decision.group}: {partition.read_again} are said to be read again"
            )
        for offset in world.source.live:
            place = world.target.last(offset)
            if (
                offset < partition.source_offset
                and place is not None
                and place >= partition.target_offset
            ):
                raise Violation("S", f"{decision.group}: {offset} is read again at {place}")


def first_unread(world: World, read: int) -> int:
    """Highest offset at the target where a group misses nothing that has read everything before `read`.

    What its owner has not copied comes behind the end, also if a former owner had sent it.
    """
    following = world.source.first_from(read)
    if following is None or following >= world.owner.next:
        return world.target.end
    last = world.target.last(following)
    assert last is not None
    return last


def check_map(world: World) -> None:
    maps = world.maps()
    known = maps.partitions.get(PARTITION)
    if known is not None and len(known.keys) > MOST_KEYS:
        raise Violation("C", f"{len(known.keys)} keys")
    view = maps.view(PARTITION, world.position)
    copied = [at for at in world.source.live if at < world.position.offset]
    for before, offset in pairwise([-1, *copied]):
        last = world.target.last(offset)
        if any(view.forward(at) != last for at in {before + 1, offset}):
            raise Violation("M", f"{before + 1} to {offset} are not translated to the last copy")
