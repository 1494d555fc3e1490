"""Decision which offsets a group gets at the target. Pure.

For each partition of the route that the group has committed at the source:

    source offset          s
    bounded by the copy    min(s, position): nothing behind it is on the target for certain
    translated             by the offset map of the partition; without a segment nothing is written
    bounded by the log     not before the start of the target's log, never past its end; one that is held
                           back by the end waits for the copy: markers of the transaction that committed the
                           position reach the partitions of the data a little later
    compared               written only if the target's offset is lower, or there is none

Consumers may keep the places of later records in the metadata of an offset, relative to it. So metadata go
along only where each later record of the source lies at the same distance at the target; else they are left
out.

A group whose offset lies before the start of the source's log, and before the map, goes on at the start of
the target's log: nothing that is still there is left out.

Nothing is written to a group with members at the target: consumers there have taken over. What is not known
(a list, a state, offsets that could not be read) is not known: it never counts as "no members" or "no
offset". So a failure of any read leaves the offsets at the target as they are.

A pass decides about a hundred thousand partitions and more: each decision is made at once, without copies,
its fields given by position, and states named by constants of the module (an attribute of an enum costs as
much as a call).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from ureplicator_common.kafka import Extent
from ureplicator_common.kafka.groups import CommittedOffset, Offsets, TopicPartition

Translate = Callable[[int], int | None]
"""Offset at one end -> offset at the other; None where the offset map has no segment for it. May raise
ClusterUnavailable and UnknownMapFormat: parts of the map are read when an offset is looked up in them."""


class Members(StrEnum):
    """Members of a group at the target, as far as they are known."""

    NONE = "none"
    SOME = "some"
    UNKNOWN = "unknown"


class SyncState(StrEnum):
    """State of a group's offset on a partition. A group has the first of its partitions' in this order, and
    `NO_OFFSETS` without any; `GONE`: the source has deleted it."""

    UNSUPPORTED = "not synced"
    UNKNOWN = "unknown"
    REFUSED = "refused"
    ACTIVE = "active on the target"
    NOT_COPIED = "not copied"
    NO_MAP = "no map"
    PENDING = "pending"
    WAITS = "waits for the copy"
    AHEAD = "ahead on the target"
    SYNCED = "synced"
    NO_OFFSETS = "no offsets"
    GONE = "gone at the source"


METADATA_LEFT_OUT = "its metadata are left out: places in them could be of other records there"
BEFORE_START = (
    "its offset is before the start of the log that it leaves: it goes on at the start of the other"
)

_UNKNOWN, _ACTIVE, _PENDING = SyncState.UNKNOWN, SyncState.ACTIVE, SyncState.PENDING
_WAITS, _AHEAD, _SYNCED = SyncState.WAITS, SyncState.AHEAD, SyncState.SYNCED
_SOME_MEMBERS, _UNKNOWN_MEMBERS = Members.SOME, Members.UNKNOWN
_ORDER = {state: number for number, state in enumerate(SyncState)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedPartition:
    """Progress of a route in a partition. `position`: next source offset to copy, None without one.

    `translate`: source offset -> target offset; `translate_back`: the reverse. `end`: offset at the target
    after the last record that was copied to it, None unknown. `log`: the target's log, None unknown.
    `source_log`: the source's, read after the position. `constant_from`: source offset from which each
    record of the source lies at the same distance at the target, up to the end of the source's log; None: no
    such offset.
    """

    target: TopicPartition
    position: int | None
    translate: Translate
    translate_back: Translate
    end: int | None = None
    log: Extent | None = None
    source_log: Extent | None = None
    constant_from: int | None = None
    reason: str = ""
    """Reason why there is no position, or no extent of the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """A group as it was read. `source`, `target`: committed offsets there, None: not known."""

    id: str
    source: Offsets | None
    target: Offsets | None
    members: Members
    unsupported: str = ""
    reason: str = ""
    """Reason why something is not known."""
    share: bool = False
    """The offsets are start offsets of a share group."""


class PartitionDecision(NamedTuple):
    """Offset of a group on one partition. `waits`: why a later offset is to come, or ""; `note`: what else
    follows for its consumers, or "". `read_again`: offsets that the group has read at the source and will
    read again at the target; None: unknown, or not `measured`."""

    partition: TopicPartition
    copied: CopiedPartition
    state: SyncState
    reason: str
    source_offset: int
    translated: int | None
    target_offset: int | None
    metadata: str
    waits: str
    note: str = ""
    read_again: int | None = None

    @property
    def target(self) -> TopicPartition:
        return self.copied.target

    @property
    def held(self) -> int | None:
        """Offsets of the log that it leaves behind an open transaction there: not copied; None: unknown."""
        log = self.copied.source_log
        return None if log is None else log.held

    @property
    def skipped(self) -> int | None:
        """Target offsets that it passed without having read them at the source; None: unknown."""
        if self.translated is None:
            return None
        return max(0, (self.target_offset or 0) - self.translated)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDecision:
    group: str
    state: SyncState
    reason: str = ""
    partitions: tuple[PartitionDecision, ...] = ()
    share: bool = False

    @property
    def is_pending(self) -> bool:
        return any(partition.state is _PENDING for partition in self.partitions)

    @property
    def writes(self) -> Offsets:
        """Offsets to commit at the target."""
        return {
            partition.target: CommittedOffset(partition.translated, partition.metadata)
            for partition in self.partitions
            if partition.state is _PENDING and partition.translated is not None
        }


def decide(group: GroupView, copied: Mapping[TopicPartition, CopiedPartition]) -> GroupDecision:
    """Partitions that are not on the route are left out."""
    if group.unsupported:
        return GroupDecision(group=group.id, state=SyncState.UNSUPPORTED, reason=group.unsupported)
    if group.source is None:
        return GroupDecision(group=group.id, state=SyncState.UNKNOWN, reason=group.reason)
    found = tuple(
        _decide(group, copied[partition], partition, committed)
        for partition, committed in sorted(group.source.items())
        if partition in copied
    )
    return _summed(group.id, found, share=group.share)


def settled(decision: GroupDecision, refused: Mapping[TopicPartition, str]) -> GroupDecision:
    """The decision after its offsets were committed, but for those that were refused, with the reasons."""
    partitions = tuple(_settled(partition, refused) for partition in decision.partitions)
    return _summed(decision.group, partitions, share=decision.share)


def measured(decision: GroupDecision) -> GroupDecision:
    """The decision with what is read again. May raise as `Translate`."""
    partitions = tuple(
        partition._replace(read_again=_read_again(partition)) for partition in decision.partitions
    )
    return replace(decision, partitions=partitions)


def _read_again(each: PartitionDecision) -> int | None:
    if each.translated is None:
        return None
    resumes_at = source_offset(each.copied, max(each.translated, each.target_offset or 0))
    return None if resumes_at is None else max(0, each.source_offset - resumes_at)


def withheld(decision: GroupDecision, state: SyncState, reason: str) -> GroupDecision:
    """The decision without its writes, as something else was found when they were due."""
    return _summed(
        decision.group,
        tuple(
            partition._replace(state=state, reason=reason)
            if partition.state is _PENDING
            else partition
            for partition in decision.partitions
        ),
        share=decision.share,
    )


def _settled(before: PartitionDecision, refused: Mapping[TopicPartition, str]) -> PartitionDecision:
    partition, copied, state, _, offset, translated, _, metadata, waits, note, _ = before
    if state is not _PENDING:
        return before
    if refused and copied.target in refused:
        return before._replace(state=SyncState.REFUSED, reason=refused[copied.target])
    state = _WAITS if waits else _SYNCED
    return PartitionDecision(
        partition, copied, state, waits, offset, translated, translated, metadata, waits, note
    )


def _summed(group: str, partitions: tuple[PartitionDecision, ...], *, share: bool) -> GroupDecision:
    if not partitions:
        reason = "the group has no offsets on the route"
        return GroupDecision(group=group, state=SyncState.NO_OFFSETS, reason=reason)
    first = partitions[0]
    for partition in partitions:
        state = partition.state
        if state is not first.state and _ORDER[state] < _ORDER[first.state]:
            first = partition
    return GroupDecision(
        group=group, state=first.state, reason=first.reason, partitions=partitions, share=share
    )


def _decide(
    group: GroupView,
    copied: CopiedPartition,
    partition: TopicPartition,
    committed: CommittedOffset,
) -> PartitionDecision:
    offset, metadata = committed
    there = group.target.get(copied.target) if group.target else None
    target_offset = there.offset if there else None
    exact = translated_offset(copied, offset)
    translated, waits = _bounded(copied, exact), _waits(copied, offset, exact)
    if translated is None:
        state, reason = _untranslated(copied, offset)
    else:
        state, reason = _compared(group, translated, target_offset, waits=waits)
    loses = False
    if metadata and not (exact == translated and _keeps(copied, offset)):
        loses = there is None or there.metadata != metadata
        metadata = ""
    note = _note(copied, offset, loses=loses)
    return PartitionDecision(
        partition,
        copied,
        state,
        reason,
        offset,
        translated,
        target_offset,
        metadata,
        waits,
        note,
    )


def _keeps(copied: CopiedPartition, source_offset: int) -> bool:
    """True if each record from this offset on lies at the same distance at the target."""
    if copied.position is None or copied.constant_from is None:
        return False
    return copied.constant_from <= source_offset <= copied.position


def _note(copied: CopiedPartition, source_offset: int, *, loses: bool) -> str:
    log = copied.source_log
    if not loses and (log is None or (source_offset >= log.start and not log.held)):
        return ""
    is_before = _is_before_start(copied, source_offset)
    notes = BEFORE_START if is_before else "", METADATA_LEFT_OUT if loses else "", _held(copied)
    return "; ".join(filter(None, notes))


def _held(copied: CopiedPartition) -> str:
    """Text on records that an open transaction of the log that the group leaves holds; "" if none."""
    log = copied.source_log
    if log is None or not log.held:
        return ""
    return f"{log.held} offsets behind {log.end} are held by an open transaction: not copied before it ends"


def _is_before_start(copied: CopiedPartition, source_offset: int) -> bool:
    """True if the record at this offset is gone at the source, and no map says where it was."""
    position, log = copied.position, copied.source_log
    if position is None or log is None or source_offset >= log.start or source_offset >= position:
        return False
    return copied.translate(source_offset) is None


def _bounded(copied: CopiedPartition, translated: int | None) -> int | None:
    """Neither before the start of the target's log nor past its end; None where that is not known."""
    log = copied.log
    if translated is None or log is None:
        return None
    if log.start <= translated <= log.end:
        return translated
    return min(max(translated, log.start), log.end)


def _waits(copied: CopiedPartition, source_offset: int, exact: int | None) -> str:
    """Reason to give the group a later offset than it can get now, or ""."""
    if copied.position is not None and source_offset > copied.position:
        held = _held(copied)
        beyond = "the group has read beyond the position of the copy"
        return f"{beyond}: {held}" if held else beyond
    if exact is not None and copied.log is not None and exact > copied.log.end:
        return f"consumers at the target can read up to {copied.log.end} only, and not up to {exact} yet"
    return ""


def translated_offset(copied: CopiedPartition, source_offset: int) -> int | None:
    """Target offset of a group that has read everything before `source_offset`; None without a map.

    A group that has read all that was copied goes on at the end of it, which needs no map; nor does a
    partition whose log at the target is empty, where the next record is the next one that is copied.
    """
    position, log = copied.position, copied.log
    if position is None:
        return None
    if log is not None and log.start == log.end:
        copied_to = _copied_to(copied, position)
        if copied_to is None or copied_to <= log.end:  # else a marker is under way
            return log.end
    if source_offset >= position:
        return _copied_to(copied, position)
    translated = copied.translate(source_offset)
    if translated is None and log is not None and _is_before_start(copied, source_offset):
        return log.start
    return translated


def _copied_to(copied: CopiedPartition, position: int) -> int | None:
    return copied.translate(position) if copied.end is None else copied.end


def source_offset(copied: CopiedPartition, target_offset: int) -> int | None:
    """Source offset of a group that has read everything before `target_offset`; None without a map."""
    if copied.position is None:
        return None
    if copied.end is not None and target_offset >= copied.end:
        return copied.position
    return copied.translate_back(target_offset)


def _untranslated(copied: CopiedPartition, source_offset: int) -> tuple[SyncState, str]:
    if copied.position is None:
        return SyncState.NOT_COPIED, copied.reason
    if translated_offset(copied, source_offset) is None:
        return SyncState.NO_MAP, "the offset map has no segment for this offset"
    return SyncState.UNKNOWN, copied.reason or "the target's log is not known"


def _compared(
    group: GroupView, translated: int, target_offset: int | None, *, waits: str
) -> tuple[SyncState, str]:
    if group.members is _SOME_MEMBERS:
        return _ACTIVE, "consumers are members of it there"
    if group.target is None or group.members is _UNKNOWN_MEMBERS:
        return _UNKNOWN, group.reason
    if target_offset is None or target_offset < translated:
        return _PENDING, ""
    if waits:
        return _WAITS, waits
    if target_offset > translated:
        return _AHEAD, f"{target_offset} is committed there: offsets are never lowered"
    return _SYNCED, ""
