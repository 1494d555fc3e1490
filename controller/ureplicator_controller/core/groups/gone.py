"""Policy for consumer groups that were deleted at the source, or expired there. Pure.

    group not in a complete list of the source   noted as gone, with the offsets that the sync gave it
    listed again                                 noted no more
    grace over, `on_source_deletion: delete`     its offsets at the target deleted

A group that is gone may have consumers at the target that are stopped for a while. Each doubt keeps its
offsets:

- only groups whose offsets at the target were those of the sync when they were last seen at the source, on
  every partition of the route: a group that read on at the target has others;
- only while the target has exactly these offsets, and no member in the group;
- only while the source is the cluster that had them, by its own id: notes of another one are dropped;
- not while more than half of the route's groups are gone, and more than one: rather the addresses of the
  source lead to another cluster;
- not while the fleet is frozen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import blake2b

from ureplicator_common.clock import utc_text
from ureplicator_common.kafka.groups import Offsets, TopicPartition
from ureplicator_common.znode_contents import GoneGroup
from ureplicator_controller.core.groups.decisions import GroupDecision, SyncState

OwnOffsets = Mapping[TopicPartition, int]
"""Offsets of a group at the target that are those of the sync."""
MAX_GONE_BYTES = 256 * 1024
"""Size of the groups that are noted as gone, in the node's text before compression."""
_NOTE_BYTES = 64
_GIVEN = frozenset({SyncState.SYNCED, SyncState.WAITS})


def own_offsets(decision: GroupDecision) -> OwnOffsets | None:
    """Offsets of the group at the target. None: the sync would not have given it one of them."""
    own: dict[TopicPartition, int] = {}
    for partition in decision.partitions:
        if partition.target_offset is None:
            continue
        if partition.state not in _GIVEN or partition.target_offset != partition.translated:
            return None
        own[partition.target] = partition.target_offset
    return own


def digest(offsets: OwnOffsets) -> str:
    """Digest of all partitions and offsets."""
    rows = "\n".join(f"{topic} {number} {at}" for (topic, number), at in sorted(offsets.items()))
    return blake2b(rows.encode(), digest_size=12).hexdigest()


def offsets_on(offsets: Offsets, targets: Collection[str]) -> OwnOffsets:
    """Offsets on these topics."""
    return {key: committed.offset for key, committed in offsets.items() if key[0] in targets}


def noted(
    before: Mapping[str, GoneGroup],
    *,
    listed: Collection[str],
    own: Mapping[str, OwnOffsets],
    now_ms: int,
) -> dict[str, GoneGroup]:
    """Groups that are gone. `listed`: all groups of the source; `own`: of the groups that were seen there.

    Groups for which there is no room are left for the next time.
    """
    gone = {id: group for id, group in before.items() if id not in listed}
    room = MAX_GONE_BYTES - sum(map(_size, gone))
    for id, offsets in own.items():
        if id in listed or id in gone or not offsets:
            continue
        room -= _size(id)
        if room < 0:
            break
        gone[id] = GoneGroup(since_ms=now_ms, offsets=digest(offsets))
    return gone


def _size(id: str) -> int:
    return len(id.encode()) + _NOTE_BYTES


def due(gone: Mapping[str, GoneGroup], *, grace_s: float, now_ms: int) -> list[str]:
    """Groups whose grace is over."""
    return [id for id, group in gone.items() if now_ms >= deleted_at_ms(group, grace_s=grace_s)]


def deleted_at_ms(group: GoneGroup, *, grace_s: float) -> int:
    """Wall clock."""
    return group.since_ms + round(grace_s * 1_000)


def doubt(*, gone: int, listed: int) -> str:
    """Reason to doubt that groups were deleted; "" if there is none. `listed`: groups that the source has."""
    if gone < 2 or gone <= listed:
        return ""
    return f"{gone} groups are gone at the source, which has {listed}: none is deleted"


def outlook(group: GoneGroup, *, grace_s: float) -> str:
    at = utc_text(deleted_at_ms(group, grace_s=grace_s))
    return f"its offsets at the target are deleted at {at}, unless it is used there"
