"""Worth of an audit now: a pure function of what was compared, of the topic as it is, and of the time.

    state               when
    never verified      no partition was ever compared
    differences found   the verified ranges of these topics hold differences
    stale               what was verified is not what is copied now; the reasons say why
    verified            all partitions, up to an offset and a time

Reasons for *stale*: a topic was remade (another id), a partition was never compared, a position lies before
what was verified (it was moved back, so records are copied again), the auditor that follows behind the copy
cannot compare it, a later audit had nothing to compare, or records have been copied beyond it and the
comparison is older than `audit.stale_after_s`. A quiet topic that was compared up to its position stays
verified: nothing was copied since. Differences of a topic that was remade are those of another topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ureplicator_common.audits import EMPTY_RANGE, NOT_VERIFIED, TopicAudit, VerifiedRange
from ureplicator_common.audits.ranges import recreated_sides

COMMITTED_WITHIN_MS = 60_000
"""A comparison may read records whose position is not committed yet. Above any commit interval: a worker's
watchdog, 60 s by default, is longer than its interval."""


class AuditState(StrEnum):
    """State of a topic's verification."""

    NEVER = "never verified"
    VERIFIED = "verified"
    STALE = "stale"
    DIFFERING = "differences found"


@dataclass(frozen=True, slots=True)
class CopiedTopic:
    """A topic as it is copied now. `positions` are those that are known, read at `read_ms`."""

    partitions: int
    source_topic_id: str = ""
    target_topic_id: str = ""
    positions: Mapping[int, int] = field(default_factory=dict)
    read_ms: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """`behind_offsets`: source offsets copied and not verified; None: no position is known.
    `verified_ms`: time of the oldest of the partitions' comparisons; None: there is none."""

    state: AuditState
    reasons: tuple[str, ...] = ()
    behind_offsets: int | None = None
    verified_ms: int | None = None
    verified_partitions: int = 0

    @property
    def reason(self) -> str:
        return "; ".join(self.reasons)


def standing(
    audit: TopicAudit | None, topic: CopiedTopic, *, now_ms: int, stale_after_s: float
) -> Standing:
    passed = {
        number: verified
        for number, verified in (audit.partitions.items() if audit else ())
        if number < topic.partitions
    }
    known = {number: verified for number, verified in passed.items() if _is_verified(verified)}
    if audit is None or not known:
        return Standing(
            AuditState.NEVER, tuple(_unproved(audit)), behind_offsets=_behind(topic, passed)
        )
    sides = recreated_sides(audit, topic.source_topic_id, topic.target_topic_id)
    remade = tuple(f"the {side} topic was remade since" for side in sides)
    reasons = remade or (
        *_unproved(audit, since_ms=min(verified.at_ms for verified in known.values())),
        *_stale(known, topic, now_ms=now_ms, stale_after_s=stale_after_s),
    )
    state = AuditState.STALE if reasons else AuditState.VERIFIED
    if not remade and any(verified.differences for verified in known.values()):
        state = AuditState.DIFFERING
    return Standing(
        state,
        reasons,
        behind_offsets=_behind(topic, {} if remade else passed),
        verified_ms=min(verified.at_ms for verified in known.values()),
        verified_partitions=len(known),
    )


def _is_verified(verified: VerifiedRange) -> bool:
    """False for the empty range at which an auditor began behind the copy."""
    return verified.first < verified.next or verified.next == 0


def _behind(topic: CopiedTopic, known: Mapping[int, VerifiedRange]) -> int | None:
    """Offsets up to the positions that no comparison has reached."""
    if not topic.positions:
        return None
    return sum(
        max(0, position - known[number].next) if number in known else position
        for number, position in topic.positions.items()
    )


def _unproved(audit: TopicAudit | None, *, since_ms: int | None = None) -> Iterator[str]:
    """Reasons of comparisons that ended without a proof. `since_ms`: the oldest one that has one."""
    if audit is None:
        return
    if audit.failure:
        yield f"it could not be compared behind the copy: {audit.failure}"
    run = audit.last
    if run is None or not run.outcome.startswith(NOT_VERIFIED):
        return
    if since_ms is None or (run.ended_ms > since_ms and EMPTY_RANGE not in run.outcome):
        yield f"its last audit: {run.outcome}"


def _stale(
    known: Mapping[int, VerifiedRange], topic: CopiedTopic, *, now_ms: int, stale_after_s: float
) -> Iterator[str]:
    missing = topic.partitions - len(known)
    if missing:
        yield f"{missing} of {topic.partitions} partitions never verified"
    moved = [
        number
        for number, verified in known.items()
        if topic.read_ms > verified.at_ms + COMMITTED_WITHIN_MS
        and topic.positions.get(number, verified.next) < verified.next
    ]
    if moved:
        yield f"the positions of {len(moved)} partitions were moved back, first of {moved[0]}"
    late = [
        verified
        for number, verified in known.items()
        if now_ms - verified.at_ms > stale_after_s * 1_000
        and topic.positions.get(number, verified.next + 1) > verified.next
    ]
    if late:
        oldest_s = (now_ms - min(verified.at_ms for verified in late)) // 1_000
        yield f"{len(late)} partitions were copied on and not verified for up to {oldest_s} s"
