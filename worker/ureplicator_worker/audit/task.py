"""One partition of an audit for a while: the function of the Spark task.

It stops after `round_s` when every difference so far is explained, so the next round can go on from two
offsets alone. Differences that never end are explained with what is known after `PATIENCE` rounds. A task
that is cancelled brings what it had compared up to the last place where all was explained.

Where does the copy of the first record lie? Offsets of both sides have nothing in common. If a former round
or audit ended here, it is known. Else, where timestamps are kept, the brokers' index of times gives a
bound: the copy of a record is not before the first record that is as late. The lowest of the first
thousand timestamps is taken, since they need not be in order. The rest is found by contents. Where the
position claims offsets, both sides begin at the first record that both logs still have by that claim.

What lies behind a claim is for a later comparison, with the claim of a later position: a round ends there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import Extent
from ureplicator_common.offset_map.segments import MapSegment
from ureplicator_worker.audit.core.claims import SAME, Claim
from ureplicator_worker.audit.core.comparison import Comparison
from ureplicator_worker.audit.core.history import SIZE
from ureplicator_worker.audit.core.pairs import Pairs
from ureplicator_worker.audit.core.pending import Limits
from ureplicator_worker.audit.core.side import Chunk, Side
from ureplicator_worker.audit.result import (
    NO_OFFSET,
    AuditOptions,
    Finding,
    FindingKind,
    PartitionRange,
    PartitionResult,
)
from ureplicator_worker.audit.signals import Cancelled, TaskSignals
from ureplicator_worker.audit.streams import PartitionLog

PATIENCE = 4


@dataclass(frozen=True, slots=True)
class Work:
    """`rate_bytes_per_s` is this task's share; `max_findings`: what is left to this partition; `signals`:
    folder of them, "" for none."""

    topic: str
    target_topic: str
    source: Mapping[str, str]
    target: Mapping[str, str]
    range: PartitionRange
    options: AuditOptions
    rate_bytes_per_s: float
    max_findings: int
    signals: str = ""

    @property
    def claim(self) -> Claim:
        return SAME if self.options.same_offsets else self.range.claim


@dataclass(frozen=True, slots=True)
class Outcome:
    """`error`: what stopped this partition; the result holds what was compared before. `cancelled`: nothing
    of this round can be kept. `segments`: of an offset map, if they are wanted."""

    result: PartitionResult
    findings: tuple[Finding, ...] = ()
    segments: tuple[MapSegment, ...] = ()
    error: str = ""
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    """Offsets where both sides begin, and which leading records are differences."""

    source: int
    target: int
    leading: bool
    limits: Limits
    notes: tuple[str, ...] = ()


def compare_each(works: Iterable[Work]) -> Iterator[Outcome]:
    """Compare partitions, for `mapPartitions`: all input is read before, or Spark kills the process."""
    for work in list(works):
        yield compare_partition(work)


def compare_partition(work: Work) -> Outcome:
    wanted, rate = work.range, work.rate_bytes_per_s
    signals = TaskSignals(work.signals, wanted.partition)
    first = max(wanted.first, 0)
    nothing = PartitionResult(wanted.partition, first, first, wanted.target_first, wanted.end)
    source = _log(work, work.source, work.topic, signals, rate)
    committed = not work.options.same_offsets
    target = _log(work, work.target, work.target_topic, signals, rate, committed=committed)
    try:
        with source, target:
            return _compare(work, source, target, signals)
    except OperatingError as error:
        return Outcome(nothing, error=str(error))
    except Cancelled:
        return Outcome(nothing, cancelled=True)


def _log(
    work: Work,
    cluster: Mapping[str, str],
    topic: str,
    signals: TaskSignals,
    rate: float = 0,
    *,
    committed: bool = True,
) -> PartitionLog:
    return PartitionLog(
        cluster,
        topic,
        work.range.partition,
        timestamps=work.options.timestamps,
        rate_bytes_per_s=rate,
        committed=committed,
        signals=signals,
    )


def _compare(
    work: Work, source: PartitionLog, target: PartitionLog, signals: TaskSignals
) -> Outcome:
    """The target's end is taken first: what it has now, the source has, too."""
    copies = target.extent()
    originals = source.extent()
    start = locate(work, source, target, originals, copies)
    ours = Side(source.chunks(start.source, originals.end), start.source)
    theirs = Side(target.chunks(start.target, copies.end), start.target)
    pairs = Pairs() if work.options.segments else None
    comparison = Comparison(
        work.range.partition,
        ours,
        theirs,
        required=work.range.end,
        limits=start.limits,
        leading=start.leading,
        tail=partial(_tail, work, start, originals, copies, signals),
        max_findings=work.max_findings,
        pairs=pairs,
        claim=work.claim,
    )

    def outcome() -> Outcome:
        result = _result(work, start, comparison, ours, theirs)
        nothing = uncompared(result, work.range, start, ours.passed, originals, copies)
        return Outcome(
            replace(result, uncompared=nothing),
            tuple(comparison.findings),
            pairs.segments() if pairs is not None else (),
        )

    kept: Outcome | None = None
    try:
        for _ in _steps(comparison, work):
            signals.show(ours.offset - start.source)
            if comparison.quiet and comparison.compared:
                kept = outcome()
            signals.check()
        comparison.finish()
    except Cancelled:
        if kept is None:
            raise
        return kept
    return outcome()


def _steps(comparison: Comparison, work: Work) -> Iterator[None]:
    """Steps of the comparison until its end, or that of the round."""
    began_s, round_s = time.monotonic(), work.options.round_s
    end = work.range.end if work.options.stop_at_end else max(work.range.end, work.claim.before)
    while comparison.step():
        yield
        spent_s = time.monotonic() - began_s
        if spent_s > round_s and (comparison.quiet or spent_s > round_s * PATIENCE):
            break
        if comparison.next_offsets[0] >= end and comparison.quiet:
            break


def _result(
    work: Work, start: Start, comparison: Comparison, ours: Side, theirs: Side
) -> PartitionResult:
    counts = comparison.counts
    first = start.source
    if start.leading and not start.limits.target_from_start:
        first = comparison.first_offset if comparison.compared else ours.offset
    return PartitionResult(
        partition=work.range.partition,
        verified_from=first,
        verified_to=ours.offset,
        target_to=theirs.offset,
        end=work.range.end,
        compared=comparison.compared,
        compared_bytes=ours.read_bytes,
        missing=counts[FindingKind.MISSING],
        repeated=counts[FindingKind.REPEATED],
        altered=counts[FindingKind.ALTERED],
        reordered=counts[FindingKind.REORDERED],
        foreign=counts[FindingKind.FOREIGN],
        shifted=counts[FindingKind.SHIFTED],
        compacted=comparison.compacted,
        notes=start.notes,
        findings_kept=len(comparison.findings),
    )


def uncompared(
    result: PartitionResult,
    wanted: PartitionRange,
    start: Start,
    passed: int,
    originals: Extent,
    copies: Extent,
) -> str:
    """Reason why nothing of a range was compared; "" if something was, or both logs have nothing there.

    `passed`: records of the source. Without a first match they are no differences where either log has lost
    its beginning, or the route did not begin there.
    """
    first = max(wanted.first, 0)
    found = result.compared + result.compacted + result.repeated + result.differences
    if found or first >= wanted.end or (start.source <= first and not passed):
        return ""
    if originals.start >= wanted.end:
        return f"the source has no record before {wanted.end} any more"
    if copies.start >= copies.end:
        return "the target has no records"
    return "no record of the source was found at the target"


# Where to begin.


def locate(
    work: Work, source: PartitionLog, target: PartitionLog, originals: Extent, copies: Extent
) -> Start:
    """Raises ClusterUnavailable."""
    wanted, options = work.range, work.options
    continued = wanted.target_first != NO_OFFSET
    first = max(originals.start, wanted.first)
    if not continued and work.claim.since <= first < work.claim.before:
        return _as_claimed(work, first, copies)
    place = max(copies.start, wanted.target_first)
    deleted = wanted.first != NO_OFFSET and first > wanted.first
    copies_deleted = place > wanted.target_first if continued else copies.start > 0
    from_start = (not deleted) if continued else first == 0
    whole_target = not copies_deleted and (continued or options.start == "earliest")
    if not from_start and options.timestamps:
        place = max(place, _not_before(source, first, originals.end, target, copies))
    if not whole_target and options.timestamps:
        first = max(first, _not_before(target, place, copies.end, source, originals))
    return Start(
        source=first,
        target=place,
        leading=not continued or deleted or copies_deleted,
        limits=Limits(
            source_compacted=options.source_compacted,
            target_compacted=options.target_compacted,
            source_from_start=from_start,
            target_from_start=whole_target,
        ),
        notes=tuple(_notes(wanted, first, continued, copies_deleted, whole_target)),
    )


def _as_claimed(work: Work, first: int, copies: Extent) -> Start:
    """Where both logs have records: what one of them has before is no difference."""
    options, shift = work.options, work.claim.shift
    begin = max(first, copies.start - shift)
    return Start(
        source=begin,
        target=begin + shift,
        leading=False,
        limits=Limits(
            source_compacted=options.source_compacted, target_compacted=options.target_compacted
        ),
        notes=tuple(_notes(work.range, begin, False, begin > first, True)),
    )


def _not_before(log: PartitionLog, first: int, end: int, other: PartitionLog, there: Extent) -> int:
    """Offset of the other log before which no copy, or original, of the next records lies."""
    oldest_ms = log.oldest_of_next(first, end)
    found = other.offset_at(oldest_ms) if oldest_ms is not None else None
    return there.start if found is None else found


def _notes(
    wanted: PartitionRange, first: int, continued: bool, copies_deleted: bool, whole_target: bool
) -> Iterator[str]:
    if wanted.first != NO_OFFSET and first > wanted.first:
        yield f"records from {wanted.first} to before {first} are no longer on both sides: not compared"
    elif copies_deleted:
        yield "the target deleted its first records: what is before is not compared"
    elif not whole_target and not continued:
        yield "the route did not begin at the first record: what is before is not compared"


def _tail(
    work: Work, start: Start, originals: Extent, copies: Extent, signals: TaskSignals
) -> Iterator[Chunk]:
    """Records of both sides that precede the range: a repeat may be of any of them."""
    with _log(work, work.target, work.target_topic, signals) as target:
        for chunk in target.chunks(max(copies.start, start.target - SIZE // 2), start.target):
            yield chunk._replace(offsets=[NO_OFFSET] * len(chunk.offsets))
    with _log(work, work.source, work.topic, signals) as source:
        yield from source.chunks(max(originals.start, start.source - SIZE // 2), start.source)
