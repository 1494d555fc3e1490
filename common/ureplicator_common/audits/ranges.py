"""Merging of comparisons into the state of a topic.

A partition has one verified range. A comparison that touches or overlaps it extends it; one that lies apart
replaces it if it reaches further, since "verified up to" is what readers want to know, and is otherwise only
part of the last run. Differences that were found stay until a comparison covers all the offsets they are at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ureplicator_common.audits import (
    MAX_FINDINGS,
    AuditRun,
    Differences,
    Finding,
    TopicAudit,
    VerifiedRange,
)


def with_compared(
    before: TopicAudit | None,
    compared: Mapping[int, VerifiedRange],
    findings: Sequence[Finding],
    *,
    source_topic_id: str,
    target_topic_id: str,
    run: AuditRun | None = None,
    passed: int = 0,
    skipped: int = 0,
    failure: str = "",
) -> TopicAudit:
    """The state after ranges were compared. What is known of topics with other ids does not count.

    `run`: the run that this is the end of; None: the last one stays. `passed`, `skipped`: offsets to add. A
    former failure is forgotten.
    """
    same = before is not None and is_of(before, source_topic_id, target_topic_id)
    known = before.partitions if same and before else {}
    merged = {
        **known,
        **{
            number: merged_range(known.get(number), verified)
            for number, verified in compared.items()
        },
    }
    kept = [
        finding
        for finding in (before.findings if same and before else ())
        if _stays(finding, known[finding.partition], compared.get(finding.partition))
    ]
    return TopicAudit(
        source_topic_id=source_topic_id,
        target_topic_id=target_topic_id,
        partitions=dict(sorted(merged.items())),
        findings=(*kept, *findings)[:MAX_FINDINGS],
        last=run or (before.last if before else None),
        passed=passed + (before.passed if same and before else 0),
        skipped=skipped + (before.skipped if same and before else 0),
        failure=failure,
    )


def is_of(audit: TopicAudit, source_topic_id: str, target_topic_id: str) -> bool:
    """True if it is of these topics."""
    return not any(recreated_sides(audit, source_topic_id, target_topic_id))


def recreated_sides(audit: TopicAudit, source_topic_id: str, target_topic_id: str) -> Iterator[str]:
    """`source`, `target`: those whose topic is another one. An id that is not known yet may be any."""
    sides = (
        ("source", audit.source_topic_id, source_topic_id),
        ("target", audit.target_topic_id, target_topic_id),
    )
    for side, compared, present in sides:
        if compared and present and compared != present:
            yield side


def merged_range(known: VerifiedRange | None, new: VerifiedRange) -> VerifiedRange:
    if known is None or (new.first <= known.first and new.next >= known.next):
        return new
    if new.first > known.next or new.next < known.first:
        return new if new.next > known.next else known
    return replace(
        new if new.next >= known.next else known,
        first=min(known.first, new.first),
        differences=_merged_differences(known, new),
    )


def _merged_differences(known: VerifiedRange, new: VerifiedRange) -> Differences | None:
    """Differences of the new range, and the known ones unless it covers all of them."""
    former, found = known.differences, new.differences
    if former is None or _covers(new, former):
        return found
    if found is None:
        return former
    counts = dict(former.counts)
    for kind, count in found.counts.items():
        counts[kind] = counts.get(kind, 0) + count
    return Differences(min(former.first, found.first), max(former.last, found.last), counts)


def _covers(new: VerifiedRange, former: Differences) -> bool:
    return new.first <= former.first and former.last < new.next


def _stays(finding: Finding, known: VerifiedRange, new: VerifiedRange | None) -> bool:
    """True if a finding is still one of the state: its offset was not compared again."""
    if known.differences is None or new is None:
        return known.differences is not None
    if _covers(new, known.differences) or merged_range(known, new) is new:
        return False
    return not new.first <= finding.source_offset < new.next


def with_run(before: TopicAudit | None, run: AuditRun) -> TopicAudit:
    """The state after a run that compared nothing."""
    return replace(before or TopicAudit(), last=run)


def with_failure(before: TopicAudit | None, *, failure: str) -> TopicAudit:
    """The state after a comparison behind the copy that did not end."""
    return replace(before or TopicAudit(), failure=failure)
