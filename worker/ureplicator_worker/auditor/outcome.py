"""Results of a comparison as contents of nodes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ureplicator_common.audits import (
    CANCELLED,
    DONE,
    EMPTY_RANGE,
    MAX_REASON_CHARACTERS,
    NOT_VERIFIED,
    AuditRun,
    Differences,
    TopicAudit,
    VerifiedRange,
)
from ureplicator_common.audits import Finding as StoredFinding
from ureplicator_common.audits.ranges import recreated_sides, with_compared, with_run
from ureplicator_common.model import Delivery
from ureplicator_common.znode_contents import TopicIntent
from ureplicator_worker.audit.result import AuditResult, AuditState, FindingKind, PartitionResult
from ureplicator_worker.engines.java_errors import cause_of


def kinds_of(delivery: Delivery) -> tuple[FindingKind, ...]:
    """Kinds that are differences: repeats are within the promise of at least once."""
    allowed = {FindingKind.REPEATED} if delivery is Delivery.AT_LEAST_ONCE else set()
    return tuple(kind for kind in FindingKind if kind not in allowed)


def compared_ranges(result: AuditResult, *, at_ms: int) -> dict[int, VerifiedRange]:
    """Ranges that were compared. `at_ms`: when the positions were read up to which it compared.

    A comparison may go on beyond them, with what was copied meanwhile: then its end is the time.
    """
    return {
        part.partition: VerifiedRange(
            part.verified_from,
            part.verified_to,
            max(at_ms, result.ended_ms) if part.verified_to > part.end else at_ms,
            part.target_to,
            _differences(part, result),
        )
        for part in result.partitions
        if 0 <= part.verified_from < part.verified_to and not part.uncompared
    }


def stored_findings(result: AuditResult) -> tuple[StoredFinding, ...]:
    kinds = kinds_of(result.delivery)
    return tuple(
        StoredFinding(
            finding.partition, finding.kind.value, finding.source_offset, finding.target_offset
        )
        for finding in result.findings
        if finding.kind in kinds
    )


def difference_counts(result: AuditResult) -> dict[str, int]:
    counts = {kind.value: result.total(kind.value) for kind in kinds_of(result.delivery)}
    return {kind: count for kind, count in sorted(counts.items()) if count}


def outcome_of(result: AuditResult) -> str:
    """`done`, or what could not be compared. The command ends with exit code 2 unless it is `done`, or
    records differ."""
    if result.not_comparable:
        return shortened(f"not comparable: {result.not_comparable}")
    open_ones = [partition for partition in result.partitions if not partition.complete]
    if open_ones:
        first = open_ones[0]
        why = first.notes[-1] if first.notes else "its end was not reached"
        return shortened(f"{len(open_ones)} partitions incomplete, first {first.partition}: {why}")
    nothing = any(partition.uncompared for partition in result.partitions)
    if nothing or result.state is AuditState.NOT_VERIFIED:
        return shortened(f"{NOT_VERIFIED}: {result.unverified}")
    return DONE


def failure_of(result: AuditResult) -> str:
    """Reason to compare again behind the copy; "" if nothing is left, though no record was in the range:
    it may hold markers of transactions alone."""
    outcome = outcome_of(result)
    return "" if outcome in (DONE, f"{NOT_VERIFIED}: {EMPTY_RANGE}") else outcome


def run_of(
    result: AuditResult | None,
    *,
    id: str,
    auditor: str,
    started_ms: int,
    ended_ms: int,
    outcome: str,
    report: str = "",
) -> AuditRun:
    """The run that a result is of; None: it compared nothing."""
    return AuditRun(
        id,
        auditor,
        started_ms,
        ended_ms,
        outcome,
        result.total("compared") if result else 0,
        result.total("repeated") if result else 0,
        difference_counts(result) if result else {},
        report,
    )


def with_result(
    before: TopicAudit | None,
    result: AuditResult | None,
    *,
    run: AuditRun,
    intent: TopicIntent | None,
    at_ms: int,
) -> TopicAudit:
    """The state of a topic after a run. `at_ms`: when the positions were read up to which it compared.

    A run that was withdrawn since another auditor had ended it meanwhile keeps the outcome of that one. The
    ids are those of the topics that were compared: if others are copied, nothing of these is verified.
    """
    known = before.last if before else None
    if known is not None and known.id == run.id and run.outcome == CANCELLED:
        run = known
    if result is None or intent is None:
        return with_run(before, run)
    audited = TopicAudit(result.source_topic_id, result.target_topic_id)
    sides = list(recreated_sides(audited, intent.source_topic_id, intent.target_topic_id))
    if sides:
        why = f"{NOT_VERIFIED}: the {' and the '.join(sides)} topic is not the one that was whitelisted"
        return with_run(before, replace(run, outcome=why))
    return with_compared(
        before,
        compared_ranges(result, at_ms=at_ms),
        stored_findings(result),
        source_topic_id=result.source_topic_id or intent.source_topic_id,
        target_topic_id=result.target_topic_id or intent.target_topic_id,
        run=run,
    )


def written(
    before: TopicAudit | None,
    *,
    compared: Mapping[int, VerifiedRange],
    findings: Sequence[StoredFinding],
    intent: TopicIntent,
    passed: int,
    skipped: int,
    failure: str,
) -> TopicAudit:
    """The state of a topic after a pass."""
    return with_compared(
        before,
        compared,
        findings,
        source_topic_id=intent.source_topic_id,
        target_topic_id=intent.target_topic_id,
        passed=passed,
        skipped=skipped,
        failure=failure,
    )


def corrected(
    before: TopicAudit | None,
    *,
    compared: Mapping[int, VerifiedRange],
    findings: Sequence[StoredFinding],
    intent: TopicIntent,
) -> TopicAudit:
    """The state after ranges that differed were compared again. Shifted records stay where they are, and the
    claim that they were compared with may begin behind them by now: they stay differences."""
    known = before.partitions if before else {}
    shifted = [
        finding
        for finding in (before.findings if before else ())
        if finding.kind == FindingKind.SHIFTED and finding.partition in compared
    ]
    return written(
        before,
        compared={
            number: replace(verified, differences=_with_shifted(verified, known.get(number)))
            for number, verified in compared.items()
        },
        findings=[*shifted, *(finding for finding in findings if finding not in shifted)],
        intent=intent,
        passed=0,
        skipped=0,
        failure=before.failure if before else "",
    )


def _with_shifted(new: VerifiedRange, known: VerifiedRange | None) -> Differences | None:
    """Differences of the new range, and the shifted records of the known one."""
    former, found = known.differences if known else None, new.differences
    if former is None or FindingKind.SHIFTED not in former.counts:
        return found
    counts = dict(found.counts) if found else {}
    counts[FindingKind.SHIFTED] = max(
        former.counts[FindingKind.SHIFTED], counts.get(FindingKind.SHIFTED, 0)
    )
    return Differences(former.first, former.last, counts)


def reason_of(error: Exception) -> str:
    """Kind and message of a failure, as states and pages have it."""
    return shortened(cause_of(str(error)) or f"{type(error).__name__}: {error}")


def shortened(text: str) -> str:
    return text.splitlines()[0][:MAX_REASON_CHARACTERS] if text else "no reason given"


def _differences(compared: PartitionResult, result: AuditResult) -> Differences | None:
    kinds = kinds_of(result.delivery)
    counts = {kind.value: getattr(compared, kind.value) for kind in kinds}
    found = {kind: count for kind, count in counts.items() if count}
    if not found:
        return None
    offsets = [
        finding.source_offset
        for finding in result.findings
        if finding.partition == compared.partition and finding.kind in kinds
    ]
    first, last = _extent(compared, offsets, sum(found.values()))
    return Differences(first, last, found)


def _extent(compared: PartitionResult, offsets: Sequence[int], total: int) -> tuple[int, int]:
    """First and last source offset of differences; the whole range where not all are known."""
    if len(offsets) < total or min(offsets) < 0:
        return compared.verified_from, compared.verified_to - 1
    return min(offsets), max(offsets)
